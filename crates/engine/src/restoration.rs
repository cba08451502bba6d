//! Making what a restored arm, or the control in its place, puts at evicted positions.

use crate::Error;
use crate::backend::Backend;
use crate::decode::{Models, Settings};
use crate::drafter::{Drafter, DrafterKv};
use crate::f_theta::FTheta;
use crate::gemma::{Decoder, Fill, Gemma, Injection, Latents, RawKv, Source, Witness};
use crate::noise::Noise;
use protocol::{
    Arm, DrafterEmbeddingScale, LayerCounter, LayerError, LayerGeometry, LayerKind, RestorationCounters,
    Restore, ValueRule,
};
use safetensors::Dtype;
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

    /// f_θ's latents of the positions of `drafted`.
    pub fn encode(
        &self,
        verifier: &Gemma<B>,
        drafted: &DrafterKv<B::Tensor>,
    ) -> Result<Latents<B::Tensor>, Error> {
        self.f_theta.encode(verifier.backend(), drafted)
    }

    /// f_θ's K/V of `layer` at the positions of `latents`.
    pub fn decode(
        &self,
        verifier: &Gemma<B>,
        layer: usize,
        latents: &Latents<B::Tensor>,
    ) -> Result<RawKv<B::Tensor>, Error> {
        let kv = self.f_theta.decode(verifier.backend(), layer, latents)?;
        Ok(if self.v_is_k(verifier, layer) { RawKv { v: kv.k.clone(), k: kv.k } } else { kv })
    }

    /// Whether the injected K of `layer` serves as its V too.
    fn v_is_k(&self, verifier: &Gemma<B>, layer: usize) -> bool {
        self.value_rule == ValueRule::InjectedKey && verifier.projects(layer) == (true, false)
    }
}

/// What happens to evicted positions, counted where it happens.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Work and injections, summed over passes.
    pub restoration: RestorationCounters,
    /// Attention that the first pass's last query pays to the evicted positions, layer by layer.
    pub attention_mass: Vec<f64>,
    /// Error of f_θ in the first pass, where the true K/V were captured beside its own.
    pub projection_error: Vec<LayerError>,
}

impl Counters {
    /// Nothing yet, for a verifier whose layers with K/V of their own are `layers`.
    pub fn new(layers: impl Iterator<Item = usize>) -> Self {
        let restoration = RestorationCounters {
            passes: 0,
            evicted_positions: 0,
            drafter_positions: 0,
            projected_positions: 0,
            layers: layers.map(|layer| LayerCounter { layer, ..LayerCounter::default() }).collect(),
            drafter_s: 0.0,
            projection_s: 0.0,
            capture_s: 0.0,
        };
        Self { restoration, attention_mass: Vec::new(), projection_error: Vec::new() }
    }

    fn layer(&mut self, layer: usize) -> Option<&mut LayerCounter> {
        self.restoration.layers.iter_mut().find(|counter| counter.layer == layer)
    }
}

impl<B: Backend> Decoder<B::Tensor> for Models<B> {
    fn decode(&self, layer: usize, latents: &Latents<B::Tensor>) -> Result<RawKv<B::Tensor>, Error> {
        let projection = self.projection.as_ref();
        let projection = projection.ok_or_else(|| Error::Tensor("latents without f_θ".into()))?;
        projection.decode(&self.verifier, layer, latents)
    }
}

impl Witness for Counters {
    fn injected(&mut self, layer: usize, source: Source, positions: usize, bytes: u64, seconds: f64) {
        if source == Source::FTheta {
            self.restoration.projected_positions += positions;
            self.restoration.projection_s += seconds;
        }
        let Some(counter) = self.layer(layer) else { return };
        *match source {
            Source::FTheta => &mut counter.from_f_theta,
            Source::Capture => &mut counter.from_capture,
            Source::Mix => &mut counter.from_mix,
            Source::Noise => &mut counter.from_noise,
        } += positions;
        counter.bytes += bytes;
        counter.seconds += seconds;
    }

    fn hidden(&mut self, layer: usize, positions: usize) {
        if let Some(counter) = self.layer(layer) {
            counter.hidden += positions;
        }
    }

