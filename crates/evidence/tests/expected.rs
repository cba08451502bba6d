//! Every file of the reference's corpus against its expected results, and deliberate edits that must be found.
//! Skipped when `KAKEYA_GATE_REFERENCE` is unset.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use evidence::{Audit, File, FileDocument, FindingDocument, Place, Severity};
use serde_json::{Value, json};
use std::path::PathBuf;

fn reference() -> Option<PathBuf> {
    let root = std::env::var_os("KAKEYA_GATE_REFERENCE").map(PathBuf::from);
    if root.is_none() {
        eprintln!("skipped: KAKEYA_GATE_REFERENCE is unset");
    }
    root.map(|root| root.join("evidence"))
}

fn read_json(path: PathBuf) -> Value {
    serde_json::from_slice(&std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
        .unwrap()
}

/// Numbers are equal when they are the same number: 24 and 24.0 are.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(list) => list.iter().map(plain).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), plain(value))).collect(),
        other => other.clone(),
    }
}

/// The whole corpus in one scan, because some rules look at the neighbours.
#[test]
fn every_file_equals_its_expected_result() {
    let Some(folder) = reference() else { return };
    let expected = read_json(folder.join("expected.json"));
    let wanted = expected["files"].as_array().unwrap();
    assert!(wanted.len() > 100);
    let read = |want: &Value| {
        evidence::read(&Place {
            path: folder.join("corpus").join(want["path"].as_str().unwrap()),
            root: Some(folder.join("corpus")),
        })
        .unwrap()
    };
    let files: Vec<File> = wanted.iter().map(read).collect();
    let audits = evidence::audit(&files);
    let mut wrong = Vec::new();
    for (want, audit) in wanted.iter().zip(&audits) {
        let path = want["path"].as_str().unwrap();
        wrong.extend(differing_fields(audit, want));
        let (got, want) = (findings(audit), expected_findings(want));
        wrong.extend(got.iter().filter(|line| !want.contains(line)).map(|line| format!("{path} + {line}")));
        wrong.extend(want.iter().filter(|line| !got.contains(line)).map(|line| format!("{path} - {line}")));
        if got.len() != want.len() {
            wrong.push(format!("{path}: {} findings, want {}", got.len(), want.len()));
        }
    }
    assert!(wrong.is_empty(), "{} differences\n{}", wrong.len(), wrong.join("\n"));
}

/// What users get of a file, without what expected.json does not know; paths are those below the corpus.
fn document(audit: &Audit) -> Value {
    let mut document = json!(FileDocument::from(audit));
    if let Some(recomputed) = document.get_mut("recomputed").and_then(Value::as_object_mut) {
        for beyond in ["delta_ci95_tango_pp", "mcnemar_p", "pairs_needed"] {
            recomputed.remove(beyond);
        }
    }
    for path in ["/path", "/cross_file/oracle_source"] {
        if let Some(path) = document.pointer_mut(path) {
            *path = json!(path.as_str().unwrap().split_once("/corpus/").unwrap().1);
        }
    }
    document
}

/// Every expected field but the findings, which are compared apart; an expected null may be absent.
fn differing_fields(audit: &Audit, want: &Value) -> Vec<String> {
    let (path, got) = (want["path"].as_str().unwrap(), document(audit));
    let keys = want.as_object().unwrap().keys().map(String::as_str).chain(["cross_file"]);
    keys.filter(|key| !["findings", "note"].contains(key))
        .filter_map(|key| {
            let mut want = want[key].clone();
            want.as_object_mut().map(|fields| fields.remove("note"));
            let same = plain(&got[key]) == plain(&want);
            (!same).then(|| format!("{path} {key}:\n  got  {}\n  want {want}", got[key]))
        })
        .collect()
}

/// Findings that the dictionary knows, as sorted lines: code, severity and attached numbers, without prose.
fn findings(audit: &Audit) -> Vec<String> {
    const BEYOND: [&str; 3] = ["RESTORATION_NOT_LOAD_BEARING", "DUPLICATE_EVIDENCE", "DECODE_SLOPE"];
    let known = audit.findings.iter().filter(|finding| !BEYOND.contains(&finding.code));
    let mut lines: Vec<String> =
        known.map(|finding| finding_line(&json!(FindingDocument::from(finding)))).collect();
    lines.sort();
    lines
}

