//! Greedy decoding of one prompt by one arm.

use crate::Error;
use crate::backend::{Backend, Mask};
use crate::gemma::{self, Cache, Evicted, Fill, Gemma, Injection, Pass, Plan, Rows, Sequence};
use crate::noise::Noise;
use crate::restoration::{self, Counters, Projection};
use protocol::{Arm, Decode, KvBytes, RestorationCounters, Stage, StageTimings, Stop};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Verifier with what restored arms need.
pub struct Models<B: Backend> {
    /// The verifier.
    pub verifier: Gemma<B>,
    /// Drafter and f_θ, if the pack has them.
    pub projection: Option<Projection<B>>,
}

/// How one prompt is answered.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Arm.
    pub arm: Arm,
    /// Decode loop.
    pub decode: Decode,
    /// First positions that are never evicted.
    pub sink: usize,
    /// Last positions that are never evicted.
    pub window: usize,
    /// Most tokens to generate.
    pub max_new_tokens: usize,
    /// Positions of the prompt that go through the layers at a time.
    pub prefill_chunk: usize,
    /// Tokens that end the answer.
    pub stop_tokens: &'a [u32],
    /// Tokens that teacher-forced decoding feeds in place of those predicted; empty in the loops that generate.
    pub forced: &'a [u32],
    /// Noise of random arms.
    pub noise: Noise,
}

impl Settings<'_> {
    /// The mask that replaces the native ones of every layer.
    fn mask(&self) -> Option<Mask> {
        (self.arm == Arm::SinkWindow).then_some(Mask::SinkWindow { sink: self.sink, window: self.window })
    }

    /// Whether the answer ends after `tokens`. A forced one ends with what is fed, whatever was predicted.
    fn stop(&self, tokens: &[u32]) -> Option<Stop> {
        let ends = |token: &u32| self.forced.is_empty() && self.stop_tokens.contains(token);
        if tokens.last().is_some_and(ends) {
            Some(Stop::StopToken)
        } else if tokens.len() == self.budget() {
            Some(Stop::Budget)
        } else {
            None
        }
    }

    /// Most tokens of the answer: a forced one is over when all is fed.
    fn budget(&self) -> usize {
        if self.forced.is_empty() { self.max_new_tokens } else { self.max_new_tokens.min(self.forced.len()) }
    }
}

/// A generated answer. Only the caller knows when the texts were there: `timings.e2e_s` is left to it, and
/// `timings.first_token_s` counts from the ids of the prompt.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Generated ids, the stop token included.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub stop: Stop,
    /// Seconds of each stage.
    pub timings: StageTimings,
    /// Logits of the first token, over the whole vocabulary.
    pub first_logits: Vec<f32>,
    /// What happened to evicted positions.
    pub counters: Counters,
    /// Bytes of the K/V cache at the end, counted; none where none is kept from step to step.
    pub kv_bytes: Option<KvBytes>,
    /// The same by formula.
    pub kv_forecast: Option<KvBytes>,
    /// Bytes of an unbounded cache on every layer at the same length, by formula.
    pub kv_full: KvBytes,
    /// Bytes of the model's own cache at the same length, by formula.
    pub kv_native: KvBytes,
}

/// A token that is being computed from one that was not known yet: in vain if the answer ends with that one.
struct Ahead<B: Backend> {
    token: B::Ids,
    /// Bytes of the cache before it.
    kv_bytes: KvBytes,
}

/// Bytes of one number of the arithmetic (f32).
const COMPUTE_BYTES: usize = 4;

