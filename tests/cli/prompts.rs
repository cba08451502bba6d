//! `prompts`: the regenerated prompts of a file or a dataset, and the depth × length grid.

use crate::program::{fail, root, run, succeed, text};
use serde_json::Value;

fn fixture(name: &str) -> String {
    root().join("tests/fixtures/evidence").join(name).to_str().unwrap().to_owned()
}

fn without_root(text: &str) -> String {
    text.replace(root().to_str().unwrap(), "ROOT")
}

#[test]
fn prompts_of_a_file() {
    insta::assert_snapshot!(without_root(&succeed(&["prompts", &fixture("demo_ctx20_s5.json")])));
}

#[test]
fn a_whole_prompt_with_its_needle_marked() {
    insta::assert_snapshot!(succeed(&[
        "prompts", "--seed", "42", "--lines", "10-12", "-n", "2", "--sample", "1"
    ]));
}

#[test]
fn json_of_a_dataset_holds_the_text() {
    let arguments =
        ["prompts", "--seed", "-7", "--rung", "20", "-n", "3", "--sample", "2", "--format", "json"];
    let view: Value = serde_json::from_str(&succeed(&arguments)).unwrap();
    let set = &view["sets"][0];
    assert_eq!((&set["path"], &set["lines"]), (&Value::Null, &serde_json::json!([17, 23])));
    assert_eq!(set["prompts"].as_array().unwrap().len(), 3);
    let needle = set["sample"]["needle"].as_str().unwrap();
    assert!(needle.contains(set["prompts"][2]["answer"].as_str().unwrap()), "{needle}");
}

/// Two of the three fixtures are one run repeated: they count once.
#[test]
fn the_grid_counts_the_same_samples_once() {
    let folder = root().join("tests/fixtures/evidence");
    insta::assert_snapshot!(without_root(&succeed(&["prompts", folder.to_str().unwrap(), "--grid"])));
    let arguments = ["prompts", folder.to_str().unwrap(), "--grid", "--arm", "oracle", "--format", "json"];
    let grid: Value = serde_json::from_str(&succeed(&arguments)).unwrap();
    assert!(grid["rows"].as_array().unwrap().iter().all(|row| row["arm"] == "oracle"));
    assert_eq!(grid["left_out"].as_array().unwrap().len(), 1);
}

#[test]
fn what_cannot_be_shown_is_said() {
    let file = fixture("demo_ctx20_s5.json");
    let said = |arguments: &[&str]| {
        let (code, said) = fail(arguments);
        assert_eq!(code, 2, "{said}");
        said
    };
    assert!(said(&["prompts", &file, "--sample", "9"]).contains("there is no sample 9: the dataset has 2"));
    assert!(said(&["prompts", &file, "--grid", "--arm", "nope"]).contains("no file holds an arm nope"));
    assert!(said(&["prompts", "--seed", "1", "--lines", "3-5"]).contains("at least 8 lines"));
    for usage in [
        &["prompts"][..],
        &["prompts", "--seed", "1"],
        &["prompts", &file, "--seed", "1", "--rung", "20"],
        &["prompts", "--seed", "1", "--rung", "20", "--grid"],
        &["prompts", "--seed", "1", "--lines", "twenty"],
    ] {
        assert!(said(usage).contains("Usage") || said(usage).contains("--help"), "{usage:?}");
    }
}

#[test]
fn a_file_without_needles_holds_no_prompts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.json");
    files::write_atomic(&path, br#"{"kind": "k3_f_theta_train", "schema_version": 1}"#).unwrap();
    let output = run(&["prompts", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("none of the files holds needle evidence"));
}
