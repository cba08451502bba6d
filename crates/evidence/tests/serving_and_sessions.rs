//! Serving, long sessions and platform tests: every rule fires on a small document, and one edit silences it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use evidence::{Audit, File, Verdict};
use serde_json::{Value, json};
use std::path::Path;

fn audit(value: &Value) -> Audit {
    let bytes = serde_json::to_vec(value).unwrap();
    evidence::audit(&[File::parse(Path::new("a.json").into(), &bytes).unwrap()]).remove(0)
}

fn edited(value: &Value, pointer: &str, new: Value) -> Value {
    let mut value = value.clone();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match value.pointer_mut(parent).unwrap() {
        Value::Array(list) => list[key.parse::<usize>().unwrap()] = new,
        Value::Object(fields) => drop(fields.insert(key.to_owned(), new)),
        _ => panic!("{pointer}"),
    }
    value
}

fn codes(audit: &Audit) -> Vec<&'static str> {
    audit.findings.iter().map(|finding| finding.code).collect()
}

/// The code fires at the pointer with exactly these values.
fn fires(value: &Value, code: &str, pointer: &str, data: Value) {
    let audit = audit(value);
    let found = audit.findings.iter().find(|finding| finding.code == code);
    let found = found.unwrap_or_else(|| panic!("{code} not in {:?}", codes(&audit)));
    assert_eq!(found.pointer, pointer, "{code}");
    assert_eq!(plain(&Value::Object(found.data.clone())), plain(&data), "{code}");
    assert!(
        !found.message.en().is_empty() && !found.why.en().is_empty() && !found.fix.en().is_empty(),
        "{code}"
    );
}

fn silent(value: &Value, code: &str) {
    assert!(!audit(value).has(code), "{code}: {value}");
}

/// Fires on the document, and no more after the edit.
fn rule(value: &Value, code: &str, pointer: &str, data: Value, (place, new): (&str, Value)) {
    fires(value, code, pointer, data);
    silent(&edited(value, place, new), code);
}

/// 24 and 24.0 are the same number.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(list) => list.iter().map(plain).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), plain(value))).collect(),
        other => other.clone(),
    }
}

fn recall(audit: &Audit) -> Vec<(&str, Option<f64>)> {
    audit.recall.as_ref().unwrap().iter().map(|(label, recall)| (label.as_str(), *recall)).collect()
}

fn cuda_multitenant() -> Value {
    json!({ "kind": "k3_cuda_multitenant_parallel", "schema_version": 1, "results": [
        { "agents": 1, "restored_recall": 1.0, "ar_recall": 0.5 },
        { "agents": 8, "restored_recall": 1.0, "ar_recall": 1.0, "peak_gpu_gb": 57.7 },
    ] })
}

#[test]
fn cuda_multitenant_has_one_peak_and_no_texts() {
    let file = cuda_multitenant();
    fires(&file, "NO_PER_SAMPLE", "/results", json!({}));
    let edit = ("/results/1/peak_gpu_gb", json!(null));
    rule(&file, "PEAK_SHARED_BY_ARMS", "/results/1/peak_gpu_gb", json!({}), edit);
    let audit = audit(&file);
    assert_eq!(audit.n, Some(8));
    assert_eq!(recall(&audit)[1..3], [("n1 ar", Some(0.5)), ("n8 restored", Some(1.0))]);
    assert_eq!((audit.verdict, audit.claimed_gate), (Verdict::NotAGateReport, None));
}

fn vllm() -> Value {
    json!({ "kind": "vllm_multitenant_parallel", "schema_version": 1, "config": { "gen_tokens": 128 },
        "kv_pool": null,
        "results": [
            { "agents": 1, "decode_aggregate_tps": 127.0, "e2e_aggregate_tps": 128.0, "recall": null,
              "torch_peak_alloc_gb": 0.0 },
            { "agents": 4, "decode_aggregate_tps": 300.0, "e2e_aggregate_tps": 200.0, "recall": 1.0,
              "torch_peak_alloc_gb": null },
        ] })
}

