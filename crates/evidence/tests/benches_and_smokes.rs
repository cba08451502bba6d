//! Ladder, smokes, sweep, benches, DFlash and training: each rule fires where it must, and one field decides it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use evidence::{Audit, File, Verdict};
use serde_json::{Value, json};
use std::path::Path;

fn audited(value: Value) -> Audit {
    let file = File {
        place: Path::new("evidence.json").into(),
        name: "evidence.json".to_owned(),
        bytes: 0,
        sha256: String::new(),
        value,
    };
    evidence::audit(&[file]).remove(0)
}

fn edited(mut value: Value, pointer: &str, new: Value) -> Value {
    *value.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = new;
    value
}

fn ladder() -> Value {
    let rung = |lines: u64, bytes: u64, gib: f64| {
        json!({
            "ctx_lines": lines,
            "metrics": {
                "recall": 1.0, "samples_total": 1, "mean_latency_s": 48.0, "sec_per_token": 2.0, "decode_tokens": 24,
                "driver_allocated_bytes": bytes, "driver_allocated_gb": gib, "effective_attention_fraction": 1.0,
            },
            "summary": { "memory_under_24gb": bytes < 24 << 30 },
        })
    };
    json!({
        "kind": "k2a_production_smoke_ladder_mac",
        "schema_version": 1,
        "rungs": [rung(70, 12 << 30, 12.0), rung(280, 25 << 30, 25.0)],
    })
}

fn codec() -> Value {
    json!({
        "kind": "k2a_kl_mac_smoke",
        "schema_version": 1,
        "config": { "rmse_bound": 0.001 },
        "checks": {
            "direct_codec": { "K_relative_mse": 0.0007, "V_relative_mse": 0.0008 },
            "identity_adapter": { "memory_bytes": 4096 },
            "kakeyalattice_adapter": { "memory_bytes_after_full_compress": 4096 },
        },
        "summary": { "status": "pass" },
    })
}

fn restored_verifier() -> Value {
    json!({
        "kind": "k1d_dlm_restored_verifier_smoke",
        "schema_version": 1,
        "model": "google/gemma-3-1b-it",
        "configs": [
            { "name": "oracle_full_attention", "any_nan": false, "any_inf": false },
            { "name": "v04_sink_4_window_64", "any_nan": false, "any_inf": false, "kl_vs_oracle": 3.5 },
            { "name": "v04_no_eviction", "any_nan": false, "any_inf": false, "kl_vs_oracle": 0.0 },
        ],
        "smoke_gate": { "pass": true, "no_eviction_kl_threshold": 0.001 },
    })
}

fn feasibility() -> Value {
    json!({
        "kind": "k3_feasibility_smoke",
        "schema_version": 1,
        "config": { "skip_drafter": false },
        "summary": {
            "status": "pass", "drafter_forward_ok": true, "drafter_faithful_transformers_load": true,
            "known_bug_fingerprints_matched": ["bug"],
        },
    })
}

fn sweep() -> Value {
    let row = |alpha: f64, hits: u64| {
        json!({
            "alpha": alpha, "recall": hits as f64 / 10.0, "samples_correct": hits, "samples_total": 10,
            "eff_rel_mse_overall": (1.0 - alpha) * (1.0 - alpha) * 0.25,
        })
    };
    json!({
        "kind": "k3_s6_fidelity_recall_sweep",
        "schema_version": 1,
        "config": { "n_samples": 10 },
        "f_theta_baseline_rel_mse": { "overall": 0.25 },
        "sweep": [row(0.0, 0), row(0.5, 10), row(1.0, 10)],
    })
}

