//! One forward pass.

use super::cache::{Cache, Held};
use super::plan::{Evicted, Plan, Sequence};
use super::{Capture, Fill, Gemma, Injection, KvSource, Latents, Layer, Pass, RawKv, Rows, Source};
use crate::Error;
use crate::backend::{Activation, Backend, Mask, Segment};
use protocol::LayerKind;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// From this many positions on, leaving them out saves more than cutting the pass in two costs.
const WORTH_CUTTING: usize = 128;

impl<B: Backend> Gemma<B> {
    /// Raw embedding rows times `scale`: [T, hidden].
    pub fn embed(&self, ids: &[u32], scale: f32) -> Result<B::Tensor, Error> {
        self.backend.embed(&self.embedding, &self.known(ids)?, scale)
    }

    /// Ids of the vocabulary; others are errors.
    pub(crate) fn known(&self, ids: &[u32]) -> Result<B::Ids, Error> {
        let vocabulary = self.vocabulary;
        match ids.iter().find(|id| **id as usize >= vocabulary) {
            Some(id) => {
                Err(Error::Trial(format!("token {id} is outside the verifier's vocabulary of {vocabulary}")))
            }
            None => Ok(self.backend.ids(ids)),
        }
    }

    /// Logits of one token, known or not yet, which follows the cached positions.
    pub(crate) fn next_logits(
        &self,
        token: &B::Ids,
        mut pass: Pass<'_, B::Tensor>,
    ) -> Result<B::Tensor, Error> {
        let rows = Some(pass.rows);
        let h = self.layers(token, 1, rows, &mut pass, None)?;
        self.read_out(&h)
    }

    /// Logits [rows, vocabulary] of `ids`, which follow the cached positions.
    pub fn logits(&self, ids: &[u32], mut pass: Pass<'_, B::Tensor>) -> Result<B::Tensor, Error> {
        let (all, size) = (pass.rows == Rows::All, pass.chunk.max(1));
        let mut parts = Vec::new();
        let watched = std::mem::take(&mut pass.watched);
        let replaced = self.replaced(ids.len(), &pass);
        let stretches = [0..replaced.start, replaced.clone(), replaced.end..ids.len()];
        let chunk = |stretch: Range<usize>| {
            let end = stretch.end;
            stretch.step_by(size).map(move |start| start..end.min(start.saturating_add(size)))
        };
        for chunk in stretches.into_iter().flat_map(chunk) {
            if replaced.contains(&chunk.start) {
                self.restore(chunk, &mut pass)?;
                pass.cache.evaluate(&self.backend)?;
                continue;
            }
            let last = chunk.end == ids.len();
            if last {
                pass.watched = watched.clone();
            }
            let (rows, count) = ((last || all).then_some(pass.rows), chunk.len());
            let h = self.layers(&self.known(&ids[chunk])?, count, rows, &mut pass, None)?;
            if !last {
                self.finish(&h, pass.cache)?;
            }
            if last || all {
                parts.push(h);
            }
        }
        let h = if parts.len() == 1 {
            parts.swap_remove(0)
        } else {
            self.backend.concat(0, &parts.iter().collect::<Vec<_>>())?
        };
        self.read_out(&h)
    }

    /// Logits of the hidden states after the last layer.
    fn read_out(&self, h: &B::Tensor) -> Result<B::Tensor, Error> {
        let logits = self.backend.linear(&self.norm(h, &self.norm)?, &self.embedding)?;
        self.softcap.map_or(Ok(logits.clone()), |cap| self.backend.softcap(&logits, cap))
    }