#[test]
fn vllm_reads_no_memory_and_derives_its_decode_rate() {
    let file = vllm();
    let pointer = "/results/0/torch_peak_alloc_gb";
    let edit = ("/results/1/torch_peak_alloc_gb", json!(60.5));
    rule(&file, "MEM_ZERO_READING", pointer, json!({ "field": "torch_peak_alloc_gb" }), edit);
    rule(&file, "KV_POOL_NULL", "/kv_pool", json!({}), ("/kv_pool", json!(16)));
    let data = json!({ "agents": [1], "ratio": 0.9922 });
    let pointer = "/results/0/decode_aggregate_tps";
    rule(&file, "DECODE_RATE_IS_E2E", pointer, data, (pointer, json!(140.0)));
    silent(&edited(&file, "/config/gen_tokens", json!(0)), "DECODE_RATE_IS_E2E");
    silent(&edited(&file, "/results", json!([])), "MEM_ZERO_READING");
    let audit = audit(&file);
    assert_eq!(audit.n, Some(4));
    assert_eq!(recall(&audit), [("n1", None), ("n4", Some(1.0))]);
}

fn engine() -> Value {
    json!({ "kind": "kakeya_engine_throughput", "config": { "admission_ceiling": 34 }, "results": [
        { "agents": 30, "recall": 1.0 },
        { "agents": 40, "recall": 1.0 },
        { "agents": 60, "oom": true },
    ] })
}

#[test]
fn engine_runs_above_its_ceiling_and_out_of_memory() {
    let file = engine();
    rule(&file, "OOM", "/results/2/oom", json!({ "agents": [60] }), ("/results/2/oom", json!(false)));
    let data = json!({ "ceiling": 34, "agents": [40] });
    let edit = ("/config/admission_ceiling", json!(40));
    rule(&file, "ADMISSION_CEILING_EXCEEDED", "/config/admission_ceiling", data, edit);
    assert_eq!(recall(&audit(&file))[2], ("n60", None));
}

fn bounded_decode() -> Value {
    json!({ "kind": "gemma_bounded_decode", "config": { "sliding_window": 68 }, "results": [
        { "agents": 2, "recall": 1.0 }, { "agents": 4, "oom": true } ] })
}

#[test]
fn bounded_decode_is_a_control_without_restoration() {
    let file = bounded_decode();
    let pointer = "/config/sliding_window";
    fires(&file, "NO_RESTORATION_CONTROL", pointer, json!({ "sliding_window": 68 }));
    rule(&file, "OOM", "/results/1/oom", json!({ "agents": [4] }), ("/results/1/oom", json!(null)));
    silent(&edited(&file, "/config/admission_ceiling", json!(1)), "ADMISSION_CEILING_EXCEEDED");
    assert_eq!(audit(&file).n, Some(4));
}

fn batched() -> Value {
    json!({ "kind": "mlx_batched_multitenant", "config": { "sessions": 8 },
        "serialized": { "aggregate_tps": 10.0, "recall": 1.0 },
        "batched": { "aggregate_tps": 25.0, "recall": 0.125 },
        "batched_speedup_vs_serialized": 2.5 })
}

#[test]
fn batched_speed_counts_only_with_recall_and_follows_from_its_rates() {
    let file = batched();
    let claim = "/batched_speedup_vs_serialized";
    let data = json!({ "recall": 0.125, "speedup": 2.5 });
    rule(&file, "SPEEDUP_AT_BROKEN_RECALL", claim, data, ("/batched/recall", json!(1.0)));
    let wrong = edited(&file, claim, json!(2.7));
    let data = json!({ "claimed": 2.7, "recomputed": 2.5 });
    rule(&wrong, "SPEEDUP_MISMATCH", claim, data, (claim, json!(2.495)));
    assert_eq!(audit(&wrong).verdict, Verdict::Fail);
    assert_eq!(audit(&file).verdict, Verdict::NotAGateReport);
    silent(&edited(&file, "/serialized/aggregate_tps", json!(0)), "SPEEDUP_MISMATCH");
    assert_eq!(audit(&file).n, Some(8));
    assert_eq!(recall(&audit(&file)), [("serialized", Some(1.0)), ("batched", Some(0.125))]);
    let scheduler = json!({ "kind": "k3_served_batched_scheduler", "batched_scheduler": { "recall": 0.5 } });
    fires(&scheduler, "SPEEDUP_AT_BROKEN_RECALL", claim, json!({ "recall": 0.5, "speedup": null }));
}

fn served() -> Value {
    json!({ "kind": "k3_grpc_multitenant_e2e", "per_session_recall": 0.5, "results": [
        { "answer": "MAPLE-7890", "recall": true, "decoded": "It is **MAPLE-7890**." },
        { "answer": "IOTA-8961", "recall": false, "decoded": "It is iota-8961." },
    ] })
}

