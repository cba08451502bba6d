//! The cached decode loops against each other, prefill in chunks, and K/V bytes: counted against formula.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
mod support;

use engine::candle::Candle;
use engine::decode::{Models, Settings};
use engine::drafter::Drafter;
use engine::f_theta::FTheta;
use engine::gemma::{Evicted, Gemma, KvLayer, Plan, Rows, Sequence, full_bytes, native_bytes};
use engine::restoration::Projection;
use engine::tokenizer::Tokenizer;
use niah::Rung;
use protocol::{
    Arm, Decode, DrafterEmbeddingScale, KvBytes, LayerGeometry, LayerKind, RestorationCounters, Restore,
    ValueRule,
};
use std::path::{Path, PathBuf};
use support::{Library, NEVER, difference, reference, settings};

/// Rounding of f32 logits, which lie within ±30, in two orders of summation.
const ROUNDING: f32 = 2e-4;

fn load<B: Library>(verifier: &Path, drafter: &Path, f_theta: &Path) -> Models<B> {
    let verifier = Gemma::load(B::open(), verifier).unwrap();
    let drafter = Drafter::load(verifier.backend(), drafter).unwrap();
    let f_theta = FTheta::load(verifier.backend(), f_theta).unwrap();
    let (embedding_scale, value_rule) = (DrafterEmbeddingScale::Hidden, ValueRule::Projected);
    Models { verifier, projection: Some(Projection { drafter, f_theta, embedding_scale, value_rule }) }
}

fn folder(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/demo-pack").join(part)
}

fn demo<B: Library>() -> Models<B> {
    load::<B>(&folder("verifier"), &folder("drafter"), &folder("f_theta"))
}

/// Ids of the first prompt of a rung.
fn prompt(rung: u32) -> Vec<u32> {
    let sample = Rung(rung).dataset(42, 1).samples().unwrap().next().unwrap();
    Tokenizer::load(&folder("verifier")).unwrap().encode_chat(&sample.prompt()).unwrap()
}

/// Every arm, one mixture among them.
fn arms() -> Vec<Arm> {
    Arm::ALL.into_iter().chain(["restored:mix:0.5".parse().unwrap()]).collect()
}

/// Logits of the first token and of each step after it, which all arms are fed the same tokens.
fn steps<B: Library>(models: &Models<B>, ids: &[u32], settings: &Settings<'_>, fed: &[u32]) -> Vec<Vec<f32>> {
    let (b, mut counters) = (models.verifier.backend(), models.counters());
    let (first, mut cache) = models.forward(ids, settings, Rows::Last, &mut counters, &NEVER).unwrap();
    let mut logits = vec![b.to_f32(&first).unwrap()];
    for token in fed {
        logits.push(b.to_f32(&models.step(*token, settings, &mut cache, &NEVER).unwrap()).unwrap());
    }
    logits
}

/// Holds bounded against incremental decoding, step by step, and both against a re-forward; gives the largest difference.
fn compare<B: Library>(
    models: &Models<B>,
    ids: &[u32],
    arm: Arm,
    sink: usize,
    window: usize,
    fed: &[u32],
) -> f32 {
    let mut settings = settings(arm, sink, window);
    let again = steps(models, ids, &settings, &[]);
    settings.decode = Decode::Incremental;
    let incremental = steps(models, ids, &settings, fed);
    settings.decode = Decode::Bounded;
    let bounded = steps(models, ids, &settings, fed);
    let case = format!("{arm}, {} positions, sink {sink}, window {window}", ids.len());
    for first in [&incremental[0], &bounded[0]] {
        assert!(difference(first, &again[0]) <= ROUNDING, "{case}: first token");
    }
    let mut worst = 0f32;
    for (step, (a, b)) in bounded.iter().zip(&incremental).enumerate() {
        let apart = difference(a, b);
        assert!(apart <= ROUNDING, "{case}: {apart} apart at step {step}");
        worst = worst.max(apart);
    }
    worst
}

