//! The generator against the reference's goldens (skipped when `KAKEYA_GATE_REFERENCE` is unset), and against digests
//! committed here: SHA-256 of prompts that CPython 3.11.7 generated.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use niah::{Dataset, PromptVariant, Rung, Score, evicted};
use proptest::prelude::*;
use serde_json::Value;
use std::path::PathBuf;

fn reference(file: &str) -> Option<Value> {
    let Some(root) = std::env::var_os("KAKEYA_GATE_REFERENCE") else {
        eprintln!("skipped: KAKEYA_GATE_REFERENCE is unset");
        return None;
    };
    let path = PathBuf::from(root).join("golden/dataset").join(file);
    Some(
        serde_json::from_slice(&std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
            .unwrap(),
    )
}

#[test]
fn every_golden_set_is_reproduced() {
    let Some(goldens) = reference("niah_dataset.json") else { return };
    for set in goldens["sets"].as_array().unwrap() {
        let dataset = Dataset {
            seed: set["seed"].as_i64().unwrap(),
            n_samples: set["n_samples"].as_u64().unwrap() as usize,
            min_lines: set["haystack_min_lines"].as_u64().unwrap() as u32,
            max_lines: set["haystack_max_lines"].as_u64().unwrap() as u32,
        };
        let samples: Vec<_> = dataset.samples().unwrap().collect();
        let wanted = set["samples"].as_array().unwrap();
        assert_eq!(samples.len(), wanted.len());
        for (sample, want) in samples.iter().zip(wanted) {
            assert_eq!(
                files::sha256(sample.prompt().as_bytes()),
                want["sha256"],
                "{dataset:?} {}",
                sample.index
            );
            assert_eq!(sample.answer, want["answer"]);
            assert_eq!(sample.needle_line, want["needle_line_index"].as_u64().unwrap() as u32);
            assert_eq!(sample.padding_lines, want["n_padding_lines"].as_u64().unwrap() as u32);
        }
    }
}

#[test]
fn eviction_equals_the_golden_table() {
    let Some(goldens) = reference("evicted_and_masks.json") else { return };
    for row in goldens["evicted"].as_array().unwrap() {
        let number = |key: &str| row[key].as_u64().unwrap() as usize;
        let got: Vec<_> = evicted(number("T"), number("sink"), number("window")).collect();
        assert_eq!(serde_json::json!(got), row["evicted"], "{row}");
    }
}

#[test]
fn committed_digests_of_cpython_prompts() {
    let first: Vec<_> = Rung(70).dataset(42, 2).samples().unwrap().collect();
    assert_eq!(
        files::sha256(first[0].prompt().as_bytes()),
        "d8d614f9e5508436f99e7fdc0a0020c8df38ac911adb0e48762a2fb99178165e"
    );
    assert_eq!(
        files::sha256(first[1].prompt().as_bytes()),
        "e8b03eb7d9c402e1e9952ac6a88c7918adca1a1259fcb013581f3a0a7cfe3eda"
    );
    assert_eq!((first[0].answer.as_str(), first[1].answer.as_str()), ("BETA-1409", "DELTA-3286"));
}

#[test]
fn ladder_bounds() {
    // EVIDENCE: the five release rungs and the bounds their files carry.
    let bounds: Vec<_> = niah::LADDER.map(|lines| Rung(lines).line_bounds()).to_vec();
    assert_eq!(bounds, [(60, 81), (238, 322), (935, 1265), (2720, 3680), (4250, 5750)]);
    assert_eq!(Rung(20).line_bounds(), (17, 23));
    assert_eq!(Rung(1).line_bounds(), (10, 11));
    assert_eq!(Rung::of_bounds(60, 80), Some(Rung(70)));
    assert_eq!(Rung::of_bounds(61, 81), None);
}

#[test]
fn prompt_variants() {
    let sample = Rung(20).dataset(42, 1).samples().unwrap().next().unwrap();
    assert_eq!(PromptVariant::Legacy.text(&sample), sample.prompt());
    assert!(PromptVariant::RawCue.text(&sample).ends_with("Answer:\n\nIMPORTANT: the secret code is"));
    let direct = PromptVariant::DirectAnswer.text(&sample);
    assert!(!direct.contains("does not contain the answer"));
    assert_eq!(direct.matches("and is unrelated filler.").count() as u32, sample.padding_lines);
    assert!(direct.contains(&sample.answer));
}

#[test]
fn scoring() {
    assert_eq!(Score::of("x BETA-1409.", "BETA-1409"), Score { strict: true, ignoring_case: true });
    assert_eq!(Score::of("Beta-1409", "BETA-1409"), Score { strict: false, ignoring_case: true });
    assert_eq!(Score::of("BETA-1408", "BETA-1409"), Score { strict: false, ignoring_case: false });
    assert_eq!(Score::of("anything", ""), Score { strict: false, ignoring_case: false });
}

#[test]
fn bad_bounds_say_what_is_wrong() {
    let of = |n_samples, min_lines, max_lines| {
        Dataset { seed: 1, n_samples, min_lines, max_lines }.samples().err().unwrap().to_string()
    };
    insta::assert_snapshot!([of(0, 10, 10), of(1, 7, 9), of(1, 20, 10), of(1, 20, u32::MAX), of(usize::MAX, 20, 30)].join("\n"), @r"
    n_samples = 0: ask for at least one sample
    min_lines = 7: a haystack needs at least 8 lines, because the needle keeps 4 lines off both ends
    min_lines = 20 is above max_lines = 10
    max_lines = 4294967295 is above the limit of 1000000
    n_samples = 18446744073709551615 is above the limit of 100000
    ");
}

proptest! {
    #[test]
    fn a_shorter_dataset_is_a_prefix(seed: i64, low in 8_u32..40, extra in 0_u32..20, n in 1_usize..5) {
        let dataset = |n_samples| Dataset { seed, n_samples, min_lines: low, max_lines: low + extra };
        let long: Vec<_> = dataset(n + 2).samples().unwrap().collect();
        let short: Vec<_> = dataset(n).samples().unwrap().collect();
        prop_assert_eq!(&long[..n], &short[..]);
        for sample in long {
            prop_assert!(sample.prompt().contains(&sample.answer));
            prop_assert!((4..=sample.padding_lines - 4).contains(&sample.needle_line));
            prop_assert!((0.0..=1.0).contains(&sample.depth()));
        }
    }

    #[test]
    fn evicted_positions_and_kept_ones_make_the_sequence(len in 0_usize..5000, sink in 0_usize..100, window in 0_usize..200) {
        let gone = evicted(len, sink, window);
        prop_assert_eq!(len - gone.len(), len.min(sink + window));
    }
}
