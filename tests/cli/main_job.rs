//! The whole main job on the demo pack: preflight, run, audit, compare, report; hit by hit against the reference.

use crate::program::{command, demo_pack, fail, run, succeed, text};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

const ALL_MODES: &str = "s5,f-theta,identity";

/// Runs the demo pack and returns the evidence files, rung by rung.
fn evidence(out: &Path, ladder: &str, n: &str) -> Vec<PathBuf> {
    let (pack, out) = (demo_pack(), out.to_str().unwrap());
    let printed = succeed(&[
        "run",
        "--pack",
        pack.to_str().unwrap(),
        "--restore",
        ALL_MODES,
        "--ladder",
        ladder,
        "-n",
        n,
        "--out",
        out,
        "--quiet",
    ]);
    printed.lines().map(PathBuf::from).collect()
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn texts<'a>(evidence: &'a Value, arm: &str) -> &'a Value {
    &evidence["results"][arm]["per_sample_decoded"]
}

/// The figures that the demo pack was released with: rungs 20 and 70, seed 42, 20 samples.
#[test]
fn demo_pack_recalls_what_the_reference_recalls() {
    let folder = tempfile::tempdir().unwrap();
    let paths = evidence(folder.path(), "20,70", "20");
    assert_eq!(paths.len(), 2);
    for (path, rung) in paths.iter().zip([20, 70]) {
        let ours = read(path);
        let hits = |arm: &str| ours["results"][arm]["samples_correct"].as_u64().unwrap();
        assert_eq!(
            ["oracle", "sink_window", "k3_cross_model", "k3_cross_model_ftheta_only", "k3_identity_restore"]
                .map(hits),
            [20, 0, 20, 20, 20],
            "rung {rung}"
        );
        assert_eq!(
            texts(&ours, "k3_identity_restore"),
            texts(&ours, "oracle"),
            "identity restores the oracle, rung {rung}"
        );
        assert_eq!(ours["gate"]["architectural_correctness"], true);
        assert_eq!(ours["gate"]["recall_delta_within_5pp"], true);
        equals_reference(&ours, rung);
    }
    let audited: Value = serde_json::from_str(&succeed(&[
        "audit",
        paths[0].to_str().unwrap(),
        paths[1].to_str().unwrap(),
        "--format",
        "json",
    ]))
    .unwrap();
    for audit in audited["files"].as_array().unwrap() {
        let errors: Vec<_> =
            audit["findings"].as_array().unwrap().iter().filter(|f| f["severity"] == "error").collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }
    report(folder.path(), &paths);
}

/// Hit by hit, in every arm, against the evidence of the reference's own harness.
fn equals_reference(ours: &Value, rung: u32) {
    let Some(root) = std::env::var_os("KAKEYA_GATE_REFERENCE") else {
        eprintln!("skipped: KAKEYA_GATE_REFERENCE is unset");
        return;
    };
    let theirs = read(&Path::new(&root).join(format!("demo-pack-checks/evidence/niah_ctx{rung}.json")));
    for (our_arm, their_arm) in [
        ("oracle", "oracle"),
        ("sink_window", "v03_sink_window"),
        ("k3_cross_model", "k3_cross_model"),
        ("k3_cross_model_ftheta_only", "k3_cross_model_ftheta_only"),
        ("k3_identity_restore", "k3_identity_restore"),
    ] {
        let key = "per_sample_correct";
        assert_eq!(
            ours["results"][our_arm][key], theirs["results"][their_arm][key],
            "{our_arm}, rung {rung}"
        );
    }
    assert_eq!(ours["config"]["prompt_token_lens"], theirs["config"]["prompt_token_lens"], "rung {rung}");
}

fn report(folder: &Path, paths: &[PathBuf]) {
    for name in ["gate.html", "gate.md"] {
        let out = folder.join(name);
        let mut arguments = vec!["report"];
        arguments.extend(paths.iter().map(|path| path.to_str().unwrap()));
        arguments.extend([
            "-o",
            out.to_str().unwrap(),
            "--reviewer",
            "Ada <b>Lovelace</b>",
            "--notes",
            "第一次审查",
        ]);
        succeed(&arguments);
        let document = fs::read_to_string(&out).unwrap();
        assert!(document.contains("第一次审查"), "{name}");
        assert!(!document.contains("<b>Lovelace"), "{name}: the reviewer's name is text, not markup");
    }
    let html = fs::read_to_string(folder.join("gate.html")).unwrap();
    assert!(html.matches("<svg").count() >= 2, "both charts");
    assert!(!html.contains("<script"), "no script");
    assert!(html.to_lowercase().contains("demo pack"), "labelled as the demo pack");
}

