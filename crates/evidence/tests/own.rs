//! Our own evidence: proved by counters and digests, and every deliberate edit is found. Fixtures: `tests/fixtures`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use evidence::{
    Audit, AxisName, File, GateKind, GateVerdict, PairClass, Platform, Policy, Scope, Severity, Verdict,
};
use serde_json::{Value, json};
use std::path::Path;

fn fixture(name: &str) -> File {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/evidence");
    evidence::read(&folder.join(name).as_path().into()).unwrap()
}

fn audited(file: &File) -> Audit {
    evidence::audit(std::slice::from_ref(file)).remove(0)
}

fn edited(pointer: &str, value: Value) -> Audit {
    let mut file = fixture("demo_ctx20_s5.json");
    *file.value.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = value;
    audited(&file)
}

fn errors(audit: &Audit) -> Vec<&str> {
    audit.findings.iter().filter(|f| f.severity == Severity::Error).map(|f| f.code).collect()
}

#[test]
fn an_unedited_file_has_no_error_and_knows_its_machine() {
    for name in ["demo_ctx20_s5.json", "demo_ctx20_s5_again.json", "demo_ctx20_f_theta_reforward.json"] {
        let audit = audited(&fixture(name));
        assert!(errors(&audit).is_empty(), "{name}: {:#?}", audit.findings);
        assert_eq!(audit.identity.platform, Platform::Cpu);
        assert_eq!(audit.verdict, Verdict::Pass);
        assert_eq!(audit.verdict_strict_statistics, Verdict::Inconclusive, "two samples prove nothing");
        assert!(audit.is_demo());
        assert_eq!(audit.rung_label(), "20");
    }
}

#[test]
fn a_control_that_recalls_too_is_a_finding_and_a_sweep_is_no_gate() {
    let read = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/controls");
        audited(&evidence::read(&folder.join(name).as_path().into()).unwrap())
    };
    let controls = read("demo_ctx20_controls.json");
    let found = controls.findings.iter().filter(|f| f.code == "RESTORATION_NOT_LOAD_BEARING");
    // Both controls of S5 recall; those of f_θ alone do not, and are not named.
    let named: Vec<_> = found.map(|finding| finding.pointer.as_str()).collect();
    assert_eq!(named, ["/results/no_restoration", "/results/random_restoration"]);
    assert_eq!((errors(&controls), controls.verdict), (vec![], Verdict::Pass));
    let sweep = read("demo_ctx20_alpha_sweep.json");
    assert_eq!((errors(&sweep), sweep.verdict), (vec![], Verdict::NotAGateReport));
}

#[test]
fn each_edit_is_found() {
    let edits = [
        ("/results/k3_cross_model/per_sample_decoded/0", json!("nothing"), "RECALL_FLAG_MISMATCH"),
        ("/results/k3_cross_model/per_sample_correct/1", json!(false), "RECALL_FLAG_MISMATCH"),
        ("/results/oracle/samples_correct", json!(1), "RECALL_VALUE_MISMATCH"),
        ("/results/oracle/per_sample_decoded", json!(["BETA-1409"]), "ARRAY_LEN_MISMATCH"),
        ("/results/oracle/mean_throughput_tokens_per_sec", json!(9.5), "THROUGHPUT_STAT_MISMATCH"),
        ("/results/oracle/mean_latency_s", json!(9.5), "LATENCY_STAT_MISMATCH"),
        ("/gate/recall_delta_vs_oracle_pp", json!(1.0), "GATE_VALUE_MISMATCH"),
        ("/gate/recall_delta_within_5pp", json!(false), "WITHIN_5PP_MISMATCH"),
        ("/config/seed", json!(7), "DATASET_LENGTH_MISMATCH"),
        ("/provenance/dataset/sha256", json!("0".repeat(64)), "DATASET_LENGTH_MISMATCH"),
        (
            "/attention_window/per_config/k3_cross_model/effective_keys_at_last_query_mean",
            json!(1),
            "ATTN_WINDOW_MISMATCH",
        ),
    ];
    for (pointer, value, code) in edits {
        let audit = edited(pointer, value);
        assert!(audit.has(code), "{pointer}: {:?}", errors(&audit));
        assert_eq!(audit.verdict, Verdict::Fail, "{pointer}");
    }
}

#[test]
fn counters_decide_whether_restoration_ran() {
    let gate_of = |audit: &Audit| {
        let report = evidence::gate(std::slice::from_ref(audit), &Policy::built_in());
        report.cells.into_iter().find(|cell| cell.gate == GateKind::Restoration).unwrap()
    };
    let whole = audited(&fixture("demo_ctx20_s5.json"));
    assert_eq!(gate_of(&whole).verdict, GateVerdict::Pass);
    let short = edited("/restoration/k3_cross_model/layers/3/from_f_theta", json!(1));
    assert!(short.has("RESTORATION_NOT_EXECUTED"));
    assert_eq!(short.verdict, Verdict::Vacuous);
    assert_eq!(gate_of(&short).verdict, GateVerdict::Fail);
    assert!(gate_of(&short).why.en().contains("layer 3 got 1 of"), "{}", gate_of(&short).why.en());
    let none = edited("/restoration", json!({}));
    assert!(none.has("RESTORATION_NOT_EXECUTED"));
    assert_ne!(gate_of(&none).verdict, GateVerdict::Pass, "a flag is no proof");
}

