//! Every stored number that follows from other stored values: another number in its place is always found.
//!
//! The rows below say where such numbers stand and how far the check reaches. They hold for any file of a kind, so every
//! file is tried: those under `tests/fixtures`, and the reference's corpus where `KAKEYA_GATE_REFERENCE` names it.
//!
//! Not here, because nothing in the file contradicts another value: measured inputs (times of rows, losses, memory
//! readings), latencies of files without rates, `mean_latency_per_sample_s`, a rung's recall of its one sample, errors of
//! single layers, and counts of failed tests.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use evidence::{File, Verdict};
use proptest::prelude::*;
use rayon::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Where a derived number stands.
struct Derived {
    /// Kinds; `*` at the end stands for any ending.
    kinds: &'static [&'static str],
    /// Pointers; a step `*` stands for any key or index.
    at: &'static [&'static str],
    /// What the check needs to be there and not 0. Each `*` is the step that `at` found in that place.
    needs: &'static [&'static str],
    /// The rule's own tolerance, relative and absolute.
    tolerance: (f64, f64),
    /// The check divides by it: RULES skip it at 0.
    divisor: bool,
}

const EXACT: (f64, f64) = (0.0, 0.0);
const CLOSE: (f64, f64) = (1e-9, 1e-9);
const CLOSE6: (f64, f64) = (1e-6, 1e-9);

const K1: &str = "k1e_niah_validation";
const KC: &str = "k3_integrated_niah_acceptance";
const KM: &str = "k3_integrated_niah_acceptance_mac";
const NIAH: &[&str] = &[K1, KC, KM];
const LADDER: &[&str] = &["k2a_production_smoke_ladder_mac"];
const SWEEP: &[&str] = &["k3_s6_fidelity_recall_sweep"];
const SPECDECODE: &[&str] = &["k3_specdecode_gpu_bench"];
const DFLASH: &[&str] = &["k3_dflash_specdecode_acceptance", "k3_dflash_specdecode_acceptance_mac"];
const SESSIONS: &[&str] = &["k3_grpc_multitenant_e2e"];

const fn derived(
    kinds: &'static [&'static str],
    at: &'static [&'static str],
    needs: &'static [&'static str],
    tolerance: (f64, f64),
) -> Derived {
    Derived { kinds, at, needs, tolerance, divisor: false }
}

const fn divisor(
    kinds: &'static [&'static str],
    at: &'static [&'static str],
    needs: &'static [&'static str],
    tolerance: (f64, f64),
) -> Derived {
    Derived { divisor: true, ..derived(kinds, at, needs, tolerance) }
}

