//! The engine on MLX beside Python's mlx-lm, for `cargo xtask bench mlx`:
//!
//! `mlx_speed GATE PACK VERIFIER stored|float32 SAMPLES PYTHON SCRIPT` asks the engine process of `GATE` and
//! `benches/mlx_niah.py` in turn, so that whatever else the machine is doing falls on both. VERIFIER stands in for the
//! pack's own.
#![expect(clippy::unwrap_used, reason = "a measurement that fails is none")]
#![expect(clippy::disallowed_methods, reason = "a pack for one measurement need not survive a power cut")]

mod processes;

use niah::{PromptVariant, Rung, Sample, Score};
use processes::{Engine, Process, SEED, trial};
use protocol::{Arm, Backend, Decode, Restore, Trial, TrialResult};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const RUNG: Rung = Rung(70);
/// Tokens of a decoding rate. They are forced, since answers of the demo pack are short.
const FORCED: usize = 96;
const ARMS: [Arm; 2] = [Arm::Oracle, Arm::Restored(Restore::S5)];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [gate, pack, verifier, precision, samples, python, script] = &words[..] else {
        panic!("mlx_speed GATE PACK VERIFIER stored|float32 SAMPLES PYTHON SCRIPT")
    };
    let (count, pack) = (samples.parse().unwrap(), Path::new(pack));
    let samples: Vec<Sample> = RUNG.dataset(SEED, count).samples().unwrap().collect();
    let with_verifier = with_verifier(pack, Path::new(verifier));
    let mut ours = Engine::start(&mut Command::new(gate));
    ours.load(with_verifier.path(), Backend::Mlx, &ARMS);
    let mut theirs = Process::start(Command::new(python).arg(script).arg(pack).args([verifier, precision]));
    rates(&mut ours, &mut theirs, &samples);
    for arm in ARMS {
        end_to_end(&mut ours, &mut theirs, arm, &samples);
    }
}

/// The pack with another verifier.
fn with_verifier(pack: &Path, verifier: &Path) -> tempfile::TempDir {
    let mut manifest: Value =
        serde_json::from_slice(&std::fs::read(pack.join("pack.json")).unwrap()).unwrap();
    for part in ["drafter", "f_theta"] {
        let path: PathBuf = pack.join(manifest[part].as_str().unwrap());
        manifest[part] = json!(std::path::absolute(path).unwrap());
    }
    manifest["verifier"] = json!(std::path::absolute(verifier).unwrap());
    manifest["sha256"] = json!({});
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pack.json"), manifest.to_string()).unwrap();
    folder
}

/// Tokens a second through prompt and answer, the oracle's.
fn rates(ours: &mut Engine, theirs: &mut Process, samples: &[Sample]) {
    let (mut prefill, mut decode) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    // The first sample pays for pages and caches.
    for (i, sample) in samples.iter().take(1).chain(samples).enumerate() {
        let mine = forced(ours, sample);
        let other = answer(theirs, Arm::Oracle, "forced", sample);
        assert_eq!(mine.prompt_tokens, other.prompt_tokens);
        if i > 0 {
            prefill[0].push(mine.prompt_tokens as f64 / mine.timings.prefill_s);
            prefill[1].push(other.prompt_tokens as f64 / other.prefill_s);
            decode[0].push((mine.tokens.len() - 1) as f64 / mine.timings.decode_s);
            decode[1].push((other.tokens - 1) as f64 / other.decode_s);
        }
    }
    print("prefill, tokens/s", prefill);
    print("decode, tokens/s", decode);
}

/// Seconds a sample: the engine's incremental loop, mlx-lm in the reference's re-forward loop.
fn end_to_end(ours: &mut Engine, theirs: &mut Process, arm: Arm, samples: &[Sample]) {
    let mut seconds = [Vec::new(), Vec::new()];
    for sample in samples {
        let mine = ours.ask(trial(arm, Decode::Incremental, sample, PromptVariant::Legacy));
        let other = answer(theirs, arm, "reforward", sample);
        assert!(Score::of(&mine.text, &sample.answer).strict, "{:?} is not {}", mine.text, sample.answer);
        assert!(Score::of(&other.text, &sample.answer).strict, "{:?} is not {}", other.text, sample.answer);
        seconds[0].push(mine.timings.e2e_s);
        seconds[1].push(other.seconds);
    }
    // A ratio of speeds is the inverse of one of times.
    let [mine, other] = seconds.map(median);
    println!(
        "{arm:<22} engine {mine:>8.3} s   mlx-lm re-forward {other:>8.3} s   {:.2}× as fast",
        other / mine
    );
}

fn print(what: &str, figures: [Vec<f64>; 2]) {
    let [mine, other] = figures.map(median);
    println!(
        "{what:<22} engine {mine:>8.1}     mlx-lm {other:>8.1}                {:.2}× as fast",
        mine / other
    );
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// At least [`FORCED`] steps, whatever is predicted.
fn forced(engine: &mut Engine, sample: &Sample) -> TrialResult {
    let answer = "the answer is not here ".repeat(FORCED);
    let plain = trial(Arm::Oracle, Decode::TeacherForced, sample, PromptVariant::Legacy);
    engine.ask(Trial { max_new_tokens: FORCED, answer: Some(answer), ..plain })
}

/// What `benches/mlx_niah.py` answers.
#[derive(Deserialize)]
struct Answer {
    seconds: f64,
    text: String,
    prompt_tokens: usize,
    prefill_s: f64,
    tokens: usize,
    decode_s: f64,
}

/// The other program's answer.
fn answer(other: &mut Process, arm: Arm, decode: &str, sample: &Sample) -> Answer {
    other.send(&json!({"arm": arm, "decode": decode, "prompt": sample.prompt(), "tokens": FORCED}));
    other.receive()
}
