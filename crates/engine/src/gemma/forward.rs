//! One forward pass.

use super::cache::{Held, Kv};
use super::{Capture, Fill, Gemma, Injection, KvSource, Layer, Pass, RawKv, Rows, Witness};
use crate::Error;
use crate::backend::{Activation, Backend, Mask};
use protocol::LayerKind;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

impl<B: Backend> Gemma<B> {
    /// Raw embedding rows times `scale`: [T, hidden].
    pub fn embed(&self, ids: &[u32], scale: f32) -> Result<B::Tensor, Error> {
        let vocabulary = self.vocabulary;
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocabulary) {
            return Err(Error::Trial(format!(
                "token {id} is outside the verifier's vocabulary of {vocabulary}"
            )));
        }
        self.backend.embed(&self.embedding, ids, scale)
    }

    /// Logits [rows, vocabulary] of `ids`, which follow the cached positions if there is a cache.
    pub fn logits(&self, ids: &[u32], pass: Pass<'_, B::Tensor>) -> Result<B::Tensor, Error> {
        let h = self.layers(ids, pass, None)?;
        let logits = self.backend.linear(&self.norm(&h, &self.norm)?, &self.embedding)?;
        self.softcap.map_or(Ok(logits.clone()), |cap| self.backend.softcap(&logits, cap))
    }

    /// Raw K/V at `positions` of a clean forward over `ids`, for the layers that are `wanted` and have K/V of their own.
    /// Stops as soon as the last of them is known.
    pub fn capture(
        &self,
        ids: &[u32],
        wanted: Vec<bool>,
        positions: Range<usize>,
        cancel: &AtomicBool,
    ) -> Result<Vec<Option<RawKv<B::Tensor>>>, Error> {
        let mut capture = Capture { wanted, positions, layers: self.layers.iter().map(|_| None).collect() };
        self.layers(ids, Pass::plain(Rows::All, cancel), Some(&mut capture))?;
        Ok(capture.layers)
    }

    /// The hidden states after the last layer, or whatever was reached when a capture was complete.
    fn layers(
        &self,
        ids: &[u32],
        mut pass: Pass<'_, B::Tensor>,
        mut capture: Option<&mut Capture<B::Tensor>>,
    ) -> Result<B::Tensor, Error> {
        let b = &self.backend;
        let before = pass.cache.as_ref().map_or(0, |cache| cache.positions);
        let positions = before..before + ids.len();
        let sliding = b.angles(&self.sliding_frequencies, positions.clone())?;
        let full = b.angles(&self.full_frequencies, positions.clone())?;
        let last_captured =
            capture.as_ref().and_then(|capture| capture.wanted.iter().rposition(|wanted| *wanted));
        let keep_all = pass.mask.is_some();
        let mut h = self.embed(ids, (self.hidden as f32).sqrt())?;
        let mut per_layer = self.per_layer_inputs(ids, &h)?;
        let mut memory: Vec<Held<B::Tensor>> = match pass.cache.as_mut() {
            Some(cache) if before > 0 => std::mem::take(&mut cache.layers),
            _ => self.layers.iter().map(|_| None).collect(),
        };
        for (i, layer) in self.layers.iter().enumerate() {
            if pass.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let kind = layer.geometry.kind;
            let angles = if kind == LayerKind::Full { &full } else { &sliding };
            let mut x = self.norm(&h, &layer.input_norm)?;
            if let KvSource::Own { k, v, k_norm } = &layer.kv {
                let mut own = self.project(layer, &x, k, v.as_ref())?;
                if let Some(capture) = capture.as_mut() {
                    capture.take(b, i, &own)?;
                    if last_captured == Some(i) {
                        return Ok(h);
                    }
                }
                let mut hidden = 0..0;
                if let Some(injection) = pass.injection {
                    let witness = pass.witness.as_mut().map(|witness| &mut **witness as &mut dyn Witness);
                    (own, hidden) = self.inject(i, own, injection, witness)?;
                }
                let k = b.head_major(&b.rope(&self.norm(&own.k, k_norm)?, angles)?)?;
                let v = if layer.v_norm { b.rms_norm(&own.v, None, self.eps)? } else { own.v };
                let v = b.head_major(&v)?;
                memory[i] = Some(match memory[i].take() {
                    Some(old) => Kv {
                        k: b.concat(1, &[&old.k, &k])?,
                        v: b.concat(1, &[&old.v, &v])?,
                        hidden: old.hidden,
                    },
                    None => Kv { k, v, hidden },
                });
            }
            // Nobody reads the other rows after the last layer's K/V.
            let narrow = pass.rows == Rows::Last && i + 1 == self.layers.len() && ids.len() > 1;
            let mut own_angles = None;
            if narrow {
                let last = ids.len() - 1..ids.len();
                (h, x) = (b.slice(&h, 0, last.clone())?, b.slice(&x, 0, last.clone())?);
                if let Some(inputs) = per_layer.as_mut() {
                    inputs[i] = b.slice(&inputs[i], 0, last)?;
                }
                let frequencies =
                    if kind == LayerKind::Full { &self.full_frequencies } else { &self.sliding_frequencies };
                own_angles = Some(b.angles(frequencies, positions.end - 1..positions.end)?);
            }
            let q = b.split_heads(&b.linear(&x, &layer.q)?, layer.heads)?;
            let q = b.rope(&self.norm(&q, &layer.q_norm)?, own_angles.as_ref().unwrap_or(angles))?;
            let source = if let KvSource::Shared(source) = layer.kv { source } else { i };
            let held =
                memory[source].as_ref().ok_or_else(|| Error::Tensor(format!("layer {i} has no K/V")))?;
            let mask = pass.mask.unwrap_or_else(|| self.native_mask(kind, &held.hidden));
            let q = b.head_major(&q)?;
            if let Some(witness) = pass.witness.as_mut().filter(|_| !pass.watched.is_empty()) {
                // The memory ends with the last position, but need not begin with the first.
                let first = positions.end - b.shape(&held.k)[1];
                let watched =
                    pass.watched.start.saturating_sub(first)..pass.watched.end.saturating_sub(first);
                witness.attended(i, b.attention_mass(&q, &held.k, layer.scale, mask, watched)?);
            }
            let attention = b.attention(&q, &held.k, &held.v, layer.scale, mask)?;
            h = b.add(&h, &self.norm(&b.linear(&attention, &layer.o)?, &layer.post_attention_norm)?)?;
            h = b.add(&h, &self.norm(&self.feed_forward(layer, &h)?, &layer.post_feedforward_norm)?)?;
            if let (Some(inputs), Some(input)) = (&per_layer, &layer.per_layer) {
                let gated = b.gated(Activation::GeluTanh, &b.linear(&h, &input.gate)?, &inputs[i])?;
                h = b.add(&h, &self.norm(&b.linear(&gated, &input.projection)?, &input.norm)?)?;
            }
            h = b.scale(&h, layer.scalar)?;
        }
        if let Some(cache) = pass.cache {
            cache.positions = positions.end;
            cache.layers = if keep_all { memory } else { self.trim(memory)? };
        }
        Ok(h)
    }

    fn norm(&self, x: &B::Tensor, weight: &B::Tensor) -> Result<B::Tensor, Error> {
        self.backend.rms_norm(x, Some(weight), self.eps)
    }

    fn project(
        &self,
        layer: &Layer<B>,
        x: &B::Tensor,
        k: &B::Weight,
        v: Option<&B::Weight>,
    ) -> Result<RawKv<B::Tensor>, Error> {
        let heads =
            |weight| self.backend.split_heads(&self.backend.linear(x, weight)?, layer.geometry.kv_heads);
        let k = heads(k)?;
        let v = v.map_or(Ok(k.clone()), heads)?;
        Ok(RawKv { k, v })
    }

    /// The model's own mask of a layer of `kind`, without the positions that are `hidden`.
    fn native_mask(&self, kind: LayerKind, hidden: &Range<usize>) -> Mask {
        match kind {
            LayerKind::Full if hidden.is_empty() => Mask::Causal,
            LayerKind::Sliding if hidden.is_empty() => Mask::Sliding { window: self.window },
            kind => Mask::Hiding {
                from: hidden.start,
                to: hidden.end,
                window: (kind == LayerKind::Sliding).then_some(self.window),
            },
        }
    }

    /// Replaces the rows at the evicted positions, before norm and rotation, so that both apply to them as to the own;
    /// or says which positions are to be hidden instead.
    fn inject(
        &self,
        layer: usize,
        own: RawKv<B::Tensor>,
        injection: &Injection<B::Tensor>,
        witness: Option<&mut dyn Witness>,
    ) -> Result<(RawKv<B::Tensor>, Range<usize>), Error> {
        let b = &self.backend;
        let evicted = injection.positions.clone();
        match &injection.layers[layer] {
            None => Ok((own, 0..0)),
            Some(Fill::Hidden) => {
                if let Some(witness) = witness {
                    witness.hidden(layer, evicted.len());
                }
                Ok((own, evicted))
            }
            Some(Fill::Rows(source, rows)) => {
                let start = Instant::now();
                let k = b.replace_rows(&own.k, evicted.start, &rows.k)?;
                let v = b.replace_rows(&own.v, evicted.start, &rows.v)?;
                if let Some(witness) = witness {
                    let (count, bytes) = (b.shape(&rows.k)[0], b.bytes(&rows.k) + b.bytes(&rows.v));
                    witness.injected(layer, *source, count, bytes, start.elapsed().as_secs_f64());
                }
                Ok((RawKv { k, v }, 0..0))
            }
        }
    }

    fn feed_forward(&self, layer: &Layer<B>, h: &B::Tensor) -> Result<B::Tensor, Error> {
        let b = &self.backend;
        let x = self.norm(h, &layer.pre_feedforward_norm)?;
        let (gate, up) = (b.linear(&x, &layer.mlp.gate)?, b.linear(&x, &layer.mlp.up)?);
        let dense = b.linear(&b.gated(Activation::GeluTanh, &gate, &up)?, &layer.mlp.down)?;
        let Some(moe) = &layer.moe else { return Ok(dense) };
        // The router reads the residual stream itself, not the normed input of the experts.
        let scores = b.linear(&self.norm(h, &moe.router_norm)?, &moe.router)?;
        let x = self.norm(h, &moe.pre_experts_norm)?;
        let mixture = b.mixture(&x, &scores, moe.top_k, &moe.experts)?;
        b.add(&self.norm(&dense, &moe.post_dense_norm)?, &self.norm(&mixture, &moe.post_experts_norm)?)
    }

    /// For each layer its extra input [T, width].
    fn per_layer_inputs(&self, ids: &[u32], h: &B::Tensor) -> Result<Option<Vec<B::Tensor>>, Error> {
        let b = &self.backend;
        let Some(ple) = &self.per_layer else { return Ok(None) };
        let count = self.layers.len();
        let token = b.split_heads(&b.embed(&ple.table, ids, (ple.width as f32).sqrt())?, count)?;
        let context = b.scale(&b.linear(h, &ple.projection)?, (self.hidden as f32).powf(-0.5))?;
        let context = self.norm(&b.split_heads(&context, count)?, &ple.norm)?;
        let both = b.head_major(&b.scale(&b.add(&context, &token)?, 0.5f32.sqrt())?)?;
        let part = |i| b.squeeze(&b.slice(&both, 0, i..i + 1)?);
        (0..count).map(part).collect::<Result<_, _>>().map(Some)
    }
}

impl<T: Clone> Capture<T> {
    fn take<B: Backend<Tensor = T>>(
        &mut self,
        backend: &B,
        layer: usize,
        own: &RawKv<T>,
    ) -> Result<(), Error> {
        if self.wanted[layer] {
            let part = |x| backend.slice(x, 0, self.positions.clone());
            self.layers[layer] = Some(RawKv { k: part(&own.k)?, v: part(&own.v)? });
        }
        Ok(())
    }
}
