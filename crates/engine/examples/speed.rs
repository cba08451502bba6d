//! Seconds a sample on a pack, for `cargo xtask bench engine`:
//!
//! `speed GATE PACK SAMPLES THREADS [PROGRAM WORDS…]` asks the engine process of `GATE` and, if given, a program that
//! answers as `benches/pytorch_niah.py` does, in turn, so that whatever else the machine is doing falls on both.
#![expect(clippy::unwrap_used, reason = "a measurement that fails is none")]

mod processes;

use niah::{PromptVariant, Rung, Sample, Score};
use processes::{Engine, Process, SEED, trial};
use protocol::{Arm, Backend, Decode, Event, Restore, Stage};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const RUNG: Rung = Rung(70);
const ARMS: [Arm; 2] = [Arm::Oracle, Arm::Restored(Restore::S5)];
/// How often a process is started for the time to its first token.
const STARTS: usize = 7;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [gate, pack, samples, threads, other @ ..] = &words[..] else {
        panic!("speed GATE PACK SAMPLES THREADS [PROGRAM WORDS…]")
    };
    let (gate, pack) = (Path::new(gate), Path::new(pack));
    let samples: Vec<Sample> = RUNG.dataset(SEED, samples.parse().unwrap()).samples().unwrap().collect();
    for arm in ARMS {
        let starts = (0..STARTS).map(|_| first_token(gate, pack, threads, arm, &samples[0]));
        println!("{}", Spread::of(starts.collect()).line("process start to first token", arm, ""));
    }
    let mut ours = Engine::start(Command::new(gate).env("RAYON_NUM_THREADS", threads));
    ours.load(pack, Backend::Candle, &ARMS);
    let mut theirs = match other {
        [] => None,
        [program, words @ ..] => Some(Process::start(Command::new(program).args(words))),
    };
    for arm in ARMS {
        compare(&mut ours, theirs.as_mut(), arm, &samples);
    }
}

/// Both programs and all loops, sample by sample in turn. What a program answers first in its turn is not counted: it pays for
/// caches and pages that the other's turn took from it, and in a run nobody else has a turn.
fn compare(ours: &mut Engine, mut theirs: Option<&mut Process>, arm: Arm, samples: &[Sample]) {
    let (mut engine, mut pytorch) = ([const { Vec::new() }; 3], [const { Vec::new() }; 2]);
    let loops = [Decode::Incremental, Decode::Reforward, Decode::Bounded];
    for sample in samples {
        self::seconds(ours, arm, Decode::Incremental, sample);
        for (decode, seconds) in loops.into_iter().zip(&mut engine) {
            seconds.push(self::seconds(ours, arm, decode, sample));
        }
        if let Some(theirs) = theirs.as_mut() {
            answer(theirs, arm, Decode::Incremental, sample);
            for (decode, seconds) in loops.into_iter().zip(&mut pytorch) {
                seconds.push(answer(theirs, arm, decode, sample));
            }
        }
    }
    let engine = engine.map(Spread::of);
    for (spread, name) in engine.iter().zip(["incremental", "reforward", "bounded"]) {
        println!("{}", spread.line("engine", arm, name));
    }
    if theirs.is_none() {
        return;
    }
    let pytorch = pytorch.map(Spread::of);
    for (spread, name) in pytorch.iter().zip(["incremental", "reforward"]) {
        let ratio = spread.median / engine[0].median;
        println!("{}  {ratio:.1}× the engine's incremental", spread.line("PyTorch", arm, name));
    }
    println!("{:<30} {:.1}×", "  reforward against reforward", pytorch[1].median / engine[1].median);
}

/// Seconds of several runs.
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        Self { median: seconds[seconds.len() / 2], least: seconds[0], most: seconds[seconds.len() - 1] }
    }

    fn line(&self, what: &str, arm: Arm, decode: &str) -> String {
        let Self { median, least, most } = self;
        format!("{what:<30} {:<12} {decode:<12} {median:>7.3} s  ({least:.3}–{most:.3})", arm.to_string())
    }
}

/// Seconds from the start of a process to its first token.
fn first_token(gate: &Path, pack: &Path, threads: &str, arm: Arm, sample: &Sample) -> f64 {
    let start = Instant::now();
    let mut engine = Engine::start(Command::new(gate).env("RAYON_NUM_THREADS", threads));
    engine.load(pack, Backend::Candle, &ARMS);
    engine.begin(trial(arm, Decode::Incremental, sample, PromptVariant::Legacy));
    engine.wait(|event| matches!(event, Event::Progress { stage: Stage::Decode, .. }));
    start.elapsed().as_secs_f64()
}

/// Seconds of the engine's answer.
fn seconds(engine: &mut Engine, arm: Arm, decode: Decode, sample: &Sample) -> f64 {
    let result = engine.ask(trial(arm, decode, sample, PromptVariant::Legacy));
    recalled(&result.text, sample);
    result.timings.e2e_s
}

#[derive(Serialize)]
struct Question {
    arm: Arm,
    decode: Decode,
    prompt: String,
}

#[derive(Deserialize)]
struct Answer {
    seconds: f64,
    text: String,
}

/// Seconds of the other program's answer.
fn answer(other: &mut Process, arm: Arm, decode: Decode, sample: &Sample) -> f64 {
    other.send(&Question { arm, decode, prompt: sample.prompt() });
    let answer: Answer = other.receive();
    recalled(&answer.text, sample);
    answer.seconds
}

/// A speed that gives wrong answers is none.
fn recalled(text: &str, sample: &Sample) {
    assert!(Score::of(text, &sample.answer).strict, "{text:?} is not {}", sample.answer);
}
