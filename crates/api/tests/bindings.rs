//! The window's TypeScript types are generated from the Rust ones; this fails when the committed ones are stale.
//! To bring them up to date: `UPDATE_BINDINGS=1 cargo test -p api --test bindings`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use ts_rs::{Config, TS};

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ui/src/lib/types")
}

fn generate(folder: &Path) {
    let config = Config::new().with_out_dir(folder).with_large_int("number");
    api::Call::export_all(&config).unwrap();
    api::Start::export_all(&config).unwrap();
    api::Workspace::export_all(&config).unwrap();
    api::Watched::export_all(&config).unwrap();
    api::ForecastView::export_all(&config).unwrap();
    api::Entry::export_all(&config).unwrap();
    preflight::Change::export_all(&config).unwrap();
    preflight::Fixed::export_all(&config).unwrap();
    preflight::DigestProgress::export_all(&config).unwrap();
    api::RunEvent::export_all(&config).unwrap();
    api::JournalledRun::export_all(&config).unwrap();
    api::Machine::export_all(&config).unwrap();
    api::HostKey::export_all(&config).unwrap();
    api::TargetReport::export_all(&config).unwrap();
    api::EvidenceList::export_all(&config).unwrap();
    api::EvidenceDetail::export_all(&config).unwrap();
    api::PromptView::export_all(&config).unwrap();
    api::GridView::export_all(&config).unwrap();
    api::ComparisonView::export_all(&config).unwrap();
    api::PairView::export_all(&config).unwrap();
    api::DiffPart::export_all(&config).unwrap();
    api::Rendered::export_all(&config).unwrap();
    evidence::GateReport::export_all(&config).unwrap();
    protocol::ErrorReport::export_all(&config).unwrap();
}

fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                let name = entry.path().strip_prefix(folder).unwrap().to_owned();
                found.push((name, fs::read_to_string(entry.path()).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn typescript_types_are_fresh() {
    if std::env::var_os("UPDATE_BINDINGS").is_some() {
        let _ = fs::remove_dir_all(committed());
        generate(&committed());
    }
    let fresh = tempfile::tempdir().unwrap();
    generate(fresh.path());
    let (fresh, committed) = (files(fresh.path()), files(&committed()));
    assert!(!fresh.is_empty());
    let names = |files: &[(PathBuf, String)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&committed), names(&fresh), "run: UPDATE_BINDINGS=1 cargo test -p api --test bindings");
    for ((name, ours), (_, theirs)) in committed.iter().zip(&fresh) {
        assert_eq!(
            ours,
            theirs,
            "{} is stale: UPDATE_BINDINGS=1 cargo test -p api --test bindings",
            name.display()
        );
    }
}
