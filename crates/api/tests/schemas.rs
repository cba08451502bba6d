//! `docs/schema` says what `--format json` prints: it is generated from the types, and real outputs hold to it.
//! To bring it up to date: `UPDATE_SCHEMA=1 cargo test -p api --test schemas`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use api::{AuditDocument, CompareDocument, Content, Export, PreflightReport, ReportDocument, ReportFormat};
use evidence::{GateReport, Language, Policy, Scan};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::Serialize;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn committed(name: &str) -> PathBuf {
    root().join("docs/schema").join(format!("{name}.schema.json"))
}

fn schema<T: JsonSchema>() -> Value {
    json!(SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>())
}

fn schemas() -> [(&'static str, Value); 5] {
    [
        ("audit", schema::<AuditDocument>()),
        ("compare", schema::<CompareDocument>()),
        ("gate", schema::<GateReport>()),
        ("preflight", schema::<PreflightReport>()),
        ("report", schema::<ReportDocument>()),
    ]
}

#[test]
fn schemas_are_fresh() {
    for (name, schema) in schemas() {
        let fresh = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let path = committed(name);
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            files::write_atomic(&path, fresh.as_bytes()).unwrap();
        }
        let ours = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            ours,
            fresh,
            "{} is stale: UPDATE_SCHEMA=1 cargo test -p api --test schemas",
            path.display()
        );
    }
}

#[test]
fn a_report_as_json_holds_to_its_schema() {
    let request = Export { paths: vec![root().join("tests/fixtures/kinds")], ..Export::default() };
    let Content::Text(text) = api::render(&request, ReportFormat::Json, Language::Zh).unwrap().content else {
        panic!("JSON is text")
    };
    holds(&schema::<ReportDocument>(), &serde_json::from_str::<Value>(&text).unwrap());
}

/// The fixtures, a file that cannot be read, and the corpus where there is one.
fn scan() -> Scan {
    let mut paths = vec![root().join("tests/fixtures/evidence"), root().join("tests/fixtures/absent.json")];
    match std::env::var_os("KAKEYA_GATE_REFERENCE") {
        Some(reference) => paths.push(Path::new(&reference).join("evidence/corpus")),
        None => eprintln!("only the fixtures: KAKEYA_GATE_REFERENCE is unset"),
    }
    paths.push(root().join("tests/fixtures/kinds"));
    evidence::scan(&evidence::find(&paths), || {})
}

fn holds(schema: &Value, output: &impl Serialize) {
    let (validator, output) = (jsonschema::validator_for(schema).unwrap(), json!(output));
    let problems: Vec<String> = validator
        .iter_errors(&output)
        .map(|problem| format!("{}: {problem}", problem.instance_path()))
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn real_outputs_hold_to_their_schemas() {
    let scan = scan();
    let [(_, audit), (_, compare), (_, gate), ..] = schemas();
    let document = AuditDocument::from(&scan);
    assert!(document.files.len() > 5 && document.unreadable.len() == 1);
    holds(&audit, &document);
    holds(&gate, &evidence::gate(&scan.audits, &Policy::built_in()));
    for pair in scan.audits.windows(2) {
        let comparisons = vec![evidence::compare(&pair[0], &pair[1])];
        holds(&compare, &CompareDocument { files: Vec::new(), comparisons });
    }
    let wrong = json!({ "files": [{ "path": 1 }], "unreadable": [] });
    assert!(!jsonschema::validator_for(&audit).unwrap().is_valid(&wrong), "the schema forbids something");
}

/// No number of a finding is named like one of its own fields.
#[test]
fn numbers_of_findings_have_names_of_their_own() {
    for finding in scan().audits.iter().flat_map(|audit| &audit.findings) {
        for own in ["code", "severity", "pointer", "message", "why", "fix"] {
            assert!(!finding.data.contains_key(own), "{} {own}", finding.code);
        }
    }
}

/// The schema of the standard, as `serde-sarif` 0.8 carries it.
#[test]
fn findings_are_valid_sarif() {
    let path = root().join("tests/fixtures/sarif-2.1.0.schema.json");
    let mut schema: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    // Published with a stray bracket, which makes it no regular expression. We state no language.
    for part in ["run", "toolComponent"] {
        schema["definitions"][part]["properties"]["language"].as_object_mut().unwrap().remove("pattern");
    }
    let (scan, sarif) = (scan(), json!(api::sarif(&scan())));
    holds(&schema, &sarif);
    let run = &sarif["runs"][0];
    let results = run["results"].as_array().unwrap();
    assert_eq!(results.len(), scan.audits.iter().map(|audit| audit.findings.len()).sum::<usize>());
    for result in results {
        let rule = &run["tool"]["driver"]["rules"][result["ruleIndex"].as_u64().unwrap() as usize];
        assert_eq!(rule["id"], result["ruleId"]);
        assert!(result["locations"][0]["physicalLocation"]["region"]["startLine"].is_u64(), "{result}");
    }
    assert_eq!(run["invocations"][0]["executionSuccessful"], false);
}
