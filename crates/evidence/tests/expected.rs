//! Every file of the reference's corpus against its expected results, and deliberate edits that must be found.
//! Skipped when `KAKEYA_GATE_REFERENCE` is unset.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use evidence::{Audit, File, MemoryKind, Niah, NiahKind, Paired, Place, Severity};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
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

fn round(value: f64, places: usize) -> f64 {
    format!("{value:.places$}").parse().unwrap()
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
        for (key, got) in fields(audit) {
            let mut want = want[key].clone();
            want.as_object_mut().map(|fields| fields.remove("note"));
            if plain(&got) != plain(&want) {
                wrong.push(format!("{path} {key}:\n  got  {got}\n  want {want}"));
            }
        }
        let (got, want) = (findings(audit), expected_findings(want));
        wrong.extend(got.iter().filter(|line| !want.contains(line)).map(|line| format!("{path} + {line}")));
        wrong.extend(want.iter().filter(|line| !got.contains(line)).map(|line| format!("{path} - {line}")));
        if got.len() != want.len() {
            wrong.push(format!("{path}: {} findings, want {}", got.len(), want.len()));
        }
    }
    assert!(wrong.is_empty(), "{} differences\n{}", wrong.len(), wrong.join("\n"));
}

/// What every file has, then what its role adds.
fn fields(audit: &Audit) -> Vec<(&'static str, Value)> {
    let mut fields = vec![
        ("kind", json!(audit.identity.kind)),
        ("role", json!(audit.identity.role)),
        ("platform", json!(audit.identity.platform)),
        ("schema_version", json!(audit.identity.schema_version)),
        ("n", json!(audit.n)),
        ("claimed_gate", json!(audit.claimed_gate)),
        ("verdict", json!(audit.verdict)),
    ];
    match &audit.niah {
        Some(niah) => fields.extend(niah_fields(audit, niah)),
        None => {
            fields.push(("shape", json!(audit.identity.shape)));
            let rows = audit.recall.as_ref().map(|rows| rows.iter().cloned().collect::<BTreeMap<_, _>>());
            fields.push(("recall", json!(rows)));
        }
    }
    fields
}

fn niah_fields(audit: &Audit, niah: &Niah) -> Vec<(&'static str, Value)> {
    let fit = niah.prompt_fit.as_ref();
    let mut fields = vec![
        ("seed", json!(niah.seed)),
        ("haystack_lines", json!([niah.min_lines, niah.max_lines])),
        ("rung_lines", json!(niah.rung)),
        ("sink", json!(niah.sink)),
        ("window", json!(niah.window)),
        ("max_new_tokens", json!(niah.max_new_tokens)),
        ("prompt_variant", json!(fit.map_or("unknown", |fit| fit.variant))),
        (
            "prompt_fingerprint",
            json!(fit.map(|f| json!({"tokens_per_line": f.tokens_per_line, "overhead": f.overhead}))),
        ),
        ("prompt_tokens_max", json!(niah.prompt_tokens_max)),
        ("verdict_ignoring_schema_age", json!(audit.verdict_ignoring_schema_age)),
        ("verdict_strict_statistics", json!(audit.verdict_strict_statistics)),
        ("integrity_ok", json!(audit.integrity_ok)),
        ("arms", Value::Object(niah.arms.iter().map(|arm| (arm.key.clone(), self::arm(arm))).collect())),
        ("recomputed", recomputed(audit, niah)),
    ];
    fields.push(("memory", memory(audit, niah)));
    fields.push(("cross_file", audit.cross_file.as_ref().map_or(Value::Null, cross_file)));
    if niah.kind == NiahKind::SameCheckpoint {
        fields.push(("kl_on", json!(niah.settings.codec)));
        fields.push(("stateful", json!(niah.settings.stateful)));
    }
    fields
}

