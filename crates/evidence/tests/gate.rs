//! The gates, on edited copies of our own evidence, and policies that are refused.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use evidence::{Audit, File, GateCell, GateKind, GateReport, GateVerdict, Platform, Policy};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn fixture() -> File {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/evidence");
    evidence::read(&folder.join("demo_ctx20_s5.json").as_path().into()).unwrap()
}

fn set(file: &mut File, pointer: &str, value: Value) {
    *file.value.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = value;
}

fn gates(files: &[File], policy: &Policy) -> GateReport {
    let audits: Vec<Audit> = evidence::audit(files);
    evidence::gate(&audits, policy)
}

/// The cell of a single file.
fn cell(file: &File, gate: GateKind) -> GateCell {
    let report = gates(std::slice::from_ref(file), &Policy::built_in());
    report.cells.into_iter().find(|cell| cell.gate == gate).unwrap()
}

fn edited(gate: GateKind, edits: &[(&str, Value)]) -> GateCell {
    let mut file = fixture();
    edits.iter().for_each(|(pointer, value)| set(&mut file, pointer, value.clone()));
    cell(&file, gate)
}

/// The fixture as if it had run at a rung of the ladder on a device. Two samples and bounds are all that a gate needs; the
/// prompts no longer fit the answers, which is an error of its own.
fn at(rung: u32, device: &str) -> File {
    let mut file = fixture();
    let (low, high) = niah::Rung(rung).line_bounds();
    file.place.path = PathBuf::from(format!("{device}_{rung}.json"));
    set(&mut file, "/config/haystack_min_lines", json!(low));
    set(&mut file, "/config/haystack_max_lines", json!(high));
    set(&mut file, "/provenance/device", json!(device));
    file
}

fn coverage(report: &GateReport, platform: Platform) -> &GateCell {
    let of = |cell: &&GateCell| cell.gate == GateKind::Coverage && cell.platform == platform;
    report.cells.iter().find(of).unwrap()
}

#[test]
fn every_rung_is_asked_for_on_both_platforms() {
    let mut files: Vec<File> = [70, 280, 1100, 3200, 5000].map(|rung| at(rung, "cuda")).into();
    files.extend([280, 70].map(|rung| at(rung, "metal")));
    files[6].value["results"].as_object_mut().unwrap().remove("oracle");
    let report = gates(&files, &Policy::built_in());
    let cuda = coverage(&report, Platform::Cuda);
    assert_eq!((cuda.verdict, cuda.figures.en()), (GateVerdict::Pass, "5 of 5 rungs"));
    let mac = coverage(&report, Platform::Mac);
    assert_eq!((mac.verdict, mac.figures.en()), (GateVerdict::Missing, "1 of 5 rungs"));
    assert_eq!(mac.why.en(), "no evidence at 1100, 3200, 5000 and only one arm at 70 padding lines");
    assert!(mac.file.is_none());
}

#[test]
fn cells_stand_by_rung_platform_and_gate() {
    let mut old = at(70, "cuda");
    set(&mut old, "/config/haystack_max_lines", json!(80));
    let mut between = at(100, "cuda");
    set(&mut between, "/provenance/dataset/rung", Value::Null);
    let files = [at(1100, "cuda"), between, at(70, "metal"), fixture(), at(70, "cuda"), old];
    let report = gates(&files, &Policy::built_in());
    let recall = report.cells.iter().filter(|cell| cell.gate == GateKind::Recall);
    let order: Vec<(&str, Platform)> = recall.map(|cell| (cell.rung.as_str(), cell.platform)).collect();
    let wanted = [
        ("20", Platform::Cpu),
        ("70", Platform::Cuda),
        ("70", Platform::Cuda),
        ("70", Platform::Mac),
        ("85–115", Platform::Cuda),
        ("1100", Platform::Cuda),
    ];
    assert_eq!(order, wanted);
    let gates: Vec<GateKind> = report.cells.iter().map(|cell| cell.gate).take(5).collect();
    use GateKind::{Coverage, Memory, Recall, Restoration};
    assert_eq!(gates, [Coverage, Coverage, Recall, Restoration, Memory]);
}

