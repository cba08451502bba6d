//! Digests of the files of which a manifest states them.

use files::{Digests, FileError};
use protocol::Pack;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use ts_rs::TS;

/// Bytes that are hashed within a checklist that must take seconds.
pub(crate) const AT_ONCE: u64 = 64 << 20;

/// How far the digests of a pack are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct DigestProgress {
    /// Bytes hashed.
    pub done: u64,
    /// Bytes to hash.
    pub total: u64,
}

/// The files of which a manifest states digests, and what is known of them.
pub(crate) struct Stated {
    digests: Digests,
    files: Vec<File>,
}

struct File {
    /// As the manifest names it.
    named: PathBuf,
    path: PathBuf,
    bytes: u64,
    known: bool,
}

impl Stated {
    pub(crate) fn of(pack: &Pack, cache_file: &Path) -> Result<Self, FileError> {
        let digests = Digests::kept_in(cache_file.to_owned());
        let file = |named: &PathBuf| {
            let path = pack.folder.join(named);
            let bytes = files::require_regular(&path)?.len();
            let known = digests.known(&path)?.is_some();
            Ok(File { named: named.clone(), path, bytes, known })
        };
        let files = pack.manifest.sha256.keys().map(file).collect::<Result<_, _>>()?;
        Ok(Self { digests, files })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub(crate) fn unknown_bytes(&self) -> u64 {
        self.files.iter().filter(|file| !file.known).map(|file| file.bytes).sum()
    }

    /// Hashes what is not known. `go_on` is told the progress and may stop it. Gives the digests by the names in the
    /// manifest; none if it was stopped. What was hashed until then is kept.
    pub(crate) fn finish(
        mut self,
        go_on: &mut dyn FnMut(DigestProgress) -> bool,
    ) -> Result<Option<BTreeMap<PathBuf, String>>, FileError> {
        let total = self.unknown_bytes();
        let mut done = 0;
        let mut found = BTreeMap::new();
        for file in &self.files {
            let digest = self.digests.of_while(&file.path, &mut |bytes| {
                done += bytes;
                go_on(DigestProgress { done, total })
            })?;
            let Some(digest) = digest else { return Ok(None) };
            found.insert(file.named.clone(), digest);
        }
        Ok(Some(found))
    }
}

/// Hashes the files of which the pack's manifest states digests, and keeps the digests in `cache_file`, so that the check
/// finds them. `go_on` is told the progress; when it says no, hashing stops after the block at hand.
pub fn hash(
    pack: &Pack,
    cache_file: &Path,
    go_on: &mut dyn FnMut(DigestProgress) -> bool,
) -> Result<(), FileError> {
    let stated = Stated::of(pack, cache_file)?;
    let total = stated.unknown_bytes();
    for file in stated.files.iter().filter(|file| !file.known) {
        // What was copied a moment ago would be hashed and not kept: the check would still not find it.
        if !files::settle(&file.path, &mut || go_on(DigestProgress { done: 0, total }))? {
            return Ok(());
        }
    }
    stated.finish(go_on).map(drop)
}