    fn attended(&mut self, _layer: usize, mass: f64) {
        self.attention_mass.push(mass);
    }
}

/// What an arm does with the evicted positions of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Plan {
    Capture,
    Project,
    /// The weight of the captured part.
    Mix(f32),
    Noise,
    Hide,
}

impl Plan {
    /// None for arms that leave evicted positions alone.
    fn of(arm: Arm, kind: LayerKind) -> Option<Self> {
        let exact = match arm.mode()? {
            Restore::Identity | Restore::SameCheckpoint => true,
            Restore::S5 => kind == LayerKind::Full,
            Restore::FTheta | Restore::Mix(_) => false,
        };
        Some(match arm {
            _ if exact => Self::Capture,
            Arm::NoRestoration(_) => Self::Hide,
            Arm::Random(_) => Self::Noise,
            Arm::Restored(Restore::Mix(alpha)) => Self::Mix(alpha.weight() as f32),
            _ => Self::Project,
        })
    }
}

/// Builds what a forward of `arm` over `ids` puts at the `evicted` positions, and adds the work to `counters`.
pub fn build<B: Backend>(
    models: &Models<B>,
    settings: &Settings<'_>,
    ids: &[u32],
    evicted: Range<usize>,
    counters: &mut Counters,
    cancel: &AtomicBool,
) -> Result<Injection<B::Tensor>, Error> {
    let (verifier, arm) = (&models.verifier, settings.arm);
    let geometry = verifier.geometry();
    let own = |(i, layer): (usize, &LayerGeometry)| {
        verifier.projects(i).0.then(|| Plan::of(arm, layer.kind)).flatten()
    };
    let plans: Vec<Option<Plan>> = geometry.iter().enumerate().map(own).collect();
    let wanted =
        |wants: fn(Plan) -> bool| plans.iter().map(|plan| plan.is_some_and(wants)).collect::<Vec<_>>();
    let to_capture = wanted(|plan| matches!(plan, Plan::Capture | Plan::Mix(_)));
    let to_project = wanted(|plan| matches!(plan, Plan::Project | Plan::Mix(_) | Plan::Noise));
    counters.restoration.passes += 1;
    counters.restoration.evicted_positions += evicted.len();
    let captured = capture(verifier, settings, ids, to_capture, evicted.clone(), counters, cancel)?;
    let latents = match to_project.contains(&true) {
        true => Some(encode(models, arm, ids, evicted.clone(), counters, cancel)?),
        false => None,
    };
    let start = Instant::now();
    let layers = plans.into_iter().zip(captured).enumerate();
    let layers = layers.map(|(i, (plan, captured))| {
        fill(models, settings.noise, i, plan, captured, latents.as_ref(), counters)
    });
    let layers = layers.collect::<Result<_, _>>()?;
    counters.restoration.projection_s += start.elapsed().as_secs_f64();
    Ok(Injection { positions: evicted, layers, latents })
}

/// The verifier's own K/V; those of its layers that are `wanted`.
fn capture<B: Backend>(
    verifier: &Gemma<B>,
    settings: &Settings<'_>,
    ids: &[u32],
    wanted: Vec<bool>,
    evicted: Range<usize>,
    counters: &mut Counters,
    cancel: &AtomicBool,
) -> Result<Vec<Option<RawKv<B::Tensor>>>, Error> {
    if !wanted.contains(&true) {
        return Ok(wanted.iter().map(|_| None).collect());
    }
    let start = Instant::now();
    let layers = verifier.capture(ids, wanted, evicted, settings.prefill_chunk, cancel)?;
    verifier
        .backend()
        .evaluate(&layers.iter().flatten().flat_map(|kv| [&kv.k, &kv.v]).collect::<Vec<_>>())?;
    let (seconds, counters) = (start.elapsed().as_secs_f64(), &mut counters.restoration);
    if settings.arm.mode() == Some(Restore::SameCheckpoint) {
        counters.drafter_positions += ids.len();
        counters.drafter_s += seconds;
    } else {
        counters.capture_s += seconds;
    }
    Ok(layers)
}

