//! Packs by their digest: they do not travel, so two machines must mean the same one.

use crate::RunError;
use crate::engine::EngineProgram;
use protocol::{FoundPack, Worker};
use std::path::{Path, PathBuf};

/// Digits that name a pack well enough.
const ENOUGH: usize = 8;

/// The digest, or its beginning, in `sha256:…`; none where the path names a folder.
pub fn named_digest(pack: &Path) -> Option<&str> {
    let digest = pack.to_str()?.strip_prefix("sha256:")?;
    (digest.len() >= ENOUGH && digest.bytes().all(|b| b.is_ascii_hexdigit())).then_some(digest)
}

/// The digest of the pack that is meant: as it is named, or that of the folder on this machine.
pub(crate) fn digest_of(program: &EngineProgram, pack: &Path) -> Result<String, RunError> {
    if let Some(digest) = named_digest(pack) {
        return Ok(digest.to_owned());
    }
    let found = program.packs(&[pack.to_owned()])?.packs;
    let here = pack.canonicalize().unwrap_or_else(|_| pack.to_owned());
    let nothing = |found: String| RunError::NoPack {
        place: "this machine".into(),
        pack: pack.display().to_string(),
        found,
    };
    match found.into_iter().find(|pack| pack.folder == here) {
        Some(FoundPack { digest: Some(digest), .. }) => Ok(digest),
        Some(FoundPack { problem: Some(problem), .. }) => Err(nothing(problem)),
        _ => Err(nothing("nothing there".into())),
    }
}

/// The usable pack whose digest begins like that.
pub(crate) fn find_pack(place: &str, worker: &Worker, digest: &str) -> Result<FoundPack, RunError> {
    let digest = digest.to_ascii_lowercase();
    let same = |pack: &&FoundPack| pack.digest.as_ref().is_some_and(|found| found.starts_with(&digest));
    worker.packs.iter().find(same).cloned().ok_or_else(|| {
        let name = |pack: &FoundPack| match (&pack.digest, &pack.problem) {
            (Some(digest), _) => format!("{} (sha256:{})", pack.name, &digest[..12]),
            (None, problem) => format!("{}, unusable: {}", pack.name, problem.as_deref().unwrap_or("?")),
        };
        let all: Vec<String> = worker.packs.iter().map(name).collect();
        let found = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        RunError::NoPack { place: place.to_owned(), pack: format!("sha256:{digest}"), found }
    })
}

/// The folders in which this machine keeps packs: those named in `KAKEYA_GATE_PACKS`, as `PATH` is written, and `packs` in
/// its data folder.
pub fn own_packs(data: &Path) -> Vec<PathBuf> {
    let named = std::env::var_os("KAKEYA_GATE_PACKS").unwrap_or_default();
    let named = std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty());
    named.chain([data.join("packs")]).filter(|folder| folder.is_dir()).collect()
}