fn bounded_decoding_equals_incremental_on_the_demo_pack<B: Library>() {
    let (models, ids) = (demo::<B>(), prompt(20));
    let fed: Vec<u32> = ids.iter().copied().skip(30).take(44).collect();
    for arm in arms() {
        println!("{arm}: {:.1e}", compare(&models, &ids, arm, 4, 64, &fed));
    }
}

fn bounded_decoding_equals_incremental_on_the_goldens_checkpoints<B: Library>() {
    let Some(root) = reference() else { return };
    let part = |name: &str| root.join("golden/checkpoints").join(name);
    let moe = load::<B>(&part("gemma4-moe-tiny-f32"), &part("dflash-tiny-f32"), &part("f_theta-moe-tiny"));
    let shared = Models {
        verifier: Gemma::load(B::open(), &part("gemma4-dense-kvshared-tiny")).unwrap(),
        projection: None,
    };
    let id = |i: usize| (9 + (i * i * 31 + i * 7) % 370) as u32;
    let fed: Vec<u32> = (500..548).map(id).collect();
    for (len, sink, window) in [(21, 4, 16), (64, 2, 40), (30, 6, 1), (200, 4, 64)] {
        let ids: Vec<u32> = (0..len).map(id).collect();
        for arm in arms() {
            compare(&moe, &ids, arm, sink, window, &fed);
            if !arm.needs_projection() {
                compare(&shared, &ids, arm, sink, window, &fed);
            }
        }
    }
}

/// Numbers below a bound that look random and are the same in every run (the constants are Knuth's MMIX generator).
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

fn bounded_decoding_equals_incremental_whatever_the_lengths_and_the_chunks<B: Library>() {
    let (models, mut draw, arms) = (demo::<B>(), Draw(42), arms());
    for _ in 0..3 {
        for arm in &arms {
            let (len, sink, window) = (1 + draw.below(220), draw.below(24), 1 + draw.below(160));
            let chunk = 16 + draw.below(240);
            let ids: Vec<u32> = (0..len).map(|_| 9 + draw.below(390) as u32).collect();
            let fed: Vec<u32> = (0..12).map(|_| 9 + draw.below(390) as u32).collect();
            compare(&models, &ids, *arm, sink, window, &fed);
            let whole = Settings { decode: Decode::Bounded, ..settings(*arm, sink, window) };
            let chunked = Settings { prefill_chunk: chunk, ..whole };
            let (whole, chunked) = (steps(&models, &ids, &whole, &fed), steps(&models, &ids, &chunked, &fed));
            for (a, b) in whole.iter().zip(&chunked) {
                let apart = difference(a, b);
                let case = format!("{arm}, {len} positions, sink {sink}, window {window}, chunk {chunk}");
                assert!(apart <= ROUNDING, "{case}: {apart} apart");
            }
        }
    }
}

fn chunks_change_neither_logits_nor_counters<B: Library>() {
    let (models, ids) = (demo::<B>(), prompt(20));
    let b = models.verifier.backend();
    let run = |arm, decode, chunk| {
        let settings = Settings { decode, prefill_chunk: chunk, ..settings(arm, 4, 64) };
        let mut counters = models.counters();
        let (logits, cache) = models.forward(&ids, &settings, Rows::Last, &mut counters, &NEVER).unwrap();
        (b.to_f32(&logits).unwrap(), cache.bytes(b), counted(&counters.restoration), counters.attention_mass)
    };
    for arm in arms() {
        for decode in [Decode::Incremental, Decode::Bounded] {
            let (logits, bytes, injected, mass) = run(arm, decode, usize::MAX);
            for chunk in [1000, 128, 61] {
                let case = format!("{arm} {decode:?} in chunks of {chunk}");
                let (ours, our_bytes, our_injected, our_mass) = run(arm, decode, chunk);
                assert!(difference(&ours, &logits) <= ROUNDING, "{case}: {}", difference(&ours, &logits));
                assert_eq!((our_bytes, our_injected), (bytes, injected.clone()), "{case}");
                assert!(our_mass.iter().zip(&mass).all(|(a, b)| (a - b).abs() < 1e-5), "{case}");
            }
        }
    }
}