#[test]
fn a_control_that_recalls_as_much_is_named() {
    let mut file = fixture("demo_ctx20_s5.json");
    let oracle = file.value.pointer("/results/oracle").unwrap().clone();
    *file.value.pointer_mut("/results/sink_window").unwrap() = oracle;
    assert!(audited(&file).has("RESTORATION_NOT_LOAD_BEARING"));
    assert!(!audited(&fixture("demo_ctx20_s5.json")).has("RESTORATION_NOT_LOAD_BEARING"));
}

#[test]
fn two_samples_are_undecided_and_say_how_many_more() {
    let report = evidence::gate(&[audited(&fixture("demo_ctx20_s5.json"))], &Policy::built_in());
    let recall = report.cells.iter().find(|cell| cell.gate == GateKind::Recall).unwrap();
    assert_eq!((recall.verdict, recall.samples_needed), (GateVerdict::Undecided, Some(57)));
    assert_eq!(report.verdict, GateVerdict::Missing, "no rung of the ladder was measured");
    let memory = report.cells.iter().find(|cell| cell.gate == GateKind::Memory).unwrap();
    assert_eq!(memory.verdict, GateVerdict::Pass, "{memory:?}");
}

#[test]
fn comparing_names_the_first_difference() {
    let files =
        ["demo_ctx20_s5.json", "demo_ctx20_s5_again.json", "demo_ctx20_f_theta_reforward.json"].map(fixture);
    let audits = evidence::audit(&files);
    let repeat = evidence::compare(&audits[0], &audits[1]);
    assert_eq!(repeat.class, PairClass::Repeat);
    assert_eq!((repeat.agreement.n, repeat.agreement.same_sut_texts), (2, 2));
    assert_eq!(repeat.delta_pp, Some(0.0));
    let changed = evidence::compare(&audits[0], &audits[2]);
    assert_eq!(changed.class, PairClass::Ab);
    let recall = changed.axes.iter().find(|axis| axis.name == AxisName::Recall).unwrap();
    assert_eq!(recall.scope, Scope::Whole);
    assert_eq!(recall.reason.en(), "S5 differs: on against off");
}

#[test]
fn the_same_samples_of_the_same_system_twice_are_named() {
    let named = |second: &str, change: fn(&mut Value)| {
        let (first, mut second) = (fixture("demo_ctx20_s5.json"), fixture(second));
        second.place.path = "elsewhere/copy.json".into();
        change(&mut second.value);
        let audits = evidence::audit(&[first, second]);
        audits.iter().filter(|audit| audit.has("DUPLICATE_EVIDENCE")).count()
    };
    assert_eq!(named("demo_ctx20_s5.json", |_| ()), 2, "a copy");
    assert_eq!(named("demo_ctx20_s5_again.json", |_| ()), 2, "a repeat measures the same samples again");
    assert_eq!(
        named("demo_ctx20_s5.json", |value| value["config"]["n_samples"] = json!(1)),
        2,
        "a beginning"
    );
    assert_eq!(named("demo_ctx20_s5.json", |value| value["config"]["seed"] = json!(7)), 0, "other samples");
    assert_eq!(named("demo_ctx20_f_theta_reforward.json", |_| ()), 0, "another system");
}

/// Two rungs of one system, the longer one decoding ten times slower over as many K/V bytes.
#[test]
fn a_decode_rate_that_falls_without_a_reason_is_named() {
    let slowed = |factor: f64| {
        let (first, mut second) = (fixture("demo_ctx20_s5.json"), fixture("demo_ctx20_s5_again.json"));
        second.value["config"]["prompt_token_lens"] = json!([3000, 3200]);
        for row in second.value["stage_timings"]["k3_cross_model"].as_array_mut().unwrap() {
            row["decode_s"] = json!(row["decode_s"].as_f64().unwrap() * factor);
        }
        let audits = evidence::audit(&[first, second]);
        assert!(!audits[0].has("DECODE_SLOPE"), "told once, in the file with the longest prompts");
        let found = audits[1].findings.iter().find(|finding| finding.code == "DECODE_SLOPE").cloned();
        found.map(|finding| finding.data["arm"].clone())
    };
    assert_eq!(slowed(10.0), Some(json!("k3_cross_model")));
    assert_eq!(slowed(1.0), None);
}
