//! Digests of a pack's files, each computed once: kept by path, size, time of change and inode.

use files::FileError;
use protocol::Pack;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use ts_rs::TS;

/// Bytes that are hashed within a checklist that must take seconds.
pub(crate) const AT_ONCE: u64 = 64 << 20;
const CACHE_CAP: u64 = 16 << 20;

/// How far the digests of a pack are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct DigestProgress {
    /// Bytes hashed.
    pub done: u64,
    /// Bytes to hash.
    pub total: u64,
}

/// A digest and the state of the file that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    bytes: u64,
    /// Time of the last change, nanoseconds since 1970.
    changed: u64,
    inode: u64,
    sha256: String,
}

impl Kept {
    fn belongs_to(&self, meta: &Metadata) -> bool {
        (self.bytes, self.changed, self.inode) == (meta.len(), changed(meta), inode(meta))
    }
}

fn changed(meta: &Metadata) -> u64 {
    let since = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| u64::try_from(since.as_nanos()).ok()).unwrap_or(0)
}

#[cfg(unix)]
fn inode(meta: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(meta)
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}

type Cache = BTreeMap<PathBuf, Kept>;

/// The files of which a manifest states digests, and what is known of them.
pub(crate) struct Digests<'a> {
    cache_file: &'a Path,
    cache: Cache,
    files: Vec<Stated>,
}

struct Stated {
    /// As the manifest names it.
    named: PathBuf,
    path: PathBuf,
    meta: Metadata,
    known: bool,
}

impl<'a> Digests<'a> {
    /// A cache that cannot be read is an empty one.
    pub(crate) fn of(pack: &Pack, cache_file: &'a Path) -> Result<Self, FileError> {
        let cache: Cache = files::read_capped(cache_file, CACHE_CAP)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let stated = |named: &PathBuf| {
            let joined = pack.folder.join(named);
            let unreadable = |source| FileError::Io { action: "cannot read", path: joined.clone(), source };
            let path = joined.canonicalize().map_err(unreadable)?;
            let meta = files::require_regular(&path)?;
            let known = cache.get(&path).is_some_and(|kept| kept.belongs_to(&meta));
            Ok(Stated { named: named.clone(), path, meta, known })
        };
        let files = pack.manifest.sha256.keys().map(stated).collect::<Result<_, _>>()?;
        Ok(Self { cache_file, cache, files })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.meta.len()).sum()
    }

    pub(crate) fn unknown_bytes(&self) -> u64 {
        self.files.iter().filter(|file| !file.known).map(|file| file.meta.len()).sum()
    }

    /// Hashes what is not known and keeps it. `go_on` is told the progress and may stop it. Gives the digests by the
    /// names in the manifest; none if it was stopped. What was hashed until then is kept.
    pub(crate) fn finish(
        mut self,
        go_on: &mut dyn FnMut(DigestProgress) -> bool,
    ) -> Result<Option<BTreeMap<PathBuf, String>>, FileError> {
        let total = self.unknown_bytes();
        let mut done = 0;
        for file in self.files.iter().filter(|file| !file.known) {
            let hashed = files::sha256_file_while(&file.path, &mut |bytes| {
                done += bytes;
                go_on(DigestProgress { done, total })
            })?;
            let Some(sha256) = hashed else { return Ok(None) };
            let (bytes, changed, inode) = (file.meta.len(), changed(&file.meta), inode(&file.meta));
            self.cache.insert(file.path.clone(), Kept { bytes, changed, inode, sha256 });
            self.keep();
        }
        let digest = |file: &Stated| Some((file.named.clone(), self.cache.get(&file.path)?.sha256.clone()));
        Ok(Some(self.files.iter().filter_map(digest).collect()))
    }

    /// A cache that cannot be written costs time and nothing else.
    fn keep(&self) {
        if let Ok(text) = serde_json::to_vec(&self.cache) {
            let _ = files::write_atomic(self.cache_file, &text);
        }
    }
}

/// Hashes the files of which the pack's manifest states digests, and keeps the digests in `cache_file`, so that the check
/// finds them. `go_on` is told the progress; when it says no, hashing stops after the block at hand.
pub fn hash(
    pack: &Pack,
    cache_file: &Path,
    go_on: &mut dyn FnMut(DigestProgress) -> bool,
) -> Result<(), FileError> {
    Digests::of(pack, cache_file)?.finish(go_on).map(drop)
}