#[test]
fn served_sessions_are_recounted() {
    let file = served();
    silent(&file, "RECALL_FLAG_MISMATCH");
    assert_eq!(audit(&file).n, Some(2));
    assert_eq!(recall(&audit(&file)), [("sessions", Some(0.5))]);
    for (place, new) in [
        ("/results/1/recall", json!(true)),
        ("/results/0/recall", json!(0)),
        ("/per_session_recall", json!(1.0)),
    ] {
        let wrong = edited(&file, place, new);
        fires(&wrong, "RECALL_FLAG_MISMATCH", place, json!({}));
        assert_eq!(audit(&wrong).verdict, Verdict::Fail);
    }
    silent(&edited(&file, "/results/0/recall", json!(1)), "RECALL_FLAG_MISMATCH");
    let unread = edited(&file, "/results/0/decoded", json!(null));
    silent(&unread, "RECALL_FLAG_MISMATCH");
    assert_eq!(recall(&audit(&unread)), [("sessions", None)]);
}

fn load_test() -> Value {
    json!({ "kind": "grpc_agent_capacity_loadtest", "schema_version": 1,
        "config": { "backend": "cpu", "verifier_id": "Qwen/Qwen3-0.6B" },
        "summary": { "node_kv_upper_bound_mb": 1996.49 } })
}

#[test]
fn the_load_test_measures_a_proxy_and_multiplies() {
    let file = load_test();
    let pointer = "/config/verifier_id";
    let data = json!({ "verifier": "Qwen/Qwen3-0.6B", "backend": "cpu" });
    rule(&file, "PROXY_MODEL", pointer, data, (pointer, json!("google/gemma-4-26B-A4B-it")));
    let pointer = "/summary/node_kv_upper_bound_mb";
    rule(&file, "MEM_ANALYTIC", pointer, json!({ "value_mb": 1996.49 }), (pointer, json!(0)));
    let audit = audit(&file);
    assert_eq!((audit.verdict, audit.claimed_gate), (Verdict::NotAGateReport, None));
}

fn pressure() -> Value {
    json!({ "kind": "mlx_multitenant_pressure", "schema_version": 1, "ab": { "agent_capacity_x": 4.23 },
        "results": {
        "native": { "max_agents_measured": 15, "derived_max_agents_in_kv_budget": 22 },
        "s5": { "max_agents_measured": 32, "derived_max_agents_in_kv_budget": 93 } } })
}

#[test]
fn derived_capacity_is_held_against_the_measured_one() {
    let file = pressure();
    let pointer = "/ab/agent_capacity_x";
    let data = json!({ "measured": { "native": 15, "s5": 32 }, "derived": { "native": 22, "s5": 93 },
        "measured_ratio": 2.13, "claimed_ratio": 4.23 });
    rule(&file, "CAPACITY_DERIVED_NOT_MEASURED", pointer, data, (pointer, json!(2.13)));
    let none = edited(&file, "/results/native/max_agents_measured", json!(0));
    silent(&none, "CAPACITY_DERIVED_NOT_MEASURED");
}

fn deployment() -> Value {
    json!({ "kind": "mlx_kakeya_deployment_benchmark", "results": [
        { "context_length": 512, "kakeya": { "error": "TypeError" }, "vanilla": { "peak_memory_bytes": 10 } },
        { "context_length": 2048, "kakeya": { "kv_bytes": 5, "peak_memory_bytes": 30 },
          "vanilla": { "peak_memory_bytes": 20 } },
    ] })
}

#[test]
fn the_deployment_benchmark_failed_or_saved_nothing() {
    let file = deployment();
    let pointer = "/results/0/kakeya/error";
    let edit = ("/results/0/kakeya", json!({ "kv_bytes": 5, "peak_memory_bytes": 9 }));
    rule(&file, "SUT_NEVER_RAN", pointer, json!({ "contexts": [512] }), edit);
    let pointer = "/results/1/kakeya/peak_memory_bytes";
    let data = json!({ "ctx": 2048, "sut_peak": 30, "oracle_peak": 20 });
    rule(&file, "MEM_PEAK_NOT_LOWER", pointer, data, (pointer, json!(20)));
    silent(&edited(&file, "/results/1/kakeya/kv_bytes", json!(null)), "MEM_PEAK_NOT_LOWER");
    fires(&file, "NO_RECALL", "/results", json!({}));
}