fn e2e() -> Value {
    json!({
        "kind": "k3_e2e_gpu_bench",
        "schema_version": 1,
        "config": {
            "drafter_id": "z-lab/DFlash", "f_theta_dir": "models/f_theta_v5", "sink_size": 4, "window_size": 64,
            "n_samples": 3,
        },
        "verifier_dims": { "num_hidden_layers": 30, "num_key_value_heads": 8, "head_dim": 256 },
        "results": [{
            "haystack_lines": 60,
            "ar": {
                "decode_tokens_per_s": 20.0, "kv_bytes_final": 282_501_120, "peak_mem_bytes": 1000, "recall": 1.0,
            },
            "restored": {
                "decode_tokens_per_s": 5.0, "resident_kv_bytes": 68 * 245_760, "effective_context_tokens": 1254,
                "peak_mem_bytes": 1100, "recall": 0.5,
            },
            "comparison": { "kv_memory_saving_x": 16.9, "throughput_ratio_restored_over_ar": 0.25 },
        }],
    })
}

fn specdecode() -> Value {
    let sample = |rate: f64, seconds: f64| json!({ "tokens": [1], "decode_tokens": 60, "decode_s": seconds, "decode_tokens_per_s": rate });
    json!({
        "kind": "k3_specdecode_gpu_bench",
        "schema_version": 1,
        "config": {
            "drafter_id": "z-lab/DFlash", "f_theta_dir": "models/f_theta_v5", "n_samples": 2,
            "socket_echo_addr": "127.0.0.1:9", "output": "results/other.json",
        },
        "ar_incremental": { "decode_tokens_per_s_mean": 20.0, "recall": 1.0 },
        "restored_specdecode": { "skipped": true, "recall": 0.0 },
        "restored_specdecode_fused": {
            "decode_tokens_per_s_mean": 40.0, "recall": 0.5, "speedup_over_ar_x": 2.0,
            "per_sample": [sample(30.0, 2.0), sample(50.0, 1.2)],
        },
        "crosshost_a/b": { "sweep": [{ "net_bytes_per_block": 7, "tc_applied": false }] },
    })
}

fn dflash() -> Value {
    json!({
        "kind": "k3_dflash_specdecode_acceptance",
        "schema_version": 1,
        "aggregate": {
            "acceptance_rate": 0.2, "acceptance_length": 2.5, "total_accepted": 6, "total_drafted": 30,
            "total_blocks": 4, "lossless_vs_ar": true,
        },
        "per_prompt": [
            { "block_accepts": [1, 2], "lossless_vs_ar": true },
            { "block_accepts": [0, 3], "lossless_vs_ar": true },
        ],
    })
}

fn training() -> Value {
    json!({
        "kind": "k3_f_theta_train",
        "schema_version": 2,
        "config": { "niah_min_lines": 30, "niah_max_lines": 140 },
        "n_niah_prompts": 96,
        "initial_loss": 4.0,
        "final_loss": 0.5,
        "loss_reduction_factor": 8.0,
        "final_diagnostic": { "mse_O_mean": 0.08, "abs_O_target_mean": 0.5 },
    })
}

fn documents() -> [Value; 9] {
    [
        ladder(),
        codec(),
        restored_verifier(),
        feasibility(),
        sweep(),
        e2e(),
        specdecode(),
        dflash(),
        training(),
    ]
}

/// One document, one edit, one code: it fires either before the edit or after it.
type Case = (fn() -> Value, &'static str, Value, &'static str);

fn before_and_after((document, pointer, new, code): &Case) -> [bool; 2] {
    [document(), edited(document(), pointer, new.clone())].map(|value| audited(value).has(code))
}

