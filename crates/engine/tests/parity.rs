//! candle and MLX on the same checkpoints: every arm, every cached loop, step by step, and what they say.

#![cfg(any(feature = "mlx", target_os = "macos"))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use engine::candle::Candle;
use engine::decode::{Models, Settings};
use engine::drafter::Drafter;
use engine::f_theta::FTheta;
use engine::gemma::{Gemma, Rows};
use engine::mlx::Mlx;
use engine::pack::Engine;
use engine::restoration::Projection;
use engine::tokenizer::Tokenizer;
use niah::{PromptVariant, Rung, Sample};
use protocol::{Arm, Decode, DrafterEmbeddingScale, Restore, RunSpec, Trial, ValueRule};
use std::path::{Path, PathBuf};
use support::{Library, NEVER, TURN, difference, reference, settings};

/// Tolerance on logits of quantised checkpoints, which lie within ±30. Source: the goldens' manifest, class q4_f32.
const ROUNDING: f32 = 2e-3;
/// Nearest rival of a greedy token that still counts as a decision. Source: the goldens' manifest.
const DECISIVE: f32 = 5e-3;
const STEPS: usize = 12;

/// A verifier with what restored arms need.
struct Parts {
    verifier: PathBuf,
    projection: Option<(PathBuf, PathBuf)>,
}

impl Parts {
    fn load<B: Library>(&self, embedding_scale: DrafterEmbeddingScale, value_rule: ValueRule) -> Models<B> {
        let verifier = Gemma::load(B::open(), &self.verifier).unwrap();
        let projection = self.projection.as_ref().map(|(drafter, f_theta)| {
            let drafter = Drafter::load(verifier.backend(), drafter).unwrap();
            let f_theta = FTheta::load(verifier.backend(), f_theta).unwrap();
            Projection { drafter, f_theta, embedding_scale, value_rule }
        });
        Models { verifier, projection }
    }
}

fn arms(projected: bool) -> impl Iterator<Item = Arm> {
    let all = Arm::ALL.into_iter().chain(["restored:mix:0.5".parse().unwrap()]);
    all.filter(move |arm| projected || !arm.needs_projection())
}

/// Logits of the first token and after each of `fed`.
fn steps<B: Library>(models: &Models<B>, ids: &[u32], settings: &Settings<'_>, fed: &[u32]) -> Vec<Vec<f32>> {
    let (b, mut counters) = (models.verifier.backend(), models.counters());
    let (first, mut cache) = models.forward(ids, settings, Rows::Last, &mut counters, &NEVER).unwrap();
    let mut logits = vec![b.to_f32(&first).unwrap()];
    for token in fed {
        logits.push(b.to_f32(&models.step(*token, settings, &mut cache, &NEVER).unwrap()).unwrap());
    }
    logits
}

/// The best token, and how far the next best is behind.
fn decision(logits: &[f32]) -> (usize, f32) {
    let best = (0..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best });
    let rival = logits.iter().enumerate().filter(|(i, _)| *i != best).map(|(_, x)| *x);
    (best, logits[best] - rival.fold(f32::NEG_INFINITY, f32::max))
}

/// Holds both libraries together on the tokens that candle generates. Gives the largest difference.
fn compare(candle: &Models<Candle>, mlx: &Models<Mlx>, ids: &[u32], settings: &Settings<'_>) -> f32 {
    let greedy = Settings { max_new_tokens: STEPS, ..*settings };
    let fed = candle.generate(ids, &greedy, &NEVER, &mut |_, _| ()).unwrap().tokens;
    let (theirs, ours) = (steps(candle, ids, settings, &fed), steps(mlx, ids, settings, &fed));
    let case = format!("{} {:?}, {} positions", settings.arm, settings.decode, ids.len());
    let mut worst = 0f32;
    for (step, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        let apart = difference(a, b);
        assert!(apart <= ROUNDING, "{case}: {apart} apart at step {step}");
        let ((our_best, _), (their_best, margin)) = (decision(a), decision(b));
        assert!(our_best == their_best || margin < DECISIVE, "{case}: another token at step {step}");
        worst = worst.max(apart);
    }
    worst
}

fn every_arm_is_the_same(name: &str, parts: &Parts, ids: &[u32]) {
    let _turn = TURN.lock();
    for (scale, rule) in [
        (DrafterEmbeddingScale::Hidden, ValueRule::Projected),
        (DrafterEmbeddingScale::One, ValueRule::InjectedKey),
    ] {
        let (candle, mlx) = (parts.load::<Candle>(scale, rule), parts.load::<Mlx>(scale, rule));
        for arm in arms(parts.projection.is_some()) {
            for decode in [Decode::Incremental, Decode::Bounded] {
                let settings = Settings { decode, prefill_chunk: 96, ..settings(arm, 4, 64) };
                println!("{name} {rule:?} {arm} {decode:?}: {:.1e}", compare(&candle, &mlx, ids, &settings));
            }
        }
        if parts.projection.is_none() {
            break;
        }
    }
}