    /// Those of the first `len` positions that need no pass: every layer's K/V of them are injected, which is all that
    /// others see of them, and their own logits are not wanted. Where all of them are the verifier's own, the whole pass
    /// stays: an identity run is a proof, and products of another shape round otherwise.
    fn replaced(&self, len: usize, pass: &Pass<'_, B::Tensor>) -> Range<usize> {
        let Some(injection) = pass.injection else { return 0..0 };
        let filled = |(layer, fill): (&Layer<B>, &Option<Fill<B::Tensor>>)| {
            matches!(layer.kv, KvSource::Shared(_)) || matches!(fill, Some(Fill::Rows(..) | Fill::Latent))
        };
        let everywhere = self.layers.iter().zip(&injection.layers).all(filled);
        let own = |fill: &Fill<B::Tensor>| matches!(fill, Fill::Rows(Source::Capture, _));
        let identity = injection.layers.iter().flatten().all(own);
        let positions = &injection.positions;
        let inside = pass.cache.positions() == 0 && positions.end < len;
        let worth_it = positions.len() >= WORTH_CUTTING && pass.rows == Rows::Last;
        if everywhere && !identity && inside && worth_it { positions.clone() } else { 0..0 }
    }

    /// Puts what is injected at `positions` into the cache, in place of a pass over them.
    fn restore(&self, positions: Range<usize>, pass: &mut Pass<'_, B::Tensor>) -> Result<(), Error> {
        let mut tables = Tables { gemma: self, made: Vec::new() };
        for (i, layer) in self.layers.iter().enumerate() {
            if pass.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let KvSource::Own { k_norm, .. } = &layer.kv else { continue };
            if let Some(rows) = self.filled(i, &positions, pass)? {
                let restored = self.segment(layer, k_norm, &rows, positions.clone(), &mut tables)?;
                pass.cache.push(&self.backend, i, &restored.k, &restored.v)?;
            }
        }
        pass.cache.advance(&self.backend, positions.end)
    }

    /// Raw K/V at `positions` of a clean forward over `ids`, `chunk` positions at a time, for the layers that are
    /// `wanted` and have K/V of their own. Stops as soon as the last of them is known.
    pub fn capture(
        &self,
        ids: &[u32],
        wanted: Vec<bool>,
        positions: Range<usize>,
        chunk: usize,
        cancel: &AtomicBool,
    ) -> Result<Vec<Option<RawKv<B::Tensor>>>, Error> {
        let mut capture =
            Capture { wanted, positions, layers: self.layers.iter().map(|_| Vec::new()).collect() };
        let sequence = Sequence { prompt: ids.len(), evicted: 0..0, native_window: self.window };
        let mut cache = Cache::new(Plan::native(&self.kv_layers(), &sequence, |_| Evicted::Resident), None);
        for ids in ids.chunks(chunk.max(1)) {
            let pass = &mut Pass::plain(&mut cache, Rows::Last, cancel);
            let h = self.layers(&self.known(ids)?, ids.len(), None, pass, Some(&mut capture))?;
            self.finish(&h, &cache)?;
        }
        let b = &self.backend;
        let join = |(i, parts): (usize, Vec<RawKv<B::Tensor>>)| {
            let side = |pick: fn(&RawKv<B::Tensor>) -> &B::Tensor| match &parts[..] {
                [whole] => Ok(pick(whole).clone()),
                parts => b.concat(0, &parts.iter().map(pick).collect::<Vec<_>>()),
            };
            if parts.is_empty() {
                return Ok(None);
            }
            let k = side(|part| &part.k)?;
            let v = if self.projects(i).1 { side(|part| &part.v)? } else { k.clone() };
            Ok(Some(RawKv { k, v }))
        };
        capture.layers.into_iter().enumerate().map(join).collect()
    }

    /// Computes what is pending of a chunk. What was cached comes last: only when nothing looks at the old rows any more
    /// can new ones be written beside them in place.
    fn finish(&self, h: &B::Tensor, cache: &Cache<B::Tensor>) -> Result<(), Error> {
        self.backend.evaluate(&[h])?;
        cache.evaluate(&self.backend)
    }