/// Everything that is counted but the seconds.
fn counted(counters: &RestorationCounters) -> Vec<usize> {
    let mut all = vec![
        counters.passes,
        counters.evicted_positions,
        counters.drafter_positions,
        counters.projected_positions,
    ];
    for layer in &counters.layers {
        all.extend([
            layer.from_f_theta,
            layer.from_capture,
            layer.from_mix,
            layer.from_noise,
            layer.hidden,
            layer.bytes as usize,
        ]);
    }
    all
}

fn bytes_counted_are_bytes_forecast<B: Library>() {
    let (models, ids) = (demo::<B>(), prompt(20));
    let (b, rank) = (models.verifier.backend(), models.projection.as_ref().unwrap().f_theta.rank());
    for arm in arms() {
        for decode in [Decode::Incremental, Decode::Bounded] {
            let settings = Settings { decode, ..settings(arm, 4, 64) };
            let mut counters = models.counters();
            let (_, mut cache) = models.forward(&ids, &settings, Rows::Last, &mut counters, &NEVER).unwrap();
            for (generated, token) in ids.iter().take(80).enumerate() {
                assert_eq!(
                    cache.bytes(b),
                    cache.plan().bytes(generated, rank, 4),
                    "{arm} {decode:?} after {generated} tokens"
                );
                models.step(*token, &settings, &mut cache, &NEVER).unwrap();
            }
        }
    }
}

fn bounded_sliding_layers_take_the_same_room_at_every_length_and_less_than_the_native_window<B: Library>() {
    let models = demo::<B>();
    let answer = |rung: u32, arm, decode| {
        let ids = prompt(rung);
        let settings = Settings { decode, max_new_tokens: 9, prefill_chunk: 512, ..settings(arm, 4, 64) };
        let answer = models.generate(&ids, &settings, &NEVER, &mut |_, _| ()).unwrap();
        (ids.len(), answer)
    };
    let sliding = |bytes: KvBytes| bytes.sliding_resident + bytes.latent;
    let mut bounded = Vec::new();
    for rung in [20, 70, 280] {
        let (len, answer) = answer(rung, Arm::Restored(Restore::S5), Decode::Bounded);
        let (counted, native) = (answer.kv_bytes.unwrap(), answer.kv_native);
        println!("{len} positions: {counted:?}, native {native:?}, unbounded {:?}", answer.kv_full);
        assert_eq!(Some(counted), answer.kv_forecast);
        assert!(sliding(counted) < native.sliding_resident, "{counted:?} {native:?}");
        assert!(2 * counted.full_resident < native.full_resident * 11 / 10);
        bounded.push(sliding(counted));
    }
    assert!(bounded.iter().all(|bytes| *bytes == bounded[0]), "{bounded:?}");
    let (_, oracle) = answer(20, Arm::Oracle, Decode::Bounded);
    assert!(sliding(oracle.kv_bytes.unwrap()) > bounded[0]);
}

