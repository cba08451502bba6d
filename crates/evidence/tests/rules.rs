//! Needle evidence, edited in one place: what the rules make of numbers written as floats, of missing parts, of odd lists.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use evidence::{Audit, Comparison, File, FileDocument, PairClass, Verdict};
use niah::Dataset;
use serde_json::{Value, json};
use std::path::PathBuf;

const N: usize = 2;

fn audited(value: &Value) -> Audit {
    let place = PathBuf::from("run.json");
    let file = File::parse(place.as_path().into(), value.to_string().as_bytes()).unwrap();
    evidence::audit(&[file]).remove(0)
}

/// What users get, without what tells the bytes of one file from another's.
fn document(value: &Value) -> Value {
    let mut document = json!(FileDocument::from(&audited(value)));
    for own in ["bytes", "sha256", "schema_version"] {
        document.as_object_mut().unwrap().remove(own);
    }
    document
}

fn finding(value: &Value, code: &str) -> Option<Value> {
    audited(value).findings.iter().find(|finding| finding.code == code).map(|finding| json!(finding.data))
}

fn edited(pointer: &str, new: Value) -> Value {
    let mut value = run();
    set(&mut value, pointer, new);
    value
}

fn set(value: &mut Value, pointer: &str, new: Value) {
    match value.pointer_mut(pointer) {
        Some(slot) => *slot = new,
        None => {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            value.pointer_mut(parent).unwrap()[key] = new;
        }
    }
}

/// A consistent Mac run of two samples.
fn run() -> Value {
    let dataset = Dataset { seed: 42, n_samples: N, min_lines: 60, max_lines: 81 };
    let samples: Vec<_> = dataset.samples().unwrap().collect();
    let arm = json!({
        "per_sample_decoded": samples.iter().map(|sample| sample.answer.clone()).collect::<Vec<_>>(),
        "per_sample_correct": [true, true],
        "samples_correct": N, "samples_total": N, "recall": 1.0,
        "per_sample_decode_tokens": [8, 8],
        "per_sample_throughput_tokens_per_sec": [2.0, 4.0],
        "mean_throughput_tokens_per_sec": 3.0, "median_throughput_tokens_per_sec": 3.0,
        "min_throughput_tokens_per_sec": 2.0, "max_throughput_tokens_per_sec": 4.0,
        "mean_latency_s": 3.0, "median_latency_s": 3.0,
    });
    let row = json!({ "prefill_s": 2.0, "decode_s": 1.0, "e2e_s": 3.0, "restoration_active": true });
    let lens: Vec<u32> = samples.iter().map(|sample| 20 * sample.padding_lines + 39).collect();
    let layers = json!([{ "layer_type": "full_attention", "n_kv_heads": 1, "head_dim": 1,
        "exact": true, "resident_bytes": 100 }]);
    json!({
        "kind": "k3_integrated_niah_acceptance_mac",
        "schema_version": 2,
        "config": { "n_samples": N, "seed": 42, "haystack_min_lines": 60, "haystack_max_lines": 81,
            "sink_size": 4, "window_size": 64, "max_new_tokens": 24, "eval_mode": "free_gen",
            "prompt_token_lens": lens },
        "results": { "k3_cross_model": arm, "oracle": arm },
        "gate": { "recall_cross_model": 1.0, "recall_oracle": 1.0, "recall_delta_within_5pp": true,
            "evidence_violations": [] },
        "throughput": { "k3_cross_model": { "tokens": 16, "wall_seconds": 6.0, "stage_timings": [row, row] } },
        "memory": { "s5": { "seq_len": 100, "per_layer": layers, "formula_matches_run": true },
            "savings_vs_naive_pct": 75.0 },
    })
}

#[test]
fn the_unedited_run_is_consistent() {
    let audit = audited(&run());
    let errors: Vec<_> =
        audit.findings.iter().filter(|finding| finding.code.ends_with("_MISMATCH")).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(audit.verdict, Verdict::Pass);
}

#[test]
fn a_whole_number_may_be_written_as_a_float() {
    let plain = document(&run());
    for pointer in [
        "/schema_version",
        "/config/n_samples",
        "/config/seed",
        "/config/haystack_min_lines",
        "/config/haystack_max_lines",
        "/config/sink_size",
        "/config/max_new_tokens",
        "/config/prompt_token_lens/0",
        "/results/oracle/samples_correct",
        "/results/oracle/per_sample_decode_tokens/1",
        "/memory/s5/per_layer/0/resident_bytes",
    ] {
        let float = run().pointer(pointer).unwrap().as_f64().unwrap();
        assert_eq!(document(&edited(pointer, json!(float))), plain, "{pointer}");
    }
}