#[test]
fn preflight_of_the_demo_pack_holds() {
    let pack = demo_pack();
    let printed = succeed(&["preflight", pack.to_str().unwrap(), "--format", "json"]);
    let report: Value = serde_json::from_str(&printed).unwrap();
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.len() >= 7, "{printed}");
    assert!(checks.iter().all(|check| check["status"] != "fail"), "{printed}");
}

#[test]
fn comparing_a_run_with_itself_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let first = evidence(&folder.path().join("a"), "20", "2");
    let second = evidence(&folder.path().join("b"), "20", "2");
    let arguments = ["compare", first[0].to_str().unwrap(), second[0].to_str().unwrap()];
    let text = succeed(&arguments);
    assert!(text.contains("repeat"), "{text}");
    let markdown = succeed(&[&arguments[..], &["--format", "markdown"]].concat());
    assert!(markdown.contains('|'), "{markdown}");
    // Times differ from run to run; what the model said does not.
    let (a, b) = (read(&first[0]), read(&second[0]));
    for arm in ["oracle", "sink_window", "k3_cross_model"] {
        assert_eq!(texts(&a, arm), texts(&b, arm));
    }
}

#[test]
fn reforward_and_incremental_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let pack = demo_pack();
    let said = |decode: &str| {
        let out = folder.path().join(decode);
        let printed = succeed(&[
            "run",
            "--pack",
            pack.to_str().unwrap(),
            "--restore",
            ALL_MODES,
            "--ladder",
            "20",
            "-n",
            "1",
            "--decode",
            decode,
            "--out",
            out.to_str().unwrap(),
            "--quiet",
        ]);
        read(Path::new(printed.trim()))
    };
    let (incremental, reforward) = (said("incremental"), said("reforward"));
    for arm in
        ["oracle", "sink_window", "k3_cross_model", "k3_cross_model_ftheta_only", "k3_identity_restore"]
    {
        assert_eq!(texts(&incremental, arm), texts(&reforward, arm), "{arm}");
    }
    assert_eq!(reforward["gate"]["architectural_correctness"], true);
    let passes = |evidence: &Value| evidence["restoration"]["k3_cross_model"]["passes"].as_u64().unwrap();
    assert_eq!(passes(&incremental), 1);
    assert!(passes(&reforward) > 1);
}

/// A long run whose trials are under way.
#[cfg(unix)]
struct Running {
    child: std::process::Child,
    errors: BufReader<std::process::ChildStderr>,
    engine: String,
    out: PathBuf,
    _folder: tempfile::TempDir,
}

#[cfg(unix)]
impl Running {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (pack, out) = (demo_pack(), folder.path().join("out"));
        let (pack, to) = (pack.to_str().unwrap(), out.to_str().unwrap());
        let arguments = ["run", "--pack", pack, "--ladder", "70", "-n", "50", "--out", to];
        let mut child = command(&arguments).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // The second line says that the pack is loaded: trials are running from then on.
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        errors.read_line(&mut said).unwrap();
        errors.read_line(&mut said).unwrap();
        assert!(said.starts_with("run ") && said.contains("demo pack"), "{said}");
        let children = std::process::Command::new("pgrep").args(["-P", &child.id().to_string()]).output();
        let engine = text(&children.unwrap().stdout).trim().to_owned();
        Self { child, errors, engine, out, _folder: folder }
    }

    /// Waits for the end, which must be exit code 2 without a file and without an engine. Returns what was said.
    fn fails(mut self) -> String {
        assert_eq!(self.child.wait().unwrap().code(), Some(2));
        let said: Vec<String> = self.errors.lines().map(Result::unwrap).collect();
        assert!(!self.out.exists());
        assert!(!signal("-0", &self.engine), "the engine {} is still there", self.engine);
        said.join("\n")
    }
}

/// Whether a process could be sent a signal; `-0` only asks whether it is there.
#[cfg(unix)]
fn signal(signal: &str, process: &str) -> bool {
    let sent = std::process::Command::new("kill").args([signal, process]).stderr(Stdio::null()).status();
    sent.unwrap().success()
}

#[cfg(unix)]
#[test]
fn ctrl_c_leaves_nothing_half_written() {
    let running = Running::start();
    assert!(signal("-INT", &running.child.id().to_string()));
    let said = running.fails();
    assert!(said.contains("cancelled"), "{said}");
}

#[test]
fn gate_says_what_is_undecided() {
    let folder = tempfile::tempdir().unwrap();
    let paths = evidence(folder.path(), "20", "2");
    let output = run(&["gate", paths[0].to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "two samples decide nothing");
    assert!(text(&output.stdout).contains("undecided"), "{}", text(&output.stdout));
    let (code, _) = fail(&["gate", folder.path().join("absent").to_str().unwrap()]);
    assert_eq!(code, 2);
}
