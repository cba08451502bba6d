//! A place of its own for a run: journal, evidence, and the program.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// The program.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_kakeya-gate");

/// The committed demo pack.
pub fn demo_pack() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/demo-pack").canonicalize().unwrap()
}

pub struct Place {
    pub folder: TempDir,
    /// What every program here finds in its environment.
    pub environment: Vec<(&'static str, PathBuf)>,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let environment = vec![("KAKEYA_GATE_DATA", folder.path().join("data"))];
        Self { folder, environment }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn out(&self) -> PathBuf {
        self.path("out")
    }

    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).envs(self.environment.iter().cloned()).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs to the end and must succeed; returns standard output and standard error.
    pub fn succeed(&self, arguments: &[&str]) -> (String, String) {
        let output = self.output(arguments);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {}\n{out}\n{err}", output.status);
        (out, err)
    }

    /// Runs to the end and must fail with exit code 2; returns standard error.
    pub fn fail(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}\n{said}", text(&output.stdout));
        said
    }

    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Arguments of a run on the demo pack: three arms.
pub fn demo_run<'a>(pack: &'a str, n: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["run", "--pack", pack, "--ladder", "20", "-n", n, "--out", "out"];
    arguments.extend(more);
    arguments
}

pub fn write(path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
    files::write_atomic(path.as_ref(), text.as_ref()).unwrap();
}