#[test]
fn one_edit_makes_the_rule_fire() {
    let cases: [Case; 25] = [
        (ladder, "/rungs/0/metrics/recall", json!(0.0), "RECALL_MISS"),
        (ladder, "/rungs/0/metrics/sec_per_token", json!(2.1), "LATENCY_STAT_MISMATCH"),
        (ladder, "/rungs/1/summary/memory_under_24gb", json!(true), "GATE_VALUE_MISMATCH"),
        (codec, "/summary/status", json!("fail"), "STATUS_CONTRADICTION"),
        (codec, "/config/rmse_bound", json!(0.00075), "STATUS_CONTRADICTION"),
        (feasibility, "/summary/status", json!("fail_at_load"), "LOAD_FAILED"),
        (feasibility, "/config/skip_drafter", json!(true), "COMPONENT_SKIPPED"),
        (feasibility, "/summary/drafter_forward_ok", Value::Null, "STATUS_CONTRADICTION"),
        (
            feasibility,
            "/summary",
            json!({"status": "pass", "drafter_forward_ok": true}),
            "DRAFTER_FIDELITY_UNKNOWN",
        ),
        (sweep, "/sweep/1/eff_rel_mse_overall", json!(0.07), "SWEEP_VALUE_MISMATCH"),
        (sweep, "/sweep/1/recall", json!(0.9), "SWEEP_VALUE_MISMATCH"),
        (sweep, "/sweep/0/alpha", json!(0.6), "SWEEP_UNORDERED"),
        (e2e, "/results/0/comparison/throughput_ratio_restored_over_ar", json!(0.3), "SPEEDUP_MISMATCH"),
        (
            specdecode,
            "/restored_specdecode_fused/decode_tokens_per_s_mean",
            json!(41.0),
            "THROUGHPUT_STAT_MISMATCH",
        ),
        (specdecode, "/restored_specdecode_fused/speedup_over_ar_x", json!(2.1), "SPEEDUP_MISMATCH"),
        (specdecode, "/config/socket_echo_addr", json!("10.0.0.2:9"), "CROSSHOST_SIMULATED"),
        (dflash, "/per_prompt/1/lossless_vs_ar", json!(false), "LOSSLESS_VIOLATION"),
        (dflash, "/per_prompt/1/lossless_vs_ar", json!(false), "STATUS_CONTRADICTION"),
        (dflash, "/aggregate/lossless_vs_ar", json!(false), "STATUS_CONTRADICTION"),
        (dflash, "/per_prompt/0/block_accepts/0", json!(2), "ACCEPTANCE_MISMATCH"),
        (dflash, "/aggregate/total_blocks", json!(5), "ACCEPTANCE_MISMATCH"),
        (dflash, "/aggregate/acceptance_length", json!(2.4), "ACCEPTANCE_MISMATCH"),
        (dflash, "/aggregate/acceptance_rate", json!(0.3), "ACCEPTANCE_MISMATCH"),
        (training, "/loss_reduction_factor", json!(9.0), "GATE_VALUE_MISMATCH"),
        (training, "/final_loss", json!(0.4), "GATE_VALUE_MISMATCH"),
    ];
    for case in &cases {
        assert_eq!(before_and_after(case), [false, true], "{} {}", case.1, case.3);
    }
}

#[test]
fn one_edit_silences_the_rule() {
    let cases: [Case; 24] = [
        (ladder, "/rungs/1/metrics/driver_allocated_bytes", json!(23_u64 << 30), "MEM_OVER_24GIB"),
        (ladder, "/rungs/1/metrics/effective_attention_fraction", json!(0.5), "ARCH_GATE_TAUTOLOGY"),
        (ladder, "/rungs/1/metrics/driver_allocated_gb", json!(26.8), "UNIT_GIB_LABELLED_GB"),
        (ladder, "/rungs/0/metrics/samples_total", json!(72), "N_TOO_SMALL"),
        (ladder, "/kind", json!("another"), "ORACLE_MISSING"),
        (codec, "/checks/identity_adapter/memory_bytes", json!(8192), "CODEC_NO_COMPRESSION"),
        (restored_verifier, "/kind", json!("another"), "SELF_PROJECTION"),
        (sweep, "/sweep/0/recall", json!(0.1), "FTHETA_ZERO_RECALL"),
        (sweep, "/kind", json!("another"), "MSE_FROM_ONE_SAMPLE"),
        (sweep, "/kind", json!("another"), "ORACLE_MISSING"),
        (sweep, "/kind", json!("another"), "NO_PER_SAMPLE"),
        (e2e, "/results/0/restored/resident_kv_bytes", Value::Null, "KV_RESIDENT_IS_FORMULA"),
        (e2e, "/results/0/restored/peak_mem_bytes", json!(999), "MEM_PEAK_NOT_LOWER"),
        (e2e, "/config", json!({"s5_exact_layers": []}), "S5_MODE_UNRECORDED"),
        (e2e, "/config/drafter_id", json!("models/dflash-kakeya-baseline"), "FTHETA_DRAFTER_MISMATCH"),
        (specdecode, "/restored_specdecode/skipped", json!(false), "SKIPPED_ARM_REPORTS_ZERO"),
        (
            specdecode,
            "/restored_specdecode_fused/per_sample/1/decode_tokens_per_s",
            json!(31.0),
            "DECODE_SPREAD",
        ),
        (specdecode, "/restored_specdecode_fused", Value::Null, "MEAN_OF_RATES"),
        (specdecode, "/config/output", json!("results/evidence.json"), "FILE_RENAMED"),
        (specdecode, "/config/socket_echo_addr", Value::Null, "CROSSHOST_IS_LOOPBACK"),
        (specdecode, "/config/f_theta_dir", json!("models/f_theta_v4"), "FTHETA_DRAFTER_MISMATCH"),
        (specdecode, "/kind", json!("another"), "TOKENS_ONLY"),
        (dflash, "/per_prompt", json!(vec![json!({}); 20]), "FEW_PROMPTS"),
        (training, "/config/niah_max_lines", json!(0), "TRAIN_HAS_NIAH"),
    ];
    for case in &cases {
        assert_eq!(before_and_after(case), [true, false], "{} {}", case.1, case.3);
    }
}