#[test]
fn a_null_schema_version_is_a_missing_one() {
    let mut missing = edited("/gate/evidence_violations", Value::Null);
    set(&mut missing, "/schema_version", Value::Null);
    let null = document(&missing);
    missing.as_object_mut().unwrap().remove("schema_version");
    assert_eq!(null, document(&missing));
    assert_eq!(audited(&missing).verdict, Verdict::Legacy);
    let other = json!({ "kind": "grpc_runtime_smoke", "schema_version": null });
    assert!(audited(&other).has("NO_SCHEMA_VERSION"));
    assert!(audited(&json!({ "kind": 5 })).has("NO_KIND"));
}

#[test]
fn every_attention_window_is_checked_whether_or_not_its_arm_ran() {
    let rows = json!([{ "seq_len": 100, "effective_keys_at_last_query": 68 },
        { "seq_len": 100, "effective_keys_at_last_query": null }]);
    for (arm, fires) in [("k3_cross_model", true), ("elsewhere", true), ("v03_sink_window", false)] {
        let value = edited("/attention_window", json!({ "per_config": { arm: { "per_sample": rows } } }));
        assert_eq!(audited(&value).has("ATTN_WINDOW_MISMATCH"), fires, "{arm}");
    }
    let mut unknown =
        edited("/attention_window", json!({ "per_config": { "v03_sink_window": { "per_sample": rows } } }));
    unknown["config"]["window_size"] = Value::Null;
    assert!(
        !audited(&unknown).has("ATTN_WINDOW_MISMATCH"),
        "without a window there is nothing to compare with"
    );
}

#[test]
fn a_stored_violation_without_a_code_is_still_one() {
    for entry in [json!({}), json!({ "message": "x" }), json!("X"), json!({ "code": "X" })] {
        let value = edited("/gate/evidence_violations", json!([entry]));
        assert!(audited(&value).has("EVIDENCE_VIOLATIONS_MISMATCH"), "{entry}");
    }
}

/// Nobody knows what the texts should hold: nothing is said of hits, and no verdict rests on them.
#[test]
fn bounds_that_give_no_prompts_judge_no_text() {
    for (pointer, new) in [("/config/haystack_min_lines", 90), ("/config/n_samples", 0)] {
        let audit = audited(&edited(pointer, json!(new)));
        for code in
            ["GATE_VALUE_MISMATCH", "RECALL_VALUE_MISMATCH", "DELTA_ON_ZERO_RECALL", "WITHIN_5PP_MISMATCH"]
        {
            assert!(!audit.has(code), "{pointer}: {code}");
        }
        assert!(audit.recomputed.unwrap().paired.is_none());
    }
    let reversed = audited(&edited("/config/haystack_min_lines", json!(90)));
    assert_eq!(reversed.verdict, Verdict::Inconclusive);
}

/// Leaving out what the prompts follow from must not silence the rules on everything else.
#[test]
fn a_run_that_hides_its_prompts_is_still_checked() {
    for pointer in ["/config/seed", "/config/haystack_min_lines", "/config/haystack_max_lines"] {
        let mut value = edited(pointer, Value::Null);
        let audit = audited(&value);
        assert_eq!(audit.verdict, Verdict::Inconclusive, "{pointer}");
        assert!(!audit.findings.iter().any(|finding| finding.code.ends_with("_MISMATCH")), "{pointer}");
        set(&mut value, "/throughput/k3_cross_model/tokens", json!(17));
        set(&mut value, "/memory/savings_vs_naive_pct", json!(76.0));
        let audit = audited(&value);
        assert!(audit.has("TOKENS_SUM_MISMATCH") && audit.has("SAVINGS_MISMATCH"), "{pointer}");
        assert_eq!(audit.verdict, Verdict::Fail, "{pointer}");
    }
}

#[test]
fn an_empty_list_of_prompt_lengths_is_too_short() {
    let data = finding(&edited("/config/prompt_token_lens", json!([])), "ARRAY_LEN_MISMATCH").unwrap();
    assert_eq!(data, json!({ "field": "prompt_token_lens", "got": 0, "n": N }));
}

#[test]
fn a_formula_stays_one_when_its_table_is_incomplete() {
    for missing in ["/memory/s5/seq_len", "/memory/s5/per_layer"] {
        let value = edited(missing, Value::Null);
        let data = finding(&value, "MEM_ANALYTIC").unwrap();
        assert_eq!(data["claimed_savings_pct"], 75.0, "{missing}");
        assert!(data["formula_mb"].is_null());
        assert!(audited(&value).has("MEM_BASELINE_INFLATED"));
    }
}