    /// The hidden states of `rows` of `count` ids after the last layer. Without any, whatever was reached when the cache had every K/V
    /// of `ids`, or a capture its last.
    fn layers(
        &self,
        ids: &B::Ids,
        count: usize,
        rows: Option<Rows>,
        pass: &mut Pass<'_, B::Tensor>,
        mut capture: Option<&mut Capture<B::Tensor>>,
    ) -> Result<B::Tensor, Error> {
        let b = &self.backend;
        let before = pass.cache.positions();
        let positions = before..before + count;
        let mut tables = Tables { gemma: self, made: Vec::new() };
        let mut h = b.embed(&self.embedding, ids, (self.hidden as f32).sqrt())?;
        let mut per_layer = self.per_layer_inputs(ids, &h)?;
        let mut memory: Vec<Vec<Segment<B::Tensor>>> = self.layers.iter().map(|_| Vec::new()).collect();
        for (i, layer) in self.layers.iter().enumerate() {
            if pass.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let mut x = self.norm(&h, &layer.input_norm)?;
            if let KvSource::Own { k, v, k_norm } = &layer.kv {
                let own = self.project(layer, &x, k, v.as_ref())?;
                if let Some(capture) = capture.as_mut()
                    && capture.take(b, i, &positions, &own, v.is_none())?
                {
                    break;
                }
                let own = self.inject(i, own, &positions, pass)?;
                let own = self.segment(layer, k_norm, &own, positions.clone(), &mut tables)?;
                memory[i] = self.held(i, k_norm, before, pass, &mut tables)?;
                pass.cache.push(b, i, &own.k, &own.v)?;
                self.append(i, own, &mut memory[i], pass.cache)?;
            }
            let last = i + 1 == self.layers.len();
            if last && rows.is_none() {
                break;
            }
            let mut asking = positions.clone();
            // Nobody reads the other rows after the last layer's K/V.
            if last && rows == Some(Rows::Last) && count > 1 {
                asking = positions.end - 1..positions.end;
                let row = count - 1..count;
                (h, x) = (b.slice(&h, 0, row.clone())?, b.slice(&x, 0, row.clone())?);
                if let Some(inputs) = per_layer.as_mut() {
                    inputs[i] = b.slice(&inputs[i], 0, row)?;
                }
            }
            let q = b.split_heads(&b.linear(&x, &layer.q)?, layer.heads)?;
            let q = b.head_major(&self.norm(&q, &layer.q_norm)?)?;
            let q = b.rope(&q, &*tables.at(layer.geometry.kind, asking)?)?;
            let source = if let KvSource::Shared(source) = layer.kv { source } else { i };
            let mask = pass.mask.unwrap_or_else(|| self.native_mask(source, pass.injection));
            if let Some(witness) = pass.witness.as_mut().filter(|_| !pass.watched.is_empty()) {
                let mass = b.attention_mass(&q, &memory[source], layer.scale, mask, pass.watched.clone())?;
                witness.attended(i, mass);
            }
            let attention = b.attention(&q, &memory[source], layer.scale, mask)?;
            if !self.layers[i + 1..]
                .iter()
                .any(|later| matches!(later.kv, KvSource::Shared(of) if of == source))
            {
                memory[source].clear();
            }
            h = b.add(&h, &self.norm(&b.linear(&attention, &layer.o)?, &layer.post_attention_norm)?)?;
            h = b.add(&h, &self.norm(&self.feed_forward(layer, &h)?, &layer.post_feedforward_norm)?)?;
            if let (Some(inputs), Some(input)) = (&per_layer, &layer.per_layer) {
                let gated = b.gated(Activation::GeluTanh, &b.linear(&h, &input.gate)?, &inputs[i])?;
                h = b.add(&h, &self.norm(&b.linear(&gated, &input.projection)?, &input.norm)?)?;
            }
            h = b.scale(&h, layer.scalar)?;
            b.start(&h)?;
        }
        pass.cache.advance(b, positions.end)?;
        Ok(h)
    }