fn expected_findings(file: &Value) -> Vec<String> {
    let mut lines: Vec<String> = file["findings"].as_array().unwrap().iter().map(finding_line).collect();
    lines.sort();
    lines
}

fn finding_line(finding: &Value) -> String {
    const PROSE: [&str; 7] = ["note", "formula", "model", "pointer", "message", "why", "fix"];
    let fields = finding.as_object().unwrap().iter().filter(|(key, _)| !PROSE.contains(&key.as_str()));
    let mut pairs: Vec<String> = fields.map(|(key, value)| format!("{key}={}", plain(value))).collect();
    pairs.sort();
    format!("{} {}", finding["code"].as_str().unwrap(), pairs.join(" "))
}

/// `a.b[3]="x"`: the edits of expected.json.
fn edit(value: &mut Value, edit: &str) {
    let (path, new) = edit.split_once('=').unwrap();
    let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
    let new: Value = serde_json::from_str(new).unwrap();
    match value.pointer_mut(&pointer) {
        Some(slot) => *slot = new,
        None => {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            value.pointer_mut(parent).unwrap()[key] = new;
        }
    }
}

#[test]
fn deliberate_edits_are_found() {
    let Some(folder) = reference() else { return };
    let expected = read_json(folder.join("expected.json"));
    for mutation in expected["mutation_tests"].as_array().unwrap() {
        let base = folder.join("corpus").join(mutation["base"].as_str().unwrap());
        let mut file: File = evidence::read(&base.as_path().into()).unwrap();
        edit(&mut file.value, mutation["set"].as_str().unwrap());
        let audit = evidence::audit(&[file]).remove(0);
        for code in mutation["expect_codes"].as_array().unwrap() {
            assert!(audit.has(code.as_str().unwrap()), "{mutation}: {code} not found");
        }
        assert_eq!(audit.verdict, evidence::Verdict::Fail, "{mutation}");
        assert!(audit.findings.iter().any(|finding| finding.severity == Severity::Error));
    }
}

#[test]
fn every_pair_equals_its_expected_result() {
    let Some(folder) = reference() else { return };
    let expected = read_json(folder.join("expected.json"));
    let mut wrong = Vec::new();
    let pairs = expected["pairs"].as_array().unwrap();
    assert!(pairs.len() > 15);
    for pair in pairs {
        let audits = ["a", "b"].map(|side| {
            let path = folder.join("corpus").join(pair[side].as_str().unwrap());
            evidence::audit(&[evidence::read(&path.as_path().into()).unwrap()]).remove(0)
        });
        let comparison = evidence::compare(&audits[0], &audits[1]);
        for key in ["class", "verdict", "comparable"] {
            let got = &serde_json::to_value(&comparison).unwrap()[key];
            if plain(got) != plain(&pair[key]) {
                wrong.push(format!("{} {} {key}: {got}, want {}", pair["a"], pair["b"], pair[key]));
            }
        }
        for (key, want) in pair["expect"].as_object().into_iter().flatten() {
            let got = expectation(&comparison, key);
            if plain(&got) != plain(want) {
                wrong.push(format!("{} {} {key}: {got}, want {want}", pair["a"], pair["b"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// RULES §7.4.
fn expectation(comparison: &evidence::Comparison, key: &str) -> Value {
    let agreement = &comparison.agreement;
    let of_n = |count: usize| json!(format!("{count}/{}", agreement.n));
    match key {
        "flags_same" => of_n(agreement.same_flags),
        "diff" => json!(agreement.differing),
        "text_same_sut" => of_n(agreement.same_sut_texts),
        "text_same_oracle" | "oracle_text_same" => of_n(agreement.same_oracle_texts),
        "text_same" => of_n(agreement.same_cross_texts),
        "delta_pp" => json!(comparison.delta_pp),
        "gate_b_1pp" => json!(comparison.codec_within_1pp.map(|within| if within { "pass" } else { "fail" })),
        "oracle" => json!(agreement.oracle_hits),
        "recall" => json!(agreement.sut_hits.map(|hits| hits.map(|hits| hits as f64 / agreement.n as f64))),
        "peak_equal" => json!(comparison.peak_equal),
        other => panic!("unknown expectation {other}"),
    }
}