const DERIVED: &[Derived] = &[
    derived(
        NIAH,
        &["/results/*/recall", "/results/*/samples_correct", "/results/*/samples_total"],
        &[],
        CLOSE,
    ),
    derived(
        NIAH,
        &["/results/*/samples_correct_ignoring_case", "/results/*/per_sample_correct/*"],
        &[],
        EXACT,
    ),
    derived(
        NIAH,
        &["/results/*/mean_throughput_tokens_per_sec", "/results/*/median_throughput_tokens_per_sec"],
        &["/results/*/per_sample_throughput_tokens_per_sec/0"],
        CLOSE,
    ),
    derived(
        NIAH,
        &["/results/*/min_throughput_tokens_per_sec", "/results/*/max_throughput_tokens_per_sec"],
        &["/results/*/per_sample_throughput_tokens_per_sec/0"],
        EXACT,
    ),
    derived(
        NIAH,
        &["/results/*/mean_latency_s", "/results/*/median_latency_s"],
        &["/results/*/per_sample_throughput_tokens_per_sec/0", "/results/*/per_sample_decode_tokens/0"],
        CLOSE6,
    ),
    derived(
        NIAH,
        &["/attention_window/per_config/*/effective_keys_at_last_query_mean"],
        &["/attention_window/per_config/*/per_sample/0/effective_keys_at_last_query"],
        CLOSE,
    ),
    derived(
        NIAH,
        &["/attention_window/per_config/*/per_sample/*/effective_keys_at_last_query"],
        &["/attention_window/per_config/*/per_sample/*/seq_len"],
        EXACT,
    ),
    derived(
        &[KC, KM],
        &[
            "/gate/recall_delta_vs_oracle_pp",
            "/gate/recall_cross_model",
            "/gate/recall_oracle",
            "/gate/recall_delta_within_5pp",
        ],
        &["/results/k3_cross_model", "/results/oracle"],
        CLOSE6,
    ),
    derived(
        &[K1],
        &["/gate/v04_vs_oracle_delta", "/gate/v04_within_5pct_of_oracle", "/gate/v04_recall_ge_0_95"],
        &["/results/v04_dlm_restored", "/results/oracle_full_attention"],
        CLOSE6,
    ),
    derived(
        &[K1],
        &["/gate/v04_vs_v03_improvement", "/gate/v04_dominates_v03"],
        &["/results/v04_dlm_restored", "/results/oracle_full_attention", "/results/v03_sink_window"],
        CLOSE,
    ),
    derived(
        &[KM],
        &["/throughput/k3_cross_model/tokens"],
        &["/results/k3_cross_model/per_sample_decode_tokens"],
        EXACT,
    ),
    derived(
        &[KM],
        &["/throughput/oracle_native_ar/tokens"],
        &["/results/oracle/per_sample_decode_tokens"],
        EXACT,
    ),
    divisor(
        &[KM],
        &["/throughput/k3_cross_model/wall_seconds"],
        &["/throughput/k3_cross_model/tokens_per_second", "/results/k3_cross_model/per_sample_decode_tokens"],
        RATE,
    ),
    divisor(
        &[KM],
        &["/throughput/oracle_native_ar/wall_seconds"],
        &["/throughput/oracle_native_ar/tokens_per_second", "/results/oracle/per_sample_decode_tokens"],
        RATE,
    ),
    derived(&[KM], &["/throughput/*/wall_seconds"], &["/throughput/*/stage_timings/0/e2e_s"], (0.0, 0.02)),
    derived(
        &[KM],
        &["/throughput/k3_cross_model/tokens_per_second"],
        &["/throughput/k3_cross_model/wall_seconds", "/results/k3_cross_model/per_sample_decode_tokens"],
        RATE,
    ),
    derived(
        &[KM],
        &["/throughput/oracle_native_ar/tokens_per_second"],
        &["/throughput/oracle_native_ar/wall_seconds", "/results/oracle/per_sample_decode_tokens"],
        RATE,
    ),
    derived(
        &[KM],
        &["/throughput/decode_only/*"],
        &[
            "/throughput/k3_cross_model/stage_timings/0/decode_s",
            "/throughput/oracle_native_ar/stage_timings/0/decode_s",
            "/results/k3_cross_model/per_sample_decode_tokens/0",
            "/results/oracle/per_sample_decode_tokens/0",
        ],
        EXACT,
    ),
    derived(
        &[KM],
        &["/throughput/cross_model_speedup_vs_oracle_ar"],
        &["/throughput/k3_cross_model/tokens_per_second", "/throughput/oracle_native_ar/tokens_per_second"],
        (0.0, 0.002),
    ),
    derived(
        &[KM],
        &[
            "/memory/s5/total_resident_bytes",
            "/memory/s5/sliding_resident_bytes",
            "/memory/s5/full_resident_bytes",
            "/memory/s5/per_layer/*/resident_bytes",
            "/memory/savings_vs_naive_pct",
            "/memory/naive_full_kv/total_resident_mb",
        ],
        &["/memory/s5/per_layer/0/resident_bytes", "/memory/s5/seq_len"],
        EXACT,
    ),
    derived(LADDER, &["/rungs/*/metrics/sec_per_token"], &["/rungs/*/metrics/decode_tokens"], (0.0, 1e-9)),
    // A thousand tokens at most: a smaller change of the mean can hide in the tolerance.
    derived(LADDER, &["/rungs/*/metrics/mean_latency_s"], &["/rungs/*/metrics/decode_tokens"], (0.0, 1e-6)),
    derived(
        LADDER,
        &["/rungs/*/summary/memory_under_24gb"],
        &["/rungs/*/metrics/driver_allocated_bytes"],
        EXACT,
    ),
    derived(SWEEP, &["/sweep/*/recall", "/sweep/*/samples_correct"], &["/sweep/*/samples_total"], CLOSE),
    divisor(SWEEP, &["/sweep/*/samples_total"], &["/sweep/*/samples_correct", "/sweep/*/recall"], CLOSE),
    derived(SWEEP, &["/sweep/*/eff_rel_mse_overall"], &["/f_theta_baseline_rel_mse/overall"], CLOSE6),
    derived(
        &["k3_e2e_gpu_bench"],
        &["/results/*/comparison/throughput_ratio_restored_over_ar"],
        &["/results/*/restored/decode_tokens_per_s", "/results/*/ar/decode_tokens_per_s"],
        (0.0, 0.001),
    ),
    derived(
        SPECDECODE,
        &["/restored_specdecode_fused/decode_tokens_per_s_mean"],
        &["/restored_specdecode_fused/per_sample/0/decode_tokens_per_s"],
        (0.0, 0.01),
    ),
    derived(
        SPECDECODE,
        &["/restored_specdecode_fused/speedup_over_ar_x"],
        &["/restored_specdecode_fused/decode_tokens_per_s_mean", "/ar_incremental/decode_tokens_per_s_mean"],
        (0.0, 0.006),
    ),
    derived(
        DFLASH,
        &["/aggregate/total_accepted", "/aggregate/total_blocks", "/aggregate/acceptance_length"],
        &["/per_prompt/0/block_accepts"],
        CLOSE,
    ),
    derived(DFLASH, &["/aggregate/acceptance_rate"], &["/aggregate/total_drafted"], CLOSE),
    divisor(DFLASH, &["/aggregate/total_drafted"], &["/aggregate/acceptance_rate"], CLOSE),
    derived(
        &["mlx_batched_multitenant", "mlx_upstream_batch_probe", "k3_served_batched_scheduler"],
        &["/batched_speedup_vs_serialized"],
        &["/serialized/aggregate_tps"],
        (0.0, 0.01),
    ),
    derived(SESSIONS, &["/per_session_recall", "/results/*/recall"], &["/results/0/answer"], CLOSE),
    derived(&["k3_f_theta_train"], &["/loss_reduction_factor"], &["/initial_loss", "/final_loss"], CLOSE6),
    derived(&["grpc_*", "pr_*"], &["/junit/tests"], &["/junit/cases"], EXACT),
];