    /// Raw K/V of `positions` as attention takes them: after norm and rotation.
    fn segment(
        &self,
        layer: &Layer<B>,
        k_norm: &B::Tensor,
        raw: &RawKv<B::Tensor>,
        positions: Range<usize>,
        tables: &mut Tables<'_, B>,
    ) -> Result<Segment<B::Tensor>, Error> {
        let (b, angles) = (&self.backend, tables.at(layer.geometry.kind, positions.clone())?);
        let k = b.rope(&b.head_major(&self.norm(&raw.k, k_norm)?)?, &angles)?;
        let v = if layer.v_norm { b.rms_norm(&raw.v, None, self.eps)? } else { raw.v.clone() };
        Ok(Segment { positions, k, v: b.head_major(&v)? })
    }

    /// What the cache holds of layer `i` for queries from position `before` on, rebuilt where it is not held as it is.
    fn held(
        &self,
        i: usize,
        k_norm: &B::Tensor,
        before: usize,
        pass: &Pass<'_, B::Tensor>,
        tables: &mut Tables<'_, B>,
    ) -> Result<Vec<Segment<B::Tensor>>, Error> {
        let (b, layer) = (&self.backend, &self.layers[i]);
        let kind = layer.geometry.kind;
        let mask = pass.mask.unwrap_or_else(|| self.native_mask(i, pass.injection));
        let from = mask.visible(before, before).1.start;
        let mut segments = Vec::new();
        for (positions, held) in pass.cache.rows(b, i, from)? {
            segments.push(match held {
                Held::Both(k, v) => Segment { positions, k, v },
                Held::Value(v) => {
                    let angles = tables.at(kind, positions.clone())?;
                    Segment { positions, k: b.weighted_rope(&v, k_norm, &angles)?, v }
                }
                Held::Latent(latents) => {
                    let raw = decoded(pass, i, &latents)?;
                    self.segment(layer, k_norm, &raw, positions, tables)?
                }
            });
        }
        Ok(segments)
    }