impl<B: Backend> Models<B> {
    /// Logits of one forward of `settings.arm` over all of `ids`, as the first step of decoding has them, and the cache
    /// from which decoding goes on.
    pub fn forward(
        &self,
        ids: &[u32],
        settings: &Settings<'_>,
        rows: Rows,
        counters: &mut Counters,
        cancel: &AtomicBool,
    ) -> Result<(B::Tensor, Cache<B::Tensor>), Error> {
        let evicted = niah::evicted(ids.len(), settings.sink, settings.window);
        let injection = match settings.arm.mode() {
            Some(_) if !evicted.is_empty() => {
                Some(restoration::build(self, settings, ids, evicted.clone(), counters, cancel)?)
            }
            _ => None,
        };
        let plan = self.plan(settings, ids.len(), evicted.clone(), injection.as_ref());
        let latents = injection.as_ref().and_then(|injection| injection.latents.clone());
        let mut cache = Cache::new(plan, latents.map(|latents| (evicted.clone(), latents)));
        let watched = if counters.attention_mass.is_empty() { evicted } else { 0..0 };
        let pass = Pass {
            mask: settings.mask(),
            injection: injection.as_ref(),
            witness: Some(counters),
            watched,
            decoder: Some(self),
            chunk: settings.prefill_chunk,
            ..Pass::plain(&mut cache, rows, cancel)
        };
        let logits = self.verifier.logits(ids, pass)?;
        Ok((logits, cache))
    }

    /// What a cache keeps for `settings`.
    fn plan(
        &self,
        settings: &Settings<'_>,
        prompt: usize,
        evicted: Range<usize>,
        injection: Option<&Injection<B::Tensor>>,
    ) -> Plan {
        let layers = self.verifier.kv_layers();
        let sequence = Sequence { prompt, evicted, native_window: self.verifier.window() };
        let fill = |i: usize| injection.and_then(|injection| injection.layers[i].as_ref());
        let kept = |i| fill(i).map_or(Evicted::Resident, Fill::kept);
        match (settings.arm, settings.decode) {
            (Arm::SinkWindow, _) => Plan::sink_window(&layers, &sequence, settings.sink, settings.window),
            (Arm::Oracle, _) | (_, Decode::Incremental | Decode::Reforward | Decode::TeacherForced) => {
                Plan::native(&layers, &sequence, kept)
            }
            (_, Decode::Bounded) => Plan::bounded(&layers, &sequence, kept),
        }
    }

    /// Counters for one prompt.
    pub fn counters(&self) -> Counters {
        let layers = self.verifier.geometry().len();
        Counters::new((0..layers).filter(|layer| self.verifier.projects(*layer).0))
    }

    /// Answers `prompt`; `progress` is told the stage and the number of tokens so far.
    pub fn generate(
        &self,
        prompt: &[u32],
        settings: &Settings<'_>,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Stage, usize),
    ) -> Result<Generation, Error> {
        check(prompt, settings)?;
        let backend = self.verifier.backend();
        let mut counters = self.counters();
        let mut ids = prompt.to_vec();
        let fills = settings.arm.mode().is_some();
        progress(if fills { Stage::Restoring } else { Stage::Prefill }, 0);
        let start = Instant::now();
        let (logits, cache) = self.forward(&ids, settings, Rows::Last, &mut counters, cancel)?;
        backend.evaluate(&[&logits])?;
        cache.evaluate(backend)?;
        let mut cache = (settings.decode != Decode::Reforward).then_some(cache);
        let first_s = start.elapsed().as_secs_f64();
        let prefill_s = first_s - built_s(&counters.restoration);
        let start = Instant::now();
        let first_logits = backend.to_f32(&logits)?;
        let mut token = backend.id(&backend.argmax_last(&logits)?)?;
        let first_token_s = first_s + start.elapsed().as_secs_f64();
        let mut tokens = Vec::new();
        let mut ahead: Option<Ahead<B>> = None;
        let stop = loop {
            tokens.push(token);
            progress(Stage::Decode, tokens.len());
            if let Some(stop) = settings.stop(&tokens) {
                break stop;
            }
            let fed = settings.forced.get(tokens.len() - 1).copied().unwrap_or(token);
            ids.push(fed);
            let next = match (ahead.take(), &mut cache) {
                (Some(ahead), _) => ahead.token,
                (None, Some(cache)) => backend.argmax_last(&self.step(fed, settings, cache, cancel)?)?,
                (None, None) => {
                    let (logits, _) = self.forward(&ids, settings, Rows::Last, &mut counters, cancel)?;
                    backend.argmax_last(&logits)?
                }
            };
            if let Some(cache) = cache.as_mut().filter(|_| B::LATE && tokens.len() + 1 < settings.budget()) {
                let fed = match settings.forced.get(tokens.len()) {
                    Some(fed) => self.verifier.known(&[*fed])?,
                    None => next.clone(),
                };
                ahead = Some(self.ahead(&fed, settings, cache, cancel)?);
            }
            token = backend.id(&next)?;
        };
        let build_restoration_s = fills.then(|| built_s(&counters.restoration));
        let decode_s = start.elapsed().as_secs_f64();
        if let Some(ahead) = &ahead {
            // Its time belongs to this answer, not to the next one.
            backend.id(&ahead.token)?;
        }
        let layers = self.verifier.kv_layers();
        let rank = self.projection.as_ref().map_or(0, |projection| projection.f_theta.rank());
        Ok(Generation {
            tokens,
            stop,
            timings: StageTimings { build_restoration_s, prefill_s, decode_s, first_token_s, e2e_s: 0.0 },
            first_logits,
            counters,
            kv_bytes: cache
                .as_ref()
                .map(|cache| ahead.map_or_else(|| cache.bytes(backend), |ahead| ahead.kv_bytes)),
            kv_forecast: cache.map(|cache| cache.plan().bytes(ids.len() - prompt.len(), rank, COMPUTE_BYTES)),
            kv_full: gemma::full_bytes(&layers, ids.len(), COMPUTE_BYTES),
            kv_native: gemma::native_bytes(&layers, ids.len(), self.verifier.window(), COMPUTE_BYTES),
        })
    }