/// TOK_S_MISMATCH, for rates from 0.1 tokens/s on.
const RATE: (f64, f64) = (2e-3, 2e-4);

/// Files to edit.
static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let mut folders = vec![fixtures.join("evidence"), fixtures.join("kinds")];
    match std::env::var_os("KAKEYA_GATE_REFERENCE") {
        Some(root) => folders.push(PathBuf::from(root).join("evidence/corpus")),
        None => eprintln!("KAKEYA_GATE_REFERENCE is unset: only the fixtures are edited"),
    }
    evidence::find(&folders).iter().map(|place| evidence::read(place).unwrap()).collect()
});

/// Every derived number: the file, its pointer, its rule.
static PLACES: LazyLock<Vec<(usize, String, &Derived)>> = LazyLock::new(|| {
    let of_file = |(at, file): (usize, &File)| {
        let places = DERIVED.iter().flat_map(|rule| rule.places(file).into_iter().map(move |p| (p, rule)));
        places.map(move |(pointer, rule)| (at, pointer, rule)).collect::<Vec<_>>()
    };
    FILES.iter().enumerate().flat_map(of_file).collect()
});

fn audited(file: &File) -> evidence::Audit {
    evidence::audit(std::slice::from_ref(file)).remove(0)
}

impl Derived {
    fn places(&self, file: &File) -> Vec<String> {
        let kind = file.value["kind"].as_str().unwrap_or_default();
        let applies = |wanted: &&str| match wanted.strip_suffix('*') {
            Some(beginning) => kind.starts_with(beginning),
            None => kind == *wanted,
        };
        if !self.kinds.iter().any(applies) {
            return Vec::new();
        }
        let found = self.at.iter().flat_map(|pattern| matches(&file.value, pattern));
        let there = |steps: &[String], need: &str| {
            file.value
                .pointer(&filled(need, steps))
                .is_some_and(|value| !value.is_null() && *value != 0 && *value != 0.0)
        };
        found
            .filter(|(_, steps)| self.needs.iter().all(|need| there(steps, need)))
            .map(|(pointer, _)| pointer)
            .collect()
    }