    /// Adds the rows of this pass to those that were held. A single one is read back in one piece with the rows before it,
    /// where the cache has them so: side by side, a library without segments copies all of them for every token.
    fn append(
        &self,
        i: usize,
        own: Segment<B::Tensor>,
        memory: &mut Vec<Segment<B::Tensor>>,
        cache: &Cache<B::Tensor>,
    ) -> Result<(), Error> {
        let before = memory.last_mut().filter(|before| before.positions.end == own.positions.start);
        if let Some(before) = before.filter(|_| own.positions.len() == 1) {
            let positions = before.positions.start..own.positions.end;
            if let Some((k, v)) = cache.in_one_piece(&self.backend, i, positions.clone())? {
                *before = Segment { positions, k, v };
                return Ok(());
            }
        }
        memory.push(own);
        Ok(())
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

    /// The model's own mask of layer `i`, without the positions that are hidden from it.
    fn native_mask(&self, i: usize, injection: Option<&Injection<B::Tensor>>) -> Mask {
        let window = (self.layers[i].geometry.kind == LayerKind::Sliding).then_some(self.window);
        match (injection, window) {
            (Some(Injection { positions, layers, .. }), window)
                if matches!(layers[i], Some(Fill::Hidden)) =>
            {
                Mask::Hiding { from: positions.start, to: positions.end, window }
            }
            (_, Some(window)) => Mask::Sliding { window },
            (_, None) => Mask::Causal,
        }
    }

    /// Replaces the rows at those of `positions` that are evicted, before norm and rotation, so that both apply to them
    /// as to the own.
    fn inject(
        &self,
        layer: usize,
        own: RawKv<B::Tensor>,
        positions: &Range<usize>,
        pass: &mut Pass<'_, B::Tensor>,
    ) -> Result<RawKv<B::Tensor>, Error> {
        let Some(injection) = pass.injection else { return Ok(own) };
        let evicted = &injection.positions;
        let here = evicted.start.max(positions.start)..evicted.end.min(positions.end);
        let (b, at) = (&self.backend, here.start.saturating_sub(positions.start));
        match self.filled(layer, &here, pass)? {
            Some(rows) => {
                Ok(RawKv { k: b.replace_rows(&own.k, at, &rows.k)?, v: b.replace_rows(&own.v, at, &rows.v)? })
            }
            None => Ok(own),
        }
    }

    /// What is injected at the evicted positions `here` of a layer; the witness is told.
    fn filled(
        &self,
        layer: usize,
        here: &Range<usize>,
        pass: &mut Pass<'_, B::Tensor>,
    ) -> Result<Option<RawKv<B::Tensor>>, Error> {
        let Some(injection) = pass.injection.filter(|_| !here.is_empty()) else { return Ok(None) };
        let Some(fill) = &injection.layers[layer] else { return Ok(None) };
        let (b, start, first) = (&self.backend, Instant::now(), injection.positions.start);
        let part = |x| b.view(x, 0, here.start - first..here.end - first);
        let (source, rows) = match fill {
            Fill::Hidden => {
                if let Some(witness) = pass.witness.as_mut() {
                    witness.hidden(layer, here.len());
                }
                return Ok(None);
            }
            Fill::Rows(source, rows) => (*source, RawKv { k: part(&rows.k)?, v: part(&rows.v)? }),
            Fill::Latent => {
                let latents = injection.latents.as_ref();
                let latents =
                    latents.ok_or_else(|| Error::Tensor(format!("layer {layer} has no latents")))?;
                let latents = Latents { k: part(&latents.k)?, v: part(&latents.v)? };
                (Source::FTheta, decoded(pass, layer, &latents)?)
            }
        };
        b.evaluate(&[&rows.k, &rows.v])?;
        if let Some(witness) = pass.witness.as_mut() {
            let bytes = b.bytes(&rows.k) + b.bytes(&rows.v);
            witness.injected(layer, source, here.len(), bytes, start.elapsed().as_secs_f64());
        }
        Ok(Some(rows))
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
    fn per_layer_inputs(&self, ids: &B::Ids, h: &B::Tensor) -> Result<Option<Vec<B::Tensor>>, Error> {
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

/// Rotary angles of one pass, made when they are first asked for.
struct Tables<'a, B: Backend> {
    gemma: &'a Gemma<B>,
    made: Vec<(LayerKind, Range<usize>, Rc<B::Angles>)>,
}

impl<B: Backend> Tables<'_, B> {
    fn at(&mut self, kind: LayerKind, positions: Range<usize>) -> Result<Rc<B::Angles>, Error> {
        let made = self.made.iter().find(|(of, at, _)| *of == kind && *at == positions);
        if let Some((_, _, angles)) = made {
            return Ok(angles.clone());
        }
        let frequencies = match kind {
            LayerKind::Full => &self.gemma.full_frequencies,
            LayerKind::Sliding => &self.gemma.sliding_frequencies,
        };
        let angles = Rc::new(self.gemma.backend.angles(frequencies, positions.clone())?);
        self.made.push((kind, positions, angles.clone()));
        Ok(angles)
    }
}

/// Raw K/V of `latents`, as the pass decodes them.
fn decoded<T>(pass: &Pass<'_, T>, layer: usize, latents: &Latents<T>) -> Result<RawKv<T>, Error> {
    let decoder =
        pass.decoder.ok_or_else(|| Error::Tensor(format!("nothing decodes the latents of layer {layer}")))?;
    decoder.decode(layer, latents)
}

impl<T: Clone> Capture<T> {
    /// Takes the wanted ones of the rows `own` at `positions`; true after the last layer of interest.
    fn take<B: Backend<Tensor = T>>(
        &mut self,
        b: &B,
        layer: usize,
        positions: &Range<usize>,
        own: &RawKv<T>,
        value_is_key: bool,
    ) -> Result<bool, Error> {
        let here = self.positions.start.max(positions.start)..self.positions.end.min(positions.end);
        if self.wanted[layer] && !here.is_empty() {
            let part = |x| b.slice(x, 0, here.start - positions.start..here.end - positions.start);
            let k = part(&own.k)?;
            let v = if value_is_key { k.clone() } else { part(&own.v)? };
            self.layers[layer].push(RawKv { k, v });
        }
        Ok(self.wanted.iter().rposition(|wanted| *wanted) == Some(layer))
    }
}
