//! `audit`: every format on the fixtures, exit codes, and what happens beside a file that cannot be read.

use crate::program::{command, root, text};
use serde_json::Value;
use std::fs;
use std::path::Path;

const DEMO: &str = "tests/fixtures/evidence/demo_ctx20_s5.json";

/// Exit code, standard output and standard error of a command in the repository root, so that paths are short.
fn program(arguments: &[&str]) -> (i32, String, String) {
    let output = command(arguments).current_dir(root()).output().unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn audit(arguments: &[&str]) -> (i32, String) {
    let (code, result, _) = program(&[&["audit"], arguments].concat());
    (code, result)
}

/// A copy of the demo evidence with one recall flag turned over.
fn edited(folder: &Path) -> String {
    let mut evidence: Value = serde_json::from_slice(&fs::read(root().join(DEMO)).unwrap()).unwrap();
    let flag = &mut evidence["results"]["oracle"]["per_sample_correct"][1];
    *flag = Value::Bool(!flag.as_bool().unwrap());
    let path = folder.join("edited.json");
    files::write_atomic(&path, serde_json::to_string_pretty(&evidence).unwrap().as_bytes()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn without_folder(folder: &Path, text: &str) -> String {
    text.replace(folder.to_str().unwrap(), "FOLDER")
}

#[test]
fn text_of_one_file() {
    let (code, result) = audit(&[DEMO]);
    assert_eq!(code, 0);
    insta::assert_snapshot!(result);
}

#[test]
fn text_of_many_files() {
    let folder = tempfile::tempdir().unwrap();
    let (code, result) = audit(&["./tests/fixtures/evidence", &edited(folder.path())]);
    assert_eq!(code, 1);
    insta::assert_snapshot!(without_folder(folder.path(), &result));
}

#[test]
fn json() {
    let (code, result) = audit(&[DEMO, "--format", "json"]);
    assert_eq!(code, 0);
    insta::assert_snapshot!(result);
}

#[test]
fn markdown() {
    let folder = tempfile::tempdir().unwrap();
    let (code, result) = audit(&[&edited(folder.path()), "--format", "markdown"]);
    assert_eq!(code, 1);
    insta::assert_snapshot!(without_folder(folder.path(), &result));
}

#[test]
fn sarif() {
    let folder = tempfile::tempdir().unwrap();
    let (code, result) = audit(&[&edited(folder.path()), "--format", "sarif"]);
    assert_eq!(code, 1);
    insta::with_settings!({ filters => [(r#""semanticVersion": "[^"]*""#, r#""semanticVersion": "VERSION""#)] }, {
        insta::assert_snapshot!(without_folder(folder.path(), &result));
    });
}

#[test]
fn an_unreadable_file_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.json");
    files::write_atomic(&cut, b"{\"kind\": ").unwrap();
    let cut = cut.to_str().unwrap();
    for format in ["text", "json", "markdown", "sarif"] {
        let (code, result, errors) = program(&["audit", cut, DEMO, "--format", format]);
        assert_eq!(code, 2, "{format}");
        assert!(result.replace('\\', "").contains("demo_ctx20_s5.json"), "{format}: {result}");
        assert!(errors.contains("cut.json is not JSON") && errors.contains("hint: "), "{format}: {errors}");
    }
    let (_, result, _) = program(&["audit", cut, DEMO, "--format", "json"]);
    let document: Value = serde_json::from_str(&result).unwrap();
    assert_eq!(document["files"].as_array().unwrap().len(), 1);
    assert_eq!(document["unreadable"][0]["path"], cut);
}

#[test]
fn file_contents_do_not_reach_the_terminal_raw() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.json");
    files::write_atomic(&path, br#"{"kind": "\u001b[2Jkind\u202e", "schema_version": 1}"#).unwrap();
    let (_, result) = audit(&[path.to_str().unwrap()]);
    assert!(!result.contains(['\u{1b}', '\u{202e}']), "{result:?}");
    assert!(result.contains("kind"), "{result}");
}