#[test]
fn spread_and_median_cover_every_stored_sample() {
    let value = edited("/results/oracle/per_sample_decoded", json!([]));
    let arm = &document(&value)["arms"]["oracle"];
    assert_eq!((&arm["lat_spread"], &arm["median_decode_tokens"]), (&json!(2.0), &json!(8.0)));
}

#[test]
fn a_mac_run_without_a_memory_table_states_no_memory() {
    let value = edited("/memory", json!({ "measured_peak_mb": 17000.0 }));
    assert!(document(&value)["memory"].is_null());
}

#[test]
fn an_unknown_kind_is_not_one_that_it_begins_like() {
    let value = json!({ "kind": "k3_dflash_specdecode_acceptance_tpu",
        "aggregate": { "reference_x": { "source": "elsewhere.json" } }, "per_prompt": [] });
    assert!(!audited(&value).has("REFERENCE_NOT_COMPARABLE"));
}

#[test]
fn decimals_are_read_exactly() {
    let sweep = json!({ "kind": "k3_s6_fidelity_recall_sweep", "sweep": [{ "alpha": 1.2725017085226493, "recall": 1.0 }] });
    assert_eq!(document(&sweep)["recall"], json!({ "alpha=1.2725017085226493": 1.0 }));
}

#[test]
fn a_sweep_without_points_holds_no_texts_either() {
    assert!(audited(&json!({ "kind": "k3_s6_fidelity_recall_sweep" })).has("NO_PER_SAMPLE"));
}

fn compared(a: &Value, b: &Value) -> Comparison {
    evidence::compare(&audited(a), &audited(b))
}

#[test]
fn one_timed_sample_is_enough_for_the_decode_axis() {
    let mut a = run();
    for pointer in ["/results/k3_cross_model", "/results/oracle"] {
        set(&mut a, &format!("{pointer}/per_sample_decode_tokens"), json!([8, 0]));
    }
    let mut b = a.clone();
    set(&mut b, "/config/max_new_tokens", json!(64));
    assert_eq!(json!(compared(&a, &b).comparable), json!({ "recall": true, "throughput": "decode only" }));
    set(&mut b, "/throughput", Value::Null);
    assert_eq!(json!(compared(&a, &b).comparable), json!({ "recall": true }));
}

#[test]
fn only_an_identity_run_that_lacks_an_oracle_borrows_one() {
    let with_oracle = run();
    let mut without = run();
    without["results"].as_object_mut().unwrap().remove("oracle");
    let mut identity = without.clone();
    set(&mut identity, "/config/identity_restore", json!(true));
    assert_eq!(compared(&identity, &with_oracle).class, PairClass::CrossOracle);
    assert_eq!(compared(&with_oracle, &identity).class, PairClass::CrossOracle);
    let mut identity_with_oracle = with_oracle.clone();
    set(&mut identity_with_oracle, "/config/identity_restore", json!(true));
    assert_eq!(compared(&identity_with_oracle, &without).class, PairClass::Ab);
}

/// RULES §7.1: the other two kinds re-forward, whatever else a file says.
#[test]
fn the_evaluation_mode_tells_mac_runs_apart_only() {
    for (kind, class) in [
        ("k3_integrated_niah_acceptance_mac", PairClass::Ab),
        ("k3_integrated_niah_acceptance", PairClass::Repeat),
    ] {
        let (mut a, mut b) = (edited("/kind", json!(kind)), edited("/kind", json!(kind)));
        set(&mut a, "/config/eval_mode", json!("free_gen"));
        set(&mut b, "/config/eval_mode", json!("free_gen_incremental"));
        assert_eq!(compared(&a, &b).class, class, "{kind}");
    }
}

#[test]
fn an_empty_memory_block_samples_nothing() {
    let mut value = edited("/kind", json!("k1e_niah_validation"));
    set(&mut value, "/config/device", json!("mps"));
    set(&mut value, "/memory", json!({}));
    let audit = audited(&value);
    assert!(audit.has("MEMORY_ABSENT") && !audit.has("MEM_NO_PEAK_COUNTER"));
}

/// RULES §1.3: these fields belong to the gate of one kind; elsewhere they are unknown keys.
#[test]
fn the_same_checkpoint_gate_is_read_in_its_own_kind_only() {
    let mut value = edited("/gate/v04_recall_ge_0_95", json!(false));
    assert!(!audited(&value).has("GATE_VALUE_MISMATCH"));
    set(&mut value, "/kind", json!("k1e_niah_validation"));
    for (ours, theirs) in [("k3_cross_model", "v04_dlm_restored"), ("oracle", "oracle_full_attention")] {
        let arm = value["results"].as_object_mut().unwrap().remove(ours).unwrap();
        value["results"][theirs] = arm;
    }
    assert!(audited(&value).has("GATE_VALUE_MISMATCH"));
}