#[test]
fn nothing_given_decides_nothing() {
    let report = gates(&[], &Policy::built_in());
    assert_eq!((report.verdict, report.cells.len()), (GateVerdict::Missing, 0));
}

#[test]
fn counters_prove_restoration_and_the_identity_arm_is_checked() {
    let whole = cell(&fixture(), GateKind::Restoration);
    assert_eq!(whole.verdict, GateVerdict::Pass);
    assert!(whole.why.en().contains("restored to itself, K/V changes no text"), "{}", whole.why.en());
    let mut file = fixture();
    file.value["results"].as_object_mut().unwrap().remove("k3_identity_restore");
    let unchecked = cell(&file, GateKind::Restoration);
    assert_eq!(unchecked.verdict, GateVerdict::Pass);
    assert!(unchecked.why.en().contains("no identity check ran"), "{}", unchecked.why.en());
    let other = edited(
        GateKind::Restoration,
        &[("/results/k3_identity_restore/per_sample_decoded/0", json!("BETA"))],
    );
    assert_eq!(other.verdict, GateVerdict::Fail);
    assert!(other.why.en().contains("1 of 2 equal the oracle's, 1 hits against 2"), "{}", other.why.en());
}

/// The fixture as a file of the reference: no provenance, no counters.
fn of_the_reference(build_s: Value) -> File {
    let mut file = fixture();
    let fields = file.value.as_object_mut().unwrap();
    fields.remove("provenance");
    fields.remove("restoration");
    for row in file.value["stage_timings"]["k3_cross_model"].as_array_mut().unwrap() {
        row["build_restoration_s"] = build_s.clone();
    }
    file
}

#[test]
fn a_time_is_no_proof() {
    let slow = cell(&of_the_reference(json!(1.5)), GateKind::Restoration);
    assert_eq!((slow.verdict, slow.figures.en()), (GateVerdict::Undecided, "1.500 s"));
    let instant = cell(&of_the_reference(json!(0.001)), GateKind::Restoration);
    assert_eq!(instant.verdict, GateVerdict::Vacuous, "{}", instant.why.en());
    let untimed = cell(&of_the_reference(Value::Null), GateKind::Restoration);
    assert_eq!(untimed.verdict, GateVerdict::Missing);
}

const GIB: u64 = 1 << 30;

fn memory(arm: &str, kind: &str, bytes: u64) -> Value {
    json!({ arm: { "figures": [{ "label": "peak", "kind": kind, "bytes": bytes }] } })
}

#[test]
fn only_measured_memory_counts() {
    let of = |memory: Value| edited(GateKind::Memory, &[("/memory", memory)]);
    assert_eq!(of(memory("k3_cross_model", "allocator-peak", 24 * GIB - 1)).verdict, GateVerdict::Pass);
    assert_eq!(of(memory("k3_cross_model", "allocator-peak", 24 * GIB)).verdict, GateVerdict::Fail);
    assert_eq!(of(memory("engine_process", "process-footprint", 25 * GIB)).verdict, GateVerdict::Fail);
    let formula = of(memory("k3_cross_model", "formula", GIB));
    assert_eq!(formula.verdict, GateVerdict::Missing);
    assert_eq!(formula.why.en(), "nothing of device or process was measured; peak of 1.00 GiB is a formula");
    let oracle = of(memory("oracle", "allocator-peak", 60 * GIB));
    assert_eq!(oracle.verdict, GateVerdict::Missing, "the oracle need not fit: {}", oracle.why.en());
}

fn policy(text: &str) -> Result<Policy, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("{}.toml", files::sha256(text.as_bytes())));
    files::write_atomic(&path, text.as_bytes()).unwrap();
    Policy::read(&path).map_err(|problem| problem.to_string().replace(path.to_str().unwrap(), "policy.toml"))
}

