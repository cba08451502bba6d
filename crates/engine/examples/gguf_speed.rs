//! Tokens a second of a GGUF model, for `cargo xtask bench gguf`:
//!
//! `gguf_speed GATE FOLDER SAMPLES THREADS [PYTHON SCRIPT]…` asks the engine process of `GATE` for the oracle's answers with
//! the model of FOLDER, and each program that answers as `benches/llama_cpp_rates.py` does, in turn.
#![expect(clippy::unwrap_used, reason = "a measurement that fails is none")]
#![expect(clippy::disallowed_methods, reason = "a pack for one measurement need not survive a power cut")]

mod processes;

use engine::tokenizer::Tokenizer;
use niah::{Dataset, PromptVariant, Sample, Score};
use processes::{Engine, Process, SEED, TOKENS, trial};
use protocol::{Arm, Backend, Decode};
use serde::Deserialize;
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// Samples of about 1,400 tokens on which the reference's run of Gemma 3 270M recalls.
const DATASET: Dataset = Dataset { seed: SEED, n_samples: 4, min_lines: 60, max_lines: 81 };

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [gate, folder, samples, threads, others @ ..] = &words[..] else {
        panic!("gguf_speed GATE FOLDER SAMPLES THREADS [PYTHON SCRIPT]…")
    };
    let folder = std::path::absolute(folder).unwrap();
    let samples: Vec<Sample> = DATASET.samples().unwrap().take(samples.parse().unwrap()).collect();
    let (pack, tokenizer) = (pack(&folder), Tokenizer::load(&folder).unwrap());
    let mut ours = Engine::start(Command::new(gate).env("RAYON_NUM_THREADS", threads));
    ours.load(pack.path(), Backend::Candle, &[Arm::Oracle]);
    let mut others: Vec<Process> = others
        .chunks(2)
        .map(|words| Process::start(Command::new(&words[0]).arg(&words[1]).arg(&folder).arg(threads)))
        .collect();
    let mut rates: Vec<Rates> = (0..=others.len()).map(|_| Rates::default()).collect();
    // The first sample pays for pages and caches.
    for (i, sample) in samples.iter().take(1).chain(&samples).enumerate() {
        let answers = [ask(&mut ours, sample)]
            .into_iter()
            .chain(others.iter_mut().map(|other| answer(other, &tokenizer, sample)));
        for (rates, answer) in rates.iter_mut().zip(answers).filter(|_| i > 0) {
            assert!(
                Score::of(&answer.text, &sample.answer).strict,
                "{:?} is not {}",
                answer.text,
                sample.answer
            );
            rates.prefill.push(answer.prompt_tokens as f64 / answer.prefill_s);
            rates.decode.push((answer.tokens - 1) as f64 / answer.decode_s);
        }
    }
    print(rates, &words[4..]);
}

/// Tokens a second.
#[derive(Default)]
struct Rates {
    prefill: Vec<f64>,
    decode: Vec<f64>,
}

/// What one program did with one sample.
struct Answer {
    text: String,
    prompt_tokens: usize,
    tokens: usize,
    prefill_s: f64,
    decode_s: f64,
}

/// What another program says of it.
#[derive(Deserialize)]
struct Said {
    ids: Vec<u32>,
    prefill_s: f64,
    decode_s: f64,
}

/// A pack with nothing but the model.
fn pack(folder: &Path) -> tempfile::TempDir {
    let pack = tempfile::tempdir().unwrap();
    let manifest = json!({"format": 1, "name": "a GGUF model", "verifier": folder});
    std::fs::write(pack.path().join("pack.json"), manifest.to_string()).unwrap();
    pack
}

fn ask(engine: &mut Engine, sample: &Sample) -> Answer {
    let result = engine.ask(trial(Arm::Oracle, Decode::Incremental, sample, PromptVariant::RawCue));
    Answer {
        text: result.text,
        prompt_tokens: result.prompt_tokens,
        prefill_s: result.timings.prefill_s,
        tokens: result.tokens.len(),
        decode_s: result.timings.decode_s,
    }
}

/// The other program gets the engine's ids: what is measured is the model.
fn answer(other: &mut Process, tokenizer: &Tokenizer, sample: &Sample) -> Answer {
    let prompt = tokenizer.encode_raw(&PromptVariant::RawCue.text(sample)).unwrap();
    other.send(&json!({"ids": prompt, "tokens": TOKENS}));
    let Said { ids, prefill_s, decode_s } = other.receive();
    let text = tokenizer.decode(&ids).unwrap();
    Answer { text, prompt_tokens: prompt.len(), tokens: ids.len(), prefill_s, decode_s }
}

/// A line for each program; the engine is the first.
fn print(rates: Vec<Rates>, others: &[String]) {
    let names = ["the engine"].into_iter().chain(others.iter().skip(1).step_by(2).map(String::as_str));
    let medians: Vec<[f64; 2]> =
        rates.into_iter().map(|rates| [median(rates.prefill), median(rates.decode)]).collect();
    let [prefill, decode] = medians[0];
    for (name, [other_prefill, other_decode]) in names.zip(&medians) {
        println!("{name}: {other_prefill:.0} tokens/s of the prompt, {other_decode:.1} of the answer");
        println!(
            "  the engine has {:.2}× and {:.2}× of that",
            prefill / other_prefill,
            decode / other_decode
        );
    }
}

/// The middle one.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