fn primary_decode() -> Value {
    json!({ "kind": "primary_decode_mac_acceptance", "schema_version": 1, "status": "passed",
        "config": { "tokenizer_id": "models/gemma-4-26B-A4B-it-mlx-4bit" }, "gates": [
            { "gate": "footprint", "status": "passed", "metrics": {
              "fresh_process_footprint_bytes": 414_597_120_u64,
              "final_process_footprint_bytes": 54_394_880, "growth_bytes": -360_202_240 } },
            { "gate": "endurance", "status": "passed", "metrics": { "aggregate": { "kv_bounded": false,
              "min_kv_live_bytes": 9, "max_kv_live_bytes": 462 } } },
        ] })
}

#[test]
fn the_primary_decoder_contradicts_itself() {
    let file = primary_decode();
    let pointer = "/gates/1/metrics/aggregate/kv_bounded";
    let data =
        json!({ "gate": "endurance", "status": "passed", "kv_bounded": false, "min_kv": 9, "max_kv": 462 });
    rule(&file, "STATUS_CONTRADICTION", pointer, data, (pointer, json!(true)));
    silent(&edited(&file, "/gates/1/status", json!("failed")), "STATUS_CONTRADICTION");
    let pointer = "/gates/0/metrics/fresh_process_footprint_bytes";
    let data = json!({ "fresh": 414_597_120, "final": 54_394_880, "growth": -360_202_240 });
    rule(&file, "MEM_FOOTPRINT_SCOPE", pointer, data, (pointer, json!(6_500_000_000_u64)));
    silent(&edited(&file, "/config/tokenizer_id", json!("gemma")), "MEM_FOOTPRINT_SCOPE");
    assert_eq!(
        audit(&file).claimed_gate,
        Some(json!({ "status": "passed", "footprint": "passed", "endurance": "passed" }))
    );
    assert_eq!(audit(&file).verdict, Verdict::Inconclusive);
    let clean = edited(&edited(&file, "/gates/1/status", json!("failed")), pointer, json!(7_000_000_000_u64));
    assert_eq!(audit(&clean).verdict, Verdict::Pass);
    assert_eq!(audit(&edited(&clean, "/status", json!("failed"))).verdict, Verdict::Fail);
}

fn long_run() -> Value {
    json!({ "kind": "bench_session_long_run", "schema_version": 1, "agg": { "kv_bounded": true },
        "turns": [{ "kv_live_bytes": 0 }, { "kv_live_bytes": 0 }] })
}

#[test]
fn a_session_whose_memory_reads_zero_is_vacuous() {
    let file = long_run();
    let data = json!({ "field": "kv_live_bytes", "turns": 2, "claimed_kv_bounded": true });
    let edit = ("/turns/1/kv_live_bytes", json!(4096));
    rule(&file, "MEM_ZERO_READING", "/turns/0/kv_live_bytes", data, edit.clone());
    assert_eq!((audit(&file).n, audit(&file).verdict), (Some(2), Verdict::Vacuous));
    assert_eq!(audit(&file).claimed_gate, Some(json!({ "kv_bounded": true })));
    assert_eq!(audit(&edited(&file, edit.0, edit.1)).verdict, Verdict::NotAGateReport);
    silent(&edited(&file, "/turns", json!([])), "MEM_ZERO_READING");
}

fn long_session() -> Value {
    json!({ "turn_spacing_s": 5.0, "baseline_metrics": {}, "turns": [{}], "errors": [{}, {}], "partial": true,
        "agg": { "n_turns": 1, "kv_bounded": true } })
}

#[test]
fn a_session_of_errors_shows_nothing() {
    let file = long_session();
    let data = json!({ "ok": 1, "errors": 2, "claimed_kv_bounded": true });
    rule(&file, "RUN_ERRORS", "/errors", data, ("/errors", json!([])));
    rule(&file, "PARTIAL_RUN", "/partial", json!({}), ("/partial", json!(false)));
    assert_eq!((audit(&file).n, audit(&file).verdict), (Some(1), Verdict::Vacuous));
    for (place, new) in [("/agg/kv_bounded", json!(null)), ("/errors", json!([{}]))] {
        assert_eq!(audit(&edited(&file, place, new)).verdict, Verdict::NotAGateReport, "{place}");
    }
    let aborted = json!({ "report_type": "x", "partial_source": "y" });
    assert_eq!(codes(&audit(&aborted)), ["NO_KIND"]);
    assert_eq!(audit(&aborted).verdict, Verdict::NotAGateReport);
}

fn steps() -> Value {
    json!({ "kind": "grpc_runtime_smoke", "schema_version": 1, "all_passed": true, "steps_total": 2,
        "steps": [{ "passed": true }, { "passed": true }] })
}