/// Ids that look random and are the same in every run.
fn ids(len: usize) -> Vec<u32> {
    (0..len).map(|i| (9 + (i * i * 31 + i * 7) % 370) as u32).collect()
}

fn checkpoint(verifier: &str, f_theta: Option<&str>) -> Option<(String, Parts)> {
    let folder = reference()?.join("golden/checkpoints");
    let projection = f_theta.map(|f_theta| (folder.join("dflash-tiny-f32"), folder.join(f_theta)));
    Some((verifier.to_owned(), Parts { verifier: folder.join(verifier), projection }))
}

/// A test for each tiny checkpoint: they run side by side.
macro_rules! every_arm_is_the_same_on {
    ($($test:ident: $verifier:literal, $f_theta:expr;)*) => {
        $(#[test]
        fn $test() {
            let Some((name, parts)) = checkpoint($verifier, $f_theta) else { return };
            every_arm_is_the_same(&name, &parts, &ids(200));
        })*
    };
}

every_arm_is_the_same_on! {
    every_arm_is_the_same_in_f32: "gemma4-moe-tiny-f32", Some("f_theta-moe-tiny");
    every_arm_is_the_same_in_bf16: "gemma4-moe-tiny-bf16", Some("f_theta-moe-tiny");
    every_arm_is_the_same_in_4_bits: "gemma4-moe-tiny-mlx-4bit-gs32-f32", Some("f_theta-moe-tiny");
    every_arm_is_the_same_in_4_bits_of_bf16: "gemma4-moe-tiny-mlx-4bit-gs32-bf16", Some("f_theta-moe-tiny");
    every_arm_is_the_same_with_shared_kv: "gemma4-dense-kvshared-tiny", Some("f_theta-kvshared-tiny");
    every_arm_is_the_same_on_gemma_3: "gemma3-tiny", None;
}

fn demo_pack() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/demo-pack")
}

/// The demo pack with its own verifier or another one.
fn demo(verifier: Option<PathBuf>) -> Parts {
    let part = |name| demo_pack().join(name);
    let verifier = verifier.unwrap_or_else(|| part("verifier"));
    Parts { verifier, projection: Some((part("drafter"), part("f_theta"))) }
}

fn samples(rung: u32, count: usize) -> Vec<Sample> {
    Rung(rung).dataset(42, count).samples().unwrap().collect()
}

fn prompt(rung: u32) -> Vec<u32> {
    let tokenizer = Tokenizer::load(&demo_pack().join("verifier")).unwrap();
    tokenizer.encode_chat(&samples(rung, 1)[0].prompt()).unwrap()
}

#[test]
fn every_arm_is_the_same_on_the_demo_pack() {
    every_arm_is_the_same("demo pack", &demo(None), &prompt(20));
}

#[test]
fn every_arm_is_the_same_on_the_demo_pack_in_4_bits() {
    let Some(root) = reference() else { return };
    let parts = demo(Some(root.join("demo-pack-checks/verifier-mlx-4bit")));
    every_arm_is_the_same("demo pack in 4 bits", &parts, &prompt(20));
}

#[test]
fn both_say_the_same_on_the_demo_pack() {
    fn said<B: Library>(rung: u32, count: usize) -> Vec<String> {
        let mut engine = Engine::load(B::open(), &demo_pack(), &Arm::ALL).unwrap();
        let mut answers = Vec::new();
        for (sample, of) in samples(rung, count).iter().enumerate() {
            for (arm, decode) in [
                (Arm::Oracle, Decode::Incremental),
                (Arm::SinkWindow, Decode::Incremental),
                (Arm::Restored(Restore::S5), Decode::Incremental),
                (Arm::Restored(Restore::S5), Decode::Bounded),
                (Arm::Restored(Restore::FTheta), Decode::Bounded),
            ] {
                let trial = Trial {
                    id: arm.to_string(),
                    arm,
                    prompt: of.prompt(),
                    variant: PromptVariant::Legacy,
                    decode,
                    sink: 4,
                    window: 64,
                    max_new_tokens: 24,
                    prefill_chunk: RunSpec::PREFILL_CHUNK,
                    seed: 42,
                    sample,
                    fidelity: true,
                    answer: None,
                };
                let result = engine.answer(&trial, &NEVER, &mut |_, _| ()).unwrap();
                // Of a step that is begun before an answer ends nothing is counted.
                let (tokens, held) = (result.tokens, result.memory.kv_counted);
                answers.push(format!("{arm}: {} {tokens:?} {:?} {held:?}", result.text, result.stop));
            }
        }
        answers
    }
    let _turn = TURN.lock();
    for (rung, count) in [(20, 6), (70, 3)] {
        assert_eq!(said::<Mlx>(rung, count), said::<Candle>(rung, count), "rung {rung}");
    }
}
