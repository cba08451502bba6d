//! The checklist from outside: formats, exit codes, fixes.

use crate::program::{command, demo_pack, root, text};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A copy of the demo pack in a folder of its own, and a cache for digests beside it.
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        let desk = Self(tempfile::tempdir().unwrap());
        copy(&demo_pack(), &desk.pack());
        desk
    }

    fn pack(&self) -> PathBuf {
        self.0.path().join("pack")
    }

    /// Exit code, standard output and standard error of `preflight pack ARGUMENTS`, run beside the pack.
    fn preflight(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = command(&[&["preflight", "pack"], arguments].concat());
        command.current_dir(self.0.path()).env("KAKEYA_GATE_CACHE", self.0.path().join("cache"));
        let output = command.output().unwrap();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }

    fn run_file(&self, text: &str) {
        files::write_atomic(&self.0.path().join("run.json"), text.as_bytes()).unwrap();
    }

    fn list_of_tokens(&self) {
        self.edit("pack/verifier/tokenizer_config.json", |config| {
            config["extra_special_tokens"] = json!(["<a>"])
        });
    }

    fn edit(&self, file: &str, change: impl FnOnce(&mut Value)) {
        let path = self.0.path().join(file);
        let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut value);
        files::write_atomic(&path, value.to_string().as_bytes()).unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// What depends on this machine and this moment.
const OF_MACHINE: [(&str, &str); 8] = [
    (
        r"(pass|skip|WARN|\*\*warn\*\*|skipped)( +\| | +)(Power|Temperature|Revision recorded)(\s+| \| ).*",
        "STATE $3",
    ),
    (r"(System\s+|System \| ).*", "${1}MACHINE"),
    (r"[\d.]+ GiB free", "N GiB free"),
    (r"on cpu \(.*\), checked in [\d.]+ ms", "on cpu (PROCESSOR), checked in N ms"),
    (r"at most [\d.]+e-\d", "at most N"),
    (r"(version|engine:) \d[\d.]*\d", "$1 V"),
    (r"candle [\d.]+", "candle V"),
    (r"checks in [\d.]+ s", "checks in N s"),
];