    /// Whether the rule must see the difference. Stored numbers may be off by the tolerance already, hence twice.
    fn sees(&self, old: &Value, new: &Value) -> bool {
        let (Some(old), Some(new)) = (old.as_f64(), new.as_f64()) else { return old != new };
        let (relative, absolute) = self.tolerance;
        (new - old).abs() > 2.0 * absolute.max(relative * old.abs().max(new.abs()))
            && !(self.divisor && new == 0.0)
    }

    fn check(&self, file: &File, pointer: &str, new: &Value) -> Result<(), String> {
        let old = file.value.pointer(pointer).unwrap();
        if !self.sees(old, new) {
            return Ok(());
        }
        let mut edited = file.clone();
        *edited.value.pointer_mut(pointer).unwrap() = new.clone();
        let audit = audited(&edited);
        if !audit.integrity_ok && audit.verdict == Verdict::Fail {
            return Ok(());
        }
        Err(format!("{}: {pointer} edited from {old} to {new}: {:?}", file.name, audit.verdict))
    }
}

/// Pointers of numbers and flags that a pattern fits, each with the steps that its stars stand for.
fn matches(document: &Value, pattern: &str) -> Vec<(String, Vec<String>)> {
    let mut found = vec![(String::new(), Vec::new())];
    for step in pattern.split('/').skip(1) {
        let below = |(at, stars): (String, Vec<String>)| -> Vec<(String, Vec<String>)> {
            let keys = match document.pointer(&at) {
                _ if step != "*" => return vec![(format!("{at}/{step}"), stars)],
                Some(Value::Object(fields)) => fields.keys().cloned().collect(),
                Some(Value::Array(items)) => (0..items.len()).map(|i| i.to_string()).collect(),
                _ => Vec::new(),
            };
            let with = |key: String| (format!("{at}/{key}"), [stars.clone(), vec![key]].concat());
            keys.into_iter().map(with).collect()
        };
        found = found.into_iter().flat_map(below).collect();
    }
    found.retain(|(at, _)| document.pointer(at).is_some_and(|value| value.is_number() || value.is_boolean()));
    found
}

fn filled(pattern: &str, steps: &[String]) -> String {
    steps.iter().fold(pattern.to_owned(), |pattern, step| pattern.replacen('*', step, 1))
}

/// A hundredth more, one more, the other sign, nothing; of a flag the other one.
fn edits(old: &Value) -> Vec<Value> {
    if let Some(flag) = old.as_bool() {
        return vec![json!(!flag)];
    }
    let number = old.as_f64().unwrap();
    let mut edits = vec![json!(number * 1.01), json!(number + 1.0), json!(-number), json!(0)];
    if let Some(whole) = old.as_i64() {
        edits.extend([json!(whole + 1), json!(whole - 1), json!(-whole)]);
    }
    edits
}

#[test]
fn no_unedited_file_contradicts_itself() {
    for file in &*FILES {
        let audit = audited(file);
        assert!(audit.integrity_ok, "{}: {:#?}", file.name, audit.findings);
    }
}

#[test]
fn each_rule_has_a_place() {
    for rule in DERIVED {
        for pattern in rule.at {
            let one =
                Derived { at: std::slice::from_ref(pattern), ..derived(rule.kinds, &[], rule.needs, EXACT) };
            assert!(FILES.iter().any(|file| !one.places(file).is_empty()), "{pattern} stands in no file");
        }
    }
}

#[test]
fn an_edited_derived_number_is_always_found() {
    let check = |(at, pointer, rule): &(usize, String, &Derived)| -> Vec<String> {
        let file = &FILES[*at];
        let old = file.value.pointer(pointer).unwrap();
        edits(old).iter().filter_map(|new| rule.check(file, pointer, new).err()).collect()
    };
    let missed: Vec<String> = PLACES.par_iter().flat_map(check).collect();
    assert!(PLACES.len() > 150, "{}", PLACES.len());
    assert!(missed.is_empty(), "{} of {} places:\n{}", missed.len(), PLACES.len(), missed.join("\n"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_number_stands_there_instead(
        at in any::<proptest::sample::Index>(),
        new in prop_oneof![
            proptest::num::f64::NORMAL.prop_map(Value::from),
            (-200.0..200.0).prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
        ],
    ) {
        let (file, pointer, rule) = &PLACES[at.index(PLACES.len())];
        let file = &FILES[*file];
        if file.value.pointer(pointer).unwrap().is_number() {
            rule.check(file, pointer, &new).map_err(TestCaseError::fail)?;
        }
    }
}
