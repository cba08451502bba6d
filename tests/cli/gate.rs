//! `gate` and the policies that it decides by.

use crate::program::{fail, run, succeed, text};
use std::path::Path;

fn fixtures() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/evidence").to_str().unwrap().to_owned()
}

fn policy(folder: &Path, text: &str) -> String {
    let path = folder.join("policy.toml");
    files::write_atomic(&path, text.as_bytes()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn every_cell_has_its_numbers_and_its_reason() {
    let fixtures = fixtures();
    let said = |format: &str| {
        let output = run(&["gate", &fixtures, "--format", format]);
        assert_eq!(output.status.code(), Some(1), "two samples on a processor prove nothing");
        text(&output.stdout)
    };
    insta::assert_snapshot!(format!("{}\n{}", said("text"), said("markdown")));
}

#[test]
fn the_policy_decides_and_is_named() {
    let (folder, fixtures) = (tempfile::tempdir().unwrap(), fixtures());
    let lax = "recall_margin_pp = 80\nladder = [20]\nplatforms = [\"cpu\"]\n";
    let path = policy(folder.path(), lax);
    let report: serde_json::Value =
        serde_json::from_str(&succeed(&["gate", &fixtures, "--policy", &path, "--format", "json"])).unwrap();
    assert_eq!(report["verdict"], "pass");
    assert_eq!(report["policy"]["source"], path);
    assert_eq!(report["policy"]["sha256"], files::sha256(lax.as_bytes()));
    assert_eq!(report["policy"]["values"]["recall_margin_pp"], 80.0);
    assert_eq!(report["policy"]["values"]["memory_limit_gib"], 24.0);
    let out = folder.path().join("gate.html");
    succeed(&["report", &fixtures, "--policy", &path, "-o", out.to_str().unwrap()]);
    let html = std::fs::read_to_string(out).unwrap();
    assert!(html.contains(&files::sha256(lax.as_bytes())) && html.contains("Recall within 80 pp"));
}

#[test]
fn a_policy_that_cannot_be_used_decides_nothing() {
    let (folder, fixtures) = (tempfile::tempdir().unwrap(), fixtures());
    let path = policy(folder.path(), "# ours\nmemory_limit_gib = -3\n");
    let out = folder.path().join("gate.html");
    let absent = folder.path().join("absent.toml");
    let mut said = String::new();
    for arguments in [
        vec!["gate", &fixtures, "--policy", &path],
        vec!["report", &fixtures, "--policy", &path, "-o", out.to_str().unwrap()],
        vec!["gate", &fixtures, "--policy", absent.to_str().unwrap()],
    ] {
        let (code, text) = fail(&arguments);
        assert_eq!(code, 2, "{text}");
        said += &text.replace(folder.path().to_str().unwrap(), "FOLDER");
    }
    assert!(!out.exists());
    insta::assert_snapshot!(said);
}