#[test]
fn text_of_the_demo_pack() {
    let (code, out, err) = Desk::new().preflight(&[]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    insta::with_settings!({ filters => OF_MACHINE }, { insta::assert_snapshot!(out) });
}

#[test]
fn markdown_of_a_faulty_pack_and_a_run() {
    let desk = Desk::new();
    desk.list_of_tokens();
    desk.run_file(r#"{"n_samples": 20, "ladder": [20], "max_new_tokens": 4}"#);
    let (code, out, _) =
        desk.preflight(&["--spec", "run.json", "--workspace", "desk", "--format", "markdown"]);
    assert_eq!(code, 1);
    insta::with_settings!({ filters => OF_MACHINE }, { insta::assert_snapshot!(out) });
}

#[test]
fn json_holds_to_its_schema_and_names_every_check() {
    let desk = Desk::new();
    let (code, out, _) = desk.preflight(&["--format", "json"]);
    assert_eq!(code, 0);
    let report: Value = serde_json::from_str(&out).unwrap();
    let schema = fs::read(root().join("docs/schema/preflight.schema.json")).unwrap();
    let schema: Value = serde_json::from_slice(&schema).unwrap();
    let stated = schema["$defs"]["Check"]["required"].as_array().unwrap();
    let checks = report["checks"].as_array().unwrap();
    for check in checks {
        for key in ["id", "group", "title", "status", "measured", "why", "hint", "fixable", "seconds"] {
            assert!(stated.contains(&json!(key)) && !check[key].is_null(), "{key}: {check}");
        }
        assert!(!check["why"].as_str().unwrap().is_empty(), "{check}");
    }
    let ids: Vec<&str> = checks.iter().map(|check| check["id"].as_str().unwrap()).collect();
    insta::assert_snapshot!(ids.join("\n"));
}

#[test]
fn a_fix_and_its_undo() {
    let desk = Desk::new();
    desk.list_of_tokens();
    let config = desk.pack().join("verifier/tokenizer_config.json");
    let before = fs::read(&config).unwrap();
    let (code, out, _) = desk.preflight(&[]);
    assert_eq!(code, 1);
    assert!(out.contains("fix: --fix tokenizer-special-tokens"), "{out}");

    let (_, out, err) = desk.preflight(&["--fix", "tokenizer-special-tokens"]);
    assert!(
        err.contains("\n-{") && err.contains("\n+{") && err.contains("fixed; the old content is in"),
        "{err}"
    );
    assert!(out.contains("undo: --undo tokenizer-special-tokens"), "{out}");
    let fixed = fs::read(&config).unwrap();
    let (_, _, err) = desk.preflight(&["--fix", "tokenizer-special-tokens"]);
    assert_eq!(err, "tokenizer-special-tokens: nothing to fix\n");

    let (code, _, err) = desk.preflight(&["--undo", "tokenizer-special-tokens"]);
    assert_eq!(code, 1);
    assert!(err.contains("as it was"), "{err}");
    assert_eq!(fs::read(&config).unwrap(), before);
    desk.preflight(&["--fix-safe"]);
    assert_eq!(fs::read(&config).unwrap(), fixed);
}

#[test]
fn what_cannot_be_done_is_code_2() {
    let desk = Desk::new();
    let (code, _, err) = desk.preflight(&["--fix", "host-disk"]);
    assert_eq!((code, err.contains("has no fix of its own")), (2, true), "{err}");
    let (code, _, err) = desk.preflight(&["--undo", "tokenizer-special-tokens"]);
    assert_eq!((code, err.contains("has no backup")), (2, true), "{err}");
    desk.run_file(r#"{"samples": 20}"#);
    let (code, _, err) = desk.preflight(&["--spec", "run.json"]);
    assert_eq!((code, err.contains("there is no setting \"samples\"")), (2, true), "{err}");
    let missing = command(&["preflight", "no/such/pack"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn digests_beyond_what_a_checklist_hashes_are_asked_for() {
    let desk = Desk::new();
    let large = desk.pack().join("large.bin");
    fs::File::create(&large).unwrap().set_len(80 << 20).unwrap();
    let digest = files::sha256_file(&large).unwrap();
    desk.edit("pack/pack.json", |manifest| manifest["sha256"]["large.bin"] = json!(digest));
    let digests = |arguments: &[&str]| {
        let (_, out, _) = desk.preflight(&[&["--format", "json"], arguments].concat());
        let report: Value = serde_json::from_str(&out).unwrap();
        let checks = report["checks"].as_array().unwrap().iter();
        let found = checks.into_iter().find(|check| check["id"] == "pack-digests").unwrap();
        (found["status"].as_str().unwrap().to_owned(), found["seconds"].as_f64().unwrap())
    };
    assert_eq!(digests(&[]).0, "skipped");
    // The digest of a file that was written a moment ago is not kept.
    let start = Instant::now();
    while digests(&["--digests"]).0 != "pass" {
        assert!(start.elapsed() < Duration::from_secs(30), "it is kept after two seconds");
    }
    assert_eq!(digests(&[]).0, "pass", "it is kept");
}

/// A checkout whose weights are pointers, and a stand-in for `git-lfs` that fetches them as it would.
#[cfg(unix)]
#[test]
fn pointers_are_fetched_with_git_lfs() {
    use std::os::unix::fs::PermissionsExt;
    let desk = Desk::new();
    let (weights, stored) = (desk.pack().join("drafter/model.safetensors"), desk.0.path().join("stored"));
    fs::rename(&weights, &stored).unwrap();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 659592\n";
    files::write_atomic(&weights, pointer.as_bytes()).unwrap();
    let git = std::process::Command::new("git").arg("init").arg("--quiet").arg(desk.0.path()).status();
    assert!(git.unwrap().success());
    let tools = desk.0.path().join("tools");
    let script = format!(
        "#!/bin/sh\n[ \"$1 $2 $3\" = \"pull --include pack/drafter/*\" ] || exit 3\n\
         printf 'Downloading LFS objects:  50%% (0/1)\\r' >&2\nprintf 'Downloading LFS objects: 100%% (1/1)\\n' >&2\n\
         cp {} {}\n",
        stored.display(),
        weights.display()
    );
    files::write_atomic(&tools.join("git-lfs"), script.as_bytes()).unwrap();
    fs::set_permissions(tools.join("git-lfs"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths(std::iter::once(tools).chain(std::env::split_paths(&path))).unwrap();
    let output = command(&["preflight", desk.pack().to_str().unwrap(), "--fix", "drafter-weights"])
        .env("PATH", path)
        .env("KAKEYA_GATE_CACHE", desk.0.path().join("cache"))
        .output()
        .unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("lfs pull --include 'pack/drafter/*'"), "{told}");
    assert!(
        told.contains("50%") && told.contains("100%") && told.contains("drafter-weights: done"),
        "{told}"
    );
    assert_eq!(fs::metadata(&weights).unwrap().len(), 659_592);
}