#[test]
fn thresholds_come_from_the_policy() {
    let strict = policy("memory_limit_gib = 0.001\nplatforms = [\"cpu\"]\nladder = [20]\n").unwrap();
    assert_eq!(strict.values.recall_margin_pp, 5.0, "a key left out keeps its built-in value");
    assert_ne!(strict.sha256, Policy::built_in().sha256);
    let report = gates(&[fixture()], &strict);
    assert_eq!(report.policy, strict);
    assert_eq!(report.cells.len(), 4);
    assert_eq!(report.cells[0].verdict, GateVerdict::Pass, "{}", report.cells[0].why.en());
    assert_eq!(
        (report.cells[3].title.en(), report.cells[3].verdict),
        ("Memory under 0.001 GiB", GateVerdict::Fail)
    );
    let wide = gates(&[fixture()], &policy("recall_margin_pp = 50\nconfidence = 0.5").unwrap());
    let recall = wide.cells.iter().find(|cell| cell.gate == GateKind::Recall).unwrap();
    assert_eq!((recall.title.en(), recall.verdict), ("Recall within 50 pp", GateVerdict::Pass));
}

#[test]
fn recall_of_nothing_says_nothing() {
    let mut file = fixture();
    set(&mut file, "/gate", json!({}));
    for arm in ["oracle", "k3_cross_model"] {
        let none = json!({ "per_sample_decoded": ["", ""], "per_sample_correct": [false, false] });
        file.value["results"][arm] = none;
    }
    let recall = cell(&file, GateKind::Recall);
    assert_eq!(recall.verdict, GateVerdict::Vacuous, "{}", recall.why.en());
}

#[test]
fn a_policy_that_cannot_be_used_says_where_and_why() {
    let wrong = [
        "recall_margin_pp = -1",
        "# wide\nrecall_margin_pp = 101",
        "recall_margin_pp = nan",
        "recall_margin_pp = 0.125",
        "recall_margin_pp = \"five\"",
        "confidence = 1",
        "memory_limit_gib = 0",
        "min_restoration_s = inf",
        "ladder = []",
        "ladder = [70, 70]",
        "ladder = [\n  70,\n  -1,\n]",
        "platforms = [\"cuda\", \"amiga\"]",
        "platforms = \"cuda\"",
        "\nrecall_margin = 5",
        "[recall]\nmargin_pp = 5",
        "recall_margin_pp = ",
        "confidence = 0.9\nconfidence = 0.99",
        "mem\u{fc}ry",
    ];
    let told: Vec<String> = wrong.iter().map(|text| policy(text).unwrap_err()).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn what_is_undecided_or_was_never_measured_is_wanted_with_the_samples_that_decide_it() {
    let policy = Policy::built_in();
    let wanted = |files: &[File], platform| {
        let audits = evidence::audit(files);
        evidence::wanted(&audits, &evidence::gate(&audits, &policy), platform)
    };
    // Two clean pairs on the CPU, of which the policy asks nothing but what was begun: 57 more decide.
    let found = wanted(&[fixture()], Platform::Cpu).unwrap();
    assert_eq!((found.rungs, found.samples), (vec![20], 59));
    // A second file that decides the rung: the first one stays undecided, and nothing is wanted.
    let audits = evidence::audit(&[fixture()]);
    let mut report = evidence::gate(&audits, &policy);
    let mut decided = report.cells.iter().find(|cell| cell.gate == GateKind::Recall).unwrap().clone();
    decided.verdict = GateVerdict::Pass;
    report.cells.push(decided);
    assert_eq!(evidence::wanted(&audits, &report, Platform::Cpu), None);
    // Rungs of the ladder that a platform of the policy lacks; what has failed is decided.
    let found = wanted(&[at(70, "cuda"), at(280, "cuda")], Platform::Cuda).unwrap();
    assert_eq!((found.rungs, found.samples), (vec![1100, 3200, 5000], 59));
    assert_eq!(wanted(&[at(70, "cuda")], Platform::Cpu), None);
}