fn suite() -> Value {
    json!({ "kind": "pr_b1_mac_grpc_tests", "schema_version": 1,
        "junit": { "tests": 2, "failures": 0, "errors": 0, "skipped": 0, "cases": [{}, {}] } })
}

fn flags() -> Value {
    json!({ "kind": "pr_g5_mac_prewarm", "schema_version": 1, "server_preflight_exit_code": 2,
        "server_preflight_passed": true })
}

#[test]
fn platform_tests_are_recounted() {
    let claimed = |value: &Value| audit(value).claimed_gate.unwrap();
    assert_eq!(claimed(&steps()), json!({ "all_passed": true }));
    assert_eq!(claimed(&suite()), json!({ "tests": 2, "failures": 0, "errors": 0, "skipped": 0 }));
    let flagged = json!({ "server_preflight_exit_code": 2, "server_preflight_passed": true });
    assert_eq!(claimed(&flags()), flagged);
    for file in [steps(), suite(), flags()] {
        assert_eq!(audit(&file).verdict, Verdict::Pass, "{file}");
    }
    for (file, place, new) in [
        (steps(), "/steps/1/passed", json!(false)),
        (steps(), "/steps_total", json!(3)),
        (suite(), "/junit/failures", json!(1)),
        (suite(), "/junit/errors", json!(1)),
        (suite(), "/junit", json!({ "tests": 0, "failures": 0, "errors": 0 })),
        (flags(), "/server_preflight_passed", json!(false)),
    ] {
        let audit = audit(&edited(&file, place, new));
        assert_eq!((audit.verdict, audit.integrity_ok), (Verdict::Fail, true), "{place}");
    }
    let miscounted = edited(&suite(), "/junit/tests", json!(3));
    let data = json!({ "cases": 2, "tests": 3 });
    rule(&miscounted, "JUNIT_COUNT_MISMATCH", "/junit/tests", data, ("/junit/cases", json!(null)));
    assert_eq!(audit(&miscounted).verdict, Verdict::Fail);
}

fn junit() -> Value {
    json!({ "backend": "mlx", "exit_code": 1, "host": {}, "coverage": {},
        "junit": { "tests": 170, "failures": 0, "errors": 0, "skipped": 3 } })
}

#[test]
fn a_suite_that_ends_badly_without_a_failing_test_is_named() {
    let file = junit();
    rule(&file, "TESTS_SKIPPED", "/junit/skipped", json!({ "n": 3 }), ("/junit/skipped", json!(0)));
    let data = json!({ "exit_code": 1, "tests": 170 });
    let edit = ("/junit/failures", json!(1));
    rule(&file, "EXIT_NONZERO_NO_FAILURES", "/exit_code", data, edit);
    assert_eq!(audit(&file).verdict, Verdict::Fail);
    let clean = edited(&file, "/exit_code", json!(0));
    silent(&clean, "EXIT_NONZERO_NO_FAILURES");
    assert_eq!(audit(&clean).verdict, Verdict::Pass);
    let claimed = json!({ "exit_code": 0, "tests": 170, "failures": 0, "errors": 0, "skipped": 3 });
    assert_eq!(audit(&clean).claimed_gate, Some(claimed));
}

fn chat() -> Value {
    json!({ "kind": "mac_gemma4_kakeya_fused_chat", "schema_version": 1, "f_theta_intended": true,
        "fallbacks_taken": [], "turns": [{ "text": "Paris.", "blocks": 2, "f_theta_ran": true }] })
}

/// Pointers of every value in a document.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| pointers(value, &format!("{at}/{key}"), found));
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, value)| pointers(value, &format!("{at}/{i}"), found));
        }
        _ => {}
    }
}

#[test]
fn wrong_types_anywhere_never_panic() {
    let documents = [
        cuda_multitenant(),
        vllm(),
        engine(),
        bounded_decode(),
        batched(),
        served(),
        load_test(),
        pressure(),
        deployment(),
        primary_decode(),
        long_run(),
        long_session(),
        steps(),
        suite(),
        flags(),
        junit(),
        chat(),
    ];
    let hostile = [
        json!(null),
        json!("x"),
        json!(-1),
        json!(0),
        json!(1e308),
        json!(u64::MAX),
        json!(true),
        json!([null, [], "x"]),
        json!({ "é/~": {} }),
    ];
    for document in documents {
        let mut places = Vec::new();
        pointers(&document, "", &mut places);
        for place in places.iter().filter(|place| !place.is_empty() && *place != "/kind") {
            for new in &hostile {
                audit(&edited(&document, place, new.clone()));
            }
        }
    }
}