#[test]
fn the_forecast_for_the_26b_a4b_geometry() {
    let layer = |i: usize| {
        let full = i % 6 == 5;
        let geometry = if full {
            LayerGeometry { kind: LayerKind::Full, kv_heads: 2, head_dim: 512 }
        } else {
            LayerGeometry { kind: LayerKind::Sliding, kv_heads: 8, head_dim: 256 }
        };
        Some(KvLayer { geometry, value_is_key: full })
    };
    let layers: Vec<_> = (0..30).map(layer).collect();
    let forecast = |prompt: usize| {
        let sequence = Sequence { prompt, evicted: niah::evicted(prompt, 4, 64), native_window: 1024 };
        let s5 = |i| if i % 6 == 5 { Evicted::Resident } else { Evicted::Latent };
        Plan::bounded(&layers, &sequence, s5).bytes(0, 768, 2)
    };
    for prompt in [4096, 32_768, 131_072] {
        let (bounded, native) = (forecast(prompt), native_bytes(&layers, prompt, 1024, 2));
        // 25 layers × 68 positions × 2 · 8 · 256 numbers, and 959 positions × 2 · 768 numbers of latents; 2 bytes each.
        assert_eq!(bounded.sliding_resident, 25 * 68 * 4096 * 2);
        assert_eq!(bounded.latent, 959 * 2 * 768 * 2);
        assert_eq!(bounded.sliding_resident + bounded.latent, 16_872_448);
        assert_eq!(native.sliding_resident, 209_715_200);
        // The full-attention layers hold K = V once: half.
        assert_eq!(bounded.full_resident * 2, native.full_resident);
        assert_eq!(full_bytes(&layers, prompt, 2).sliding_resident, prompt as u64 * 25 * 4096 * 2);
    }
}

/// Prints milliseconds a token; run it alone. `cargo test -p engine --test bounded -- --ignored --nocapture measure`
#[test]
#[ignore = "measures"]
fn measure_decoding() {
    let models = demo::<Candle>();
    for rung in [20, 70, 280] {
        let ids = prompt(rung);
        for (arm, decode) in [
            (Arm::Oracle, Decode::Incremental),
            (Arm::Restored(Restore::S5), Decode::Incremental),
            (Arm::Restored(Restore::S5), Decode::Bounded),
            (Arm::Restored(Restore::FTheta), Decode::Bounded),
        ] {
            let settings = Settings { decode, prefill_chunk: 512, ..settings(arm, 4, 64) };
            let mut counters = models.counters();
            let (_, mut cache) = models.forward(&ids, &settings, Rows::Last, &mut counters, &NEVER).unwrap();
            let step = |token: &u32| {
                let start = std::time::Instant::now();
                models.step(*token, &settings, &mut cache, &NEVER).unwrap();
                start.elapsed().as_secs_f64() * 1e3
            };
            let mut times: Vec<f64> = ids[..64].iter().map(step).collect();
            times.sort_by(f64::total_cmp);
            println!(
                "{arm} {decode:?}, {} positions: {:.2} ms best, {:.2} ms median",
                ids.len(),
                times[0],
                times[32]
            );
        }
    }
}

/// Prints seconds and the process's peak, chunks in ascending order since a peak only rises; run it alone.
#[test]
#[ignore = "measures"]
fn measure_prefill() {
    let (models, ids) = (demo::<Candle>(), prompt(280));
    for chunk in [128, 256, 512, 1024, 2048, usize::MAX] {
        for arm in [Arm::Oracle, Arm::Restored(Restore::S5)] {
            let settings = Settings { decode: Decode::Bounded, prefill_chunk: chunk, ..settings(arm, 4, 64) };
            let run = |_| {
                let (start, mut counters) = (std::time::Instant::now(), models.counters());
                models.forward(&ids, &settings, Rows::Last, &mut counters, &NEVER).unwrap();
                start.elapsed().as_secs_f64()
            };
            let best = (0..3).map(run).fold(f64::INFINITY, f64::min);
            let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
            let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default().to_owned();
            println!("{arm}, {} positions in chunks of {chunk}: {best:.3} s best, {peak}", ids.len());
        }
    }
}

on_every_library!(
    bounded_decoding_equals_incremental_on_the_demo_pack,
    bounded_decoding_equals_incremental_on_the_goldens_checkpoints,
    bounded_decoding_equals_incremental_whatever_the_lengths_and_the_chunks,
    chunks_change_neither_logits_nor_counters,
    bytes_counted_are_bytes_forecast,
    bounded_sliding_layers_take_the_same_room_at_every_length_and_less_than_the_native_window,
);
