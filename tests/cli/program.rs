//! Starting `kakeya-gate` and taking down what it says.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

thread_local! {
    /// The journal of each test is its own, gone with its thread: one that another version has left must not be met.
    static DATA: TempDir = tempfile::tempdir().unwrap();
}

/// The repository root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The committed demo pack.
pub fn demo_pack() -> PathBuf {
    root().join("assets/demo-pack")
}

/// A command that has not been started yet.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kakeya-gate"));
    command.args(arguments).stdin(Stdio::null());
    DATA.with(|data| command.env("KAKEYA_GATE_DATA", data.path()));
    command
}

/// Runs to the end.
pub fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Runs to the end and must succeed; returns standard output.
pub fn succeed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}\n{}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// Exit code and standard error of a command that must fail.
pub fn fail(arguments: &[&str]) -> (i32, String) {
    let output = run(arguments);
    (output.status.code().unwrap(), text(&output.stderr))
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
