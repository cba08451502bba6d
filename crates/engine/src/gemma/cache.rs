//! K/V that decoding keeps from one step to the next.

use super::{Gemma, Layer};
use crate::Error;
use crate::backend::Backend;
use protocol::LayerKind;

/// K and V of one layer, after norm and rotation, where a layer has its own.
pub(super) type Held<T> = Option<(T, T)>;

/// K/V of the positions so far, after norm and rotation, [kv_heads, positions, head_dim].
pub struct Cache<T> {
    pub(super) positions: usize,
    pub(super) layers: Vec<Held<T>>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self { positions: 0, layers: Vec::new() }
    }
}

impl<T> Cache<T> {
    /// Positions so far.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Bytes of the arrays that are held.
    pub fn bytes<B: Backend<Tensor = T>>(&self, backend: &B) -> u64 {
        self.layers.iter().flatten().map(|(k, v)| backend.bytes(k) + backend.bytes(v)).sum()
    }
}

impl<B: Backend> Gemma<B> {
    /// Drops what a sliding layer cannot see any more: the next query and the `window - 1` keys before it remain.
    pub(super) fn trim(&self, memory: Vec<Held<B::Tensor>>) -> Result<Vec<Held<B::Tensor>>, Error> {
        let b = &self.backend;
        let trimmed = |(layer, kv): (&Layer<B>, Held<B::Tensor>)| {
            let Some((k, v)) = kv else { return Ok(None) };
            let held = b.shape(&k)[1];
            if layer.geometry.kind == LayerKind::Full || held < self.window {
                return Ok(Some((k, v)));
            }
            let range = held + 1 - self.window..held;
            Ok(Some((b.slice(&k, 1, range.clone())?, b.slice(&v, 1, range)?)))
        };
        self.layers.iter().zip(memory).map(trimmed).collect()
    }
}