/// f_θ's latents of the evicted positions.
fn encode<B: Backend>(
    models: &Models<B>,
    arm: Arm,
    ids: &[u32],
    evicted: Range<usize>,
    counters: &mut Counters,
    cancel: &AtomicBool,
) -> Result<Latents<B::Tensor>, Error> {
    let projection = models.projection.as_ref().ok_or(Error::MissingPart { arm, part: "f_theta" })?;
    let (b, counters, start) = (models.verifier.backend(), &mut counters.restoration, Instant::now());
    let drafted = projection.draft(&models.verifier, ids, cancel)?;
    let part = |x| b.slice(x, 0, evicted.clone());
    let drafted = DrafterKv { k: part(&drafted.k)?, v: part(&drafted.v)? };
    b.evaluate(&[&drafted.k, &drafted.v])?;
    counters.drafter_s += start.elapsed().as_secs_f64();
    counters.drafter_positions += ids.len();
    let start = Instant::now();
    let latents = projection.encode(&models.verifier, &drafted)?;
    b.evaluate(&[&latents.k, &latents.v])?;
    counters.projection_s += start.elapsed().as_secs_f64();
    Ok(latents)
}

/// What one layer gets, from what was made for it.
fn fill<B: Backend>(
    models: &Models<B>,
    noise: Noise,
    layer: usize,
    plan: Option<Plan>,
    captured: Option<RawKv<B::Tensor>>,
    latents: Option<&Latents<B::Tensor>>,
    counters: &mut Counters,
) -> Result<Option<Fill<B::Tensor>>, Error> {
    let b = models.verifier.backend();
    let rows = |source, kv| Ok(Some(Fill::Rows(source, kv)));
    match (plan, captured, latents) {
        (Some(Plan::Hide), _, _) => Ok(Some(Fill::Hidden)),
        (Some(Plan::Capture), Some(captured), _) => rows(Source::Capture, captured),
        (Some(Plan::Project), _, Some(_)) => Ok(Some(Fill::Latent)),
        (Some(Plan::Noise), _, Some(latents)) => {
            let projected = models.decode(layer, latents)?;
            counters.restoration.projected_positions += b.shape(&latents.k)[0];
            let like = |x: &B::Tensor, side: u32| {
                let bytes: Vec<u8> = noise
                    .like(&b.to_f32(x)?, 2 * layer as u32 + side)
                    .into_iter()
                    .flat_map(f32::to_le_bytes)
                    .collect();
                b.tensor(Dtype::F32, &b.shape(x), &bytes)
            };
            // Where V is the injected K, it stays so: the same stream over the same numbers.
            let v_is_k = models.projection.as_ref().is_some_and(|p| p.v_is_k(&models.verifier, layer));
            let side = u32::from(!v_is_k);
            rows(Source::Noise, RawKv { k: like(&projected.k, 0)?, v: like(&projected.v, side)? })
        }
        (Some(Plan::Mix(alpha)), Some(captured), Some(latents)) => {
            let projected = models.decode(layer, latents)?;
            counters.restoration.projected_positions += b.shape(&latents.k)[0];
            if counters.restoration.passes == 1 {
                counters.projection_error.push(error(b, layer, &captured, &projected)?);
            }
            let mix =
                |captured, projected| b.add(&b.scale(captured, alpha)?, &b.scale(projected, 1.0 - alpha)?);
            let (k, v) = (mix(&captured.k, &projected.k)?, mix(&captured.v, &projected.v)?);
            b.evaluate(&[&k, &v])?;
            rows(Source::Mix, RawKv { k, v })
        }
        _ => Ok(None),
    }
}

/// Squared error of the projected K/V of one layer.
fn error<B: Backend>(
    b: &B,
    layer: usize,
    captured: &RawKv<B::Tensor>,
    projected: &RawKv<B::Tensor>,
) -> Result<LayerError, Error> {
    let mut sums = LayerError { layer, squared_error: 0.0, squared_norm: 0.0 };
    for (captured, projected) in [(&captured.k, &projected.k), (&captured.v, &projected.v)] {
        for (captured, projected) in b.to_f32(captured)?.iter().zip(b.to_f32(projected)?) {
            sums.squared_error += (f64::from(projected) - f64::from(*captured)).powi(2);
            sums.squared_norm += f64::from(*captured).powi(2);
        }
    }
    Ok(sums)
}