    /// Logits after one more position over the cache of [`Self::forward`]. What was restored is in it; nothing is evicted
    /// any more.
    pub fn step(
        &self,
        token: u32,
        settings: &Settings<'_>,
        cache: &mut Cache<B::Tensor>,
        cancel: &AtomicBool,
    ) -> Result<B::Tensor, Error> {
        self.follow(&self.verifier.known(&[token])?, settings, cache, cancel)
    }

    /// [`Self::step`] for a token that may not be known yet.
    fn follow(
        &self,
        token: &B::Ids,
        settings: &Settings<'_>,
        cache: &mut Cache<B::Tensor>,
        cancel: &AtomicBool,
    ) -> Result<B::Tensor, Error> {
        let pass =
            Pass { mask: settings.mask(), decoder: Some(self), ..Pass::plain(cache, Rows::Last, cancel) };
        self.verifier.next_logits(token, pass)
    }

    /// Begins the token after `token`, so that the library has work while that is waited for.
    fn ahead(
        &self,
        token: &B::Ids,
        settings: &Settings<'_>,
        cache: &mut Cache<B::Tensor>,
        cancel: &AtomicBool,
    ) -> Result<Ahead<B>, Error> {
        let backend = self.verifier.backend();
        let kv_bytes = cache.bytes(backend);
        let logits = self.follow(token, settings, cache, cancel)?;
        Ok(Ahead { token: backend.argmax_last(&logits)?, kv_bytes })
    }
}

fn built_s(counters: &RestorationCounters) -> f64 {
    counters.drafter_s + counters.projection_s + counters.capture_s
}

fn check(prompt: &[u32], settings: &Settings<'_>) -> Result<(), Error> {
    let wrong = |reason: &str| Err(Error::Trial(reason.into()));
    if prompt.is_empty() {
        return wrong("the prompt has no tokens");
    }
    if settings.max_new_tokens == 0 {
        return wrong("max_new_tokens is 0; at least one token must be generated");
    }
    if (settings.decode == Decode::TeacherForced) == settings.forced.is_empty() {
        return wrong("teacher-forced decoding, and no other, must be given the answer that it feeds");
    }
    if settings.arm == Arm::SinkWindow && settings.sink == 0 && settings.window == 0 {
        return wrong(
            "sink and window are both 0, so the sink-window arm would see nothing; make one positive",
        );
    }
    Ok(())
}