fn data(value: Value, code: &str) -> Value {
    let audit = audited(value);
    let finding = audit.findings.iter().find(|finding| finding.code == code).unwrap();
    json!(finding.data)
}

#[test]
fn findings_carry_their_numbers() {
    assert_eq!(data(ladder(), "MEM_OVER_24GIB"), json!({ "ctx": 280, "driver_gib": 25.0 }));
    assert_eq!(data(sweep(), "N_TOO_SMALL"), json!({ "n": 10, "flip_pp": 10.0 }));
    assert_eq!(data(restored_verifier(), "SELF_PROJECTION"), json!({ "kl_evicting": 3.5 }));
    assert_eq!(
        data(e2e(), "MEM_PEAK_NOT_LOWER"),
        json!({ "sut_peak": 1100, "oracle_peak": 1000, "ratio": 1.1, "lines": 60 })
    );
    assert_eq!(
        data(e2e(), "KV_RESIDENT_IS_FORMULA"),
        json!({
            "lines": 60, "claimed": 16_711_680, "equal": true, "claimed_saving_x": 16.9,
            "with_exact_layers_bytes": 39_608_320_u64, "saving_with_exact_layers_x": 7.1,
        })
    );
    assert_eq!(
        data(specdecode(), "MEAN_OF_RATES"),
        json!({ "mean_of_rates": 40.0, "aggregate": 37.5, "aggregate_speedup": 1.875 })
    );
    assert_eq!(
        data(specdecode(), "CROSSHOST_IS_LOOPBACK"),
        json!({ "block": "crosshost_a/b", "net_bytes_per_block": [7], "tc_applied": [false] })
    );
    assert_eq!(
        data(training(), "TRAIN_SANITY_ONLY"),
        json!({
            "loss_reduction": 8.0, "needed": 5.0, "mse_over_target_sq": 0.32, "needed_below": 0.05,
            "second_gate_met": false,
        })
    );
}

/// A finding on a stored field points at that field, whatever signs its key holds.
#[test]
fn pointers_lead_to_the_claim() {
    for document in documents() {
        for finding in audited(document.clone()).findings {
            let claim = document.pointer(&finding.pointer);
            assert!(claim.is_some(), "{} points at {}", finding.code, finding.pointer);
            assert!(
                !finding.why.en().is_empty() && !finding.fix.en().is_empty(),
                "{} is not explained",
                finding.code
            );
        }
    }
}

