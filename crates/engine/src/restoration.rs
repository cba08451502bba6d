//! Making the K/V that a restored arm injects at evicted positions.

use crate::Error;
use crate::backend::Backend;
use crate::drafter::{Drafter, DrafterKv};
use crate::f_theta::FTheta;
use crate::gemma::{Gemma, Injection, RawKv, Source, Witness};
use protocol::{DrafterEmbeddingScale, LayerCounter, LayerKind, RestorationCounters, Restore, ValueRule};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Drafter and f_θ with the conventions that they were trained with.
pub struct Projection<B: Backend> {
    /// The drafter.
    pub drafter: Drafter<B>,
    /// f_θ.
    pub f_theta: FTheta<B>,
    /// Factor on the embeddings that feed the drafter.
    pub embedding_scale: DrafterEmbeddingScale,
    /// V on layers without a V projection.
    pub value_rule: ValueRule,
}

impl<B: Backend> Projection<B> {
    /// The drafter's K/V at every position of `ids`.
    pub fn draft(
        &self,
        verifier: &Gemma<B>,
        ids: &[u32],
        cancel: &AtomicBool,
    ) -> Result<DrafterKv<B::Tensor>, Error> {
        let hidden = verifier.hidden() as f32;
        let scale = match self.embedding_scale {
            DrafterEmbeddingScale::Hidden => hidden,
            DrafterEmbeddingScale::SqrtHidden => hidden.sqrt(),
            DrafterEmbeddingScale::One => 1.0,
        };
        self.drafter.capture(verifier.backend(), verifier.embed(ids, scale)?, cancel)
    }

    /// f_θ's K/V of the `wanted` layers for the positions of `drafted`.
    pub fn project(
        &self,
        verifier: &Gemma<B>,
        drafted: &DrafterKv<B::Tensor>,
        wanted: &[bool],
    ) -> Result<Vec<Option<RawKv<B::Tensor>>>, Error> {
        let mut layers = self.f_theta.project(verifier.backend(), drafted, wanted)?;
        if self.value_rule == ValueRule::InjectedKey {
            let no_v = |(i, _): &(usize, _)| verifier.projects(*i) == (true, false);
            for (_, layer) in layers.iter_mut().enumerate().filter(no_v) {
                *layer = layer.take().map(|kv| RawKv { v: kv.k.clone(), k: kv.k });
            }
        }
        Ok(layers)
    }
}

/// Counts injections where they happen.
#[derive(Clone, Debug)]
pub struct Counters(pub RestorationCounters);

impl Counters {
    /// Nothing yet, for a verifier whose layers with K/V of their own are `layers`.
    pub fn new(layers: impl Iterator<Item = usize>) -> Self {
        Self(RestorationCounters {
            passes: 0,
            evicted_positions: 0,
            drafter_positions: 0,
            projected_positions: 0,
            layers: layers.map(|layer| LayerCounter { layer, from_f_theta: 0, from_capture: 0 }).collect(),
            drafter_s: 0.0,
            projection_s: 0.0,
            capture_s: 0.0,
            injected_bytes: 0,
        })
    }
}

impl Witness for Counters {
    fn injected(&mut self, layer: usize, source: Source, positions: usize, bytes: u64) {
        if let Some(counter) = self.0.layers.iter_mut().find(|counter| counter.layer == layer) {
            match source {
                Source::FTheta => counter.from_f_theta += positions,
                Source::Capture => counter.from_capture += positions,
            }
        }
        self.0.injected_bytes += bytes;
    }
}

/// Builds what a restored forward over `ids` injects at `evicted`, and adds the work to `counters`.
pub fn build<B: Backend>(
    verifier: &Gemma<B>,
    projection: Option<&Projection<B>>,
    restore: Restore,
    ids: &[u32],
    evicted: Range<usize>,
    counters: &mut RestorationCounters,
    cancel: &AtomicBool,
) -> Result<Injection<B::Tensor>, Error> {
    let captured = exact_layers(verifier, restore);
    let owned = (0..captured.len()).map(|i| verifier.projects(i).0);
    let projected: Vec<bool> = owned.zip(&captured).map(|(owned, captured)| owned && !captured).collect();
    let mut layers: Vec<Option<(Source, RawKv<B::Tensor>)>> = captured.iter().map(|_| None).collect();
    counters.evicted_positions += evicted.len();
    if captured.contains(&true) {
        let start = Instant::now();
        let banks = verifier.capture(ids, captured, evicted.clone(), cancel)?;
        fill(&mut layers, Source::Capture, banks);
        counters.capture_s += start.elapsed().as_secs_f64();
    }
    if projected.contains(&true) {
        let projection = projection
            .ok_or(Error::MissingPart { arm: protocol::Arm::Restored(restore), part: "f_theta" })?;
        let (b, start) = (verifier.backend(), Instant::now());
        let drafted = projection.draft(verifier, ids, cancel)?;
        let part = |x| b.slice(x, 0, evicted.clone());
        let drafted = DrafterKv { k: part(&drafted.k)?, v: part(&drafted.v)? };
        counters.drafter_s += start.elapsed().as_secs_f64();
        counters.drafter_positions += ids.len();
        let start = Instant::now();
        fill(&mut layers, Source::FTheta, projection.project(verifier, &drafted, &projected)?);
        counters.projection_s += start.elapsed().as_secs_f64();
        counters.projected_positions += evicted.len() * projected.iter().filter(|wanted| **wanted).count();
    }
    Ok(Injection { positions: evicted, layers })
}

/// Layers whose own K/V of a clean forward are injected.
fn exact_layers<B: Backend>(verifier: &Gemma<B>, restore: Restore) -> Vec<bool> {
    let exact = |(i, kind)| {
        verifier.projects(i).0
            && match restore {
                Restore::Identity => true,
                Restore::S5 => kind == LayerKind::Full,
                Restore::FTheta => false,
            }
    };
    verifier.geometry().iter().map(|layer| layer.kind).enumerate().map(exact).collect()
}

fn fill<T>(layers: &mut [Option<(Source, RawKv<T>)>], source: Source, banks: Vec<Option<RawKv<T>>>) {
    for (layer, bank) in layers.iter_mut().zip(banks) {
        if let Some(bank) = bank {
            *layer = Some((source, bank));
        }
    }
}