fn arm(arm: &evidence::Arm) -> Value {
    let hits: Vec<usize> = arm.rows.iter().filter(|row| row.hit).map(|row| row.index).collect();
    let digits = |row: &&evidence::Row| row.hit || row.text.contains(row.answer.rsplit('-').next().unwrap());
    let mut value = json!({
        "correct": arm.hits,
        "total": arm.n,
        "recall": arm.recall,
        "cp95": [round(arm.interval.low, 4), round(arm.interval.high, 4)],
        "correct_idx": hits,
        "case_insensitive_correct": arm.hits_ignoring_case,
        "digits_present": arm.rows.iter().filter(digits).count(),
        "mean_tok_s": arm.mean_tok_s.map(|rate| round(rate, 4)),
        "mean_latency_s": arm.mean_latency_s.map(|seconds| round(seconds, 3)),
    });
    if let Some(median) = arm.median_tok_s {
        let rates: Vec<f64> = arm.rows.iter().filter_map(|row| row.rate).collect();
        let (low, high) =
            rates.iter().fold((f64::MAX, 0.0_f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
        let mut tokens: Vec<u64> = arm.rows.iter().filter_map(|row| row.tokens).collect();
        tokens.sort_unstable();
        let middle = tokens.len() / 2;
        let even = tokens.len().is_multiple_of(2);
        value["median_tok_s"] = json!(round(median, 4));
        value["lat_spread"] = json!(round(high / low, 2));
        value["median_decode_tokens"] = json!(if even {
            (tokens[middle - 1] + tokens[middle]) as f64 / 2.0
        } else {
            tokens[middle] as f64
        });
    }
    value
}

fn memory(audit: &Audit, niah: &Niah) -> Value {
    if let Some(table) = audit.recomputed.as_ref().unwrap().analytic.as_ref() {
        return json!({
            "analytic_s5_bytes": table.total,
            "naive_bytes": table.naive,
            "native_hybrid_1024_bytes": table.native,
            "claimed_savings_pct": table.claimed_savings_pct,
            "recomputed_savings_pct": table.savings_pct,
            "savings_vs_native_hybrid_pct": table.savings_vs_native_pct,
            "measured_peak_mb": table.measured_peak_mb,
        });
    }
    let mut arms = Map::new();
    let mac = json!(audit.identity.platform) == "mac";
    for figure in &niah.memory {
        let key = match (figure.kind, figure.label.as_str()) {
            (MemoryKind::AllocatorPeak, _) => "peak",
            (MemoryKind::DeviceSampled, "driver allocation") => "driver",
            (MemoryKind::DeviceSampled, _) if mac => "current",
            _ => continue,
        };
        arms.entry(figure.arm.clone()).or_insert_with(|| json!({}))[key] = json!(figure.bytes);
    }
    if arms.is_empty() { Value::Null } else { Value::Object(arms) }
}

/// Paths are compared below the corpus.
fn cross_file(cross: &evidence::CrossFile) -> Value {
    let path = cross.oracle_source.to_str().unwrap();
    json!({
        "oracle_source": path.split_once("/corpus/").unwrap().1,
        "oracle_correct": cross.oracle_correct,
        "delta_pp": cross.delta_pp,
        "identical_text": format!("{}/{}", cross.identical_texts, cross.n),
    })
}

fn recomputed(audit: &Audit, niah: &Niah) -> Value {
    let recomputed = audit.recomputed.as_ref().unwrap();
    let mut value = recomputed.paired.as_ref().map_or_else(|| json!({"delta_pp": null}), paired);
    if niah.kind == NiahKind::CrossModelMac {
        if let Some(spreads) = recomputed.spreads {
            value["spreads"] = json!(spreads);
            value["decode_only_recomputed"] = json!(recomputed.decode_only);
            value["claimed_speedup"] = json!(recomputed.claimed_speedup);
        }
        if let Some(codes) = &recomputed.shadow_gate_codes {
            value["shadow_gate_codes"] = json!(codes);
        }
        value["repo_gate_codes"] = json!(recomputed.repo_gate_codes);
    }
    value
}

fn paired(paired: &Paired) -> Value {
    let interval = |i: evidence::stats::Interval| json!([i.low, i.high]);
    json!({
        "delta_pp": paired.delta_pp,
        "abs_delta_pp": paired.delta_pp.abs(),
        "within_5pp_integer": paired.within_5pp,
        "flip_pp": paired.flip_pp,
        "gain_b": paired.gained,
        "loss_c": paired.lost,
        "informative_n": paired.informative_n,
        "retention": format!("{}/{}", paired.retained, paired.informative_n),
        "retention_cp95": paired.retention_interval.map(interval),
        "loss_upper95_one_sided": paired.loss_upper95,
        "loss_upper975": paired.loss_upper975,
        "delta_ci95_conservative_pp": interval(paired.delta_interval_pp),
        "identical_text": format!("{}/{}", paired.identical_texts, paired.n),
    })
}

/// Findings that the dictionary knows, as sorted lines: code, severity and attached numbers, without prose.
fn findings(audit: &Audit) -> Vec<String> {
    const BEYOND: [&str; 3] = ["RESTORATION_NOT_LOAD_BEARING", "DUPLICATE_EVIDENCE", "DECODE_SLOPE"];
    let known = audit.findings.iter().filter(|finding| !BEYOND.contains(&finding.code));
    let mut lines: Vec<String> =
        known.map(|finding| line(finding.code, &json!(finding.severity), &finding.data)).collect();
    lines.sort();
    lines
}

fn expected_findings(file: &Value) -> Vec<String> {
    let mut lines: Vec<String> = file["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| {
            let mut data = finding.as_object().unwrap().clone();
            for prose in ["code", "severity", "note", "formula", "model"] {
                data.remove(prose);
            }
            line(finding["code"].as_str().unwrap(), &finding["severity"], &data)
        })
        .collect();
    lines.sort();
    lines
}

fn line(code: &str, severity: &Value, data: &Map<String, Value>) -> String {
    let mut pairs: Vec<String> = data.iter().map(|(key, value)| format!("{key}={}", plain(value))).collect();
    pairs.sort();
    format!("{code} {severity} {}", pairs.join(" "))
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