#[test]
fn summaries_say_what_the_file_claims() {
    let labels = |value: Value| audited(value).recall.unwrap();
    let recall = |label: &str, recall: Option<f64>| (label.to_owned(), recall);
    assert_eq!(labels(ladder()), [recall("ctx70", Some(1.0)), recall("ctx280", Some(1.0))]);
    assert_eq!(labels(sweep())[..2], [recall("alpha=0.0", Some(0.0)), recall("alpha=0.5", Some(1.0))]);
    assert_eq!(labels(e2e()), [recall("60l ar", Some(1.0)), recall("60l restored", Some(0.5))]);
    assert_eq!(
        labels(specdecode()),
        [
            recall("ar_incremental", Some(1.0)),
            recall("restored_specdecode", None),
            recall("restored_specdecode_fused", Some(0.5)),
        ]
    );
    let claimed = |value: Value| audited(value).claimed_gate.unwrap();
    assert_eq!(claimed(ladder())[1], json!({ "ctx": 280, "memory_under_24gb": false }));
    assert_eq!(claimed(restored_verifier()), json!({ "pass": true }));
    assert_eq!(
        claimed(dflash()),
        json!({ "lossless_vs_ar": true, "acceptance_rate": 0.2, "acceptance_length": 2.5 })
    );
    assert_eq!(claimed(training()), json!({ "loss_reduction_factor": 8.0 }));
    assert_eq!(audited(dflash()).n, Some(2));
    assert_eq!(audited(ladder()).n, Some(1));
}

#[test]
fn verdicts_follow_the_measured_fields() {
    let verdict = |value: Value, pointer: &str, new: Value| audited(edited(value, pointer, new)).verdict;
    assert_eq!(audited(codec()).verdict, Verdict::Pass);
    assert_eq!(verdict(codec(), "/checks/direct_codec/V_relative_mse", json!(0.002)), Verdict::Fail);
    assert_eq!(
        verdict(codec(), "/summary/status", json!("fail")),
        Verdict::Pass,
        "the status is no measurement"
    );

    assert_eq!(audited(restored_verifier()).verdict, Verdict::Pass);
    assert_eq!(verdict(restored_verifier(), "/configs/2/kl_vs_oracle", json!(0.002)), Verdict::Fail);
    assert_eq!(verdict(restored_verifier(), "/configs/2/kl_vs_oracle", Value::Null), Verdict::Fail);
    assert_eq!(verdict(restored_verifier(), "/configs/1/any_nan", json!(true)), Verdict::Fail);

    assert_eq!(audited(feasibility()).verdict, Verdict::Pass);
    assert_eq!(verdict(feasibility(), "/summary/status", json!("fail_at_load")), Verdict::Fail);
    assert_eq!(verdict(feasibility(), "/config/skip_drafter", json!(true)), Verdict::Inconclusive);
    assert_eq!(verdict(feasibility(), "/summary/drafter_forward_ok", json!(false)), Verdict::Fail);
    assert_eq!(verdict(feasibility(), "/summary/drafter_forward_ok", Value::Null), Verdict::Inconclusive);
    let unknown = json!({ "status": "pass", "drafter_forward_ok": true });
    assert_eq!(verdict(feasibility(), "/summary", unknown), Verdict::Vacuous);

    for document in [ladder(), sweep(), e2e(), specdecode(), dflash(), training()] {
        assert_eq!(audited(document).verdict, Verdict::NotAGateReport);
    }
    assert_eq!(
        verdict(dflash(), "/aggregate/total_accepted", json!(7)),
        Verdict::Fail,
        "integrity comes first"
    );
    assert_eq!(verdict(sweep(), "/sweep/1/recall", json!(0.9)), Verdict::Fail);
}

fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    let mut below = |key: &str, value: &Value| {
        let step = key.replace('~', "~0").replace('/', "~1");
        pointers(value, &format!("{at}/{step}"), found);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| below(key, value)),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, value)| below(&i.to_string(), value)),
        _ => {}
    }
}

#[test]
fn wrong_types_anywhere_never_panic() {
    let hostile = [
        Value::Null,
        json!("x"),
        json!(-1),
        json!(0),
        json!(u64::MAX),
        json!(1e308),
        json!(true),
        json!([]),
        json!([1e308, null]),
        json!({}),
        json!({ "/a~": "b" }),
    ];
    for document in documents() {
        let mut places = Vec::new();
        pointers(&document, "", &mut places);
        for place in places.iter().filter(|place| !place.is_empty()) {
            for value in &hostile {
                audited(edited(document.clone(), place, value.clone()));
            }
        }
    }
}
