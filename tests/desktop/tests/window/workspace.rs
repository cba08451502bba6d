//! A workspace of its own for each test: the demo pack, and whatever evidence its runs write.

use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The repository root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A temporary folder that holds a copy of the demo pack.
pub fn with_demo_pack() -> TempDir {
    let pack = root().join("assets/demo-pack");
    assert!(pack.join("pack.json").is_file(), "{} holds no pack", pack.display());
    let folder = tempfile::tempdir().unwrap();
    copy(&pack, &folder.path().join("demo-pack"));
    folder
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

/// Evidence files that runs have written, sorted.
pub fn evidence(workspace: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(workspace.join("evidence"))
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    found
}
