//! K/V that decoding keeps from one step to the next.

use super::{Gemma, Layer};
use crate::Error;
use crate::backend::Backend;
use protocol::LayerKind;
use std::ops::Range;

/// K and V of one layer, after norm and rotation.
pub(super) struct Kv<T> {
    pub k: T,
    pub v: T,
    /// Positions that only their own queries see; empty for none.
    pub hidden: Range<usize>,
}

/// What a layer holds, where it has K/V of its own.
pub(super) type Held<T> = Option<Kv<T>>;

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
        self.layers.iter().flatten().map(|kv| backend.bytes(&kv.k) + backend.bytes(&kv.v)).sum()
    }
}

impl<B: Backend> Gemma<B> {
    /// Drops what a sliding layer cannot see any more: the next query and the `window - 1` keys before it remain.
    pub(super) fn trim(&self, memory: Vec<Held<B::Tensor>>) -> Result<Vec<Held<B::Tensor>>, Error> {
        let b = &self.backend;
        let trimmed = |(layer, kv): (&Layer<B>, Held<B::Tensor>)| {
            let Some(kv) = kv else { return Ok(None) };
            let held = b.shape(&kv.k)[1];
            // Hidden positions are counted from the first, so that one must stay.
            if layer.geometry.kind == LayerKind::Full || held < self.window || !kv.hidden.is_empty() {
                return Ok(Some(kv));
            }
            let range = held + 1 - self.window..held;
            let part = |x| b.slice(x, 1, range.clone());
            Ok(Some(Kv { k: part(&kv.k)?, v: part(&kv.v)?, hidden: kv.hidden }))
        };
        self.layers.iter().zip(memory).map(trimmed).collect()
    }
}
