//! Digests of files, each computed once: kept by path, size, time of change and inode.

use crate::{FileError, read_capped, require_regular, sha256_file_while, write_atomic};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The environment variable that names the folder, for installations that keep such things elsewhere.
const FOLDER_VARIABLE: &str = "KAKEYA_GATE_CACHE";
const CAP: u64 = 16 << 20;
/// A file that was changed less long ago may change again without another time of change: file systems count as coarsely as
/// by two seconds. Its digest is not kept. (git treats its index alike.)
const SETTLED: Duration = Duration::from_secs(2);
/// How often a file that is waited for is looked at.
const GLANCE: Duration = Duration::from_millis(50);

/// Digests that are known, and where they are kept.
#[derive(Debug)]
pub struct Digests {
    file: PathBuf,
    kept: BTreeMap<PathBuf, Kept>,
}

/// A digest and the state of the file that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    state: State,
    sha256: String,
}

/// What changes with a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    bytes: u64,
    /// Time of the last change, nanoseconds since 1970.
    changed: u64,
    inode: u64,
}

impl State {
    fn of(meta: &Metadata) -> Self {
        Self { bytes: meta.len(), changed: changed(meta), inode: inode(meta) }
    }

    fn is_settled(self, now: SystemTime) -> bool {
        let changed = UNIX_EPOCH + Duration::from_nanos(self.changed);
        now.duration_since(changed).is_ok_and(|age| age >= SETTLED)
    }
}

/// When content or attributes last changed: unlike the time of modification no program sets this one.
#[cfg(unix)]
fn changed(meta: &Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let nanoseconds = i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec());
    u64::try_from(nanoseconds).unwrap_or(0)
}

#[cfg(not(unix))]
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

/// The user's file for digests: in the folder that `KAKEYA_GATE_CACHE` names, else in the user's folder for such things.
pub fn digest_cache() -> PathBuf {
    let folder = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from);
    let folder = folder.or_else(|| Some(dirs::cache_dir()?.join("kakeya-gate")));
    folder.unwrap_or_else(std::env::temp_dir).join("digests.json")
}

impl Digests {
    /// Those that are kept in `file`. One that cannot be read holds none.
    pub fn kept_in(file: PathBuf) -> Self {
        let bytes = read_capped(&file, CAP).ok();
        let kept = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        Self { file, kept }
    }

    /// The digest of a file if it is known. Fails where the file is absent or no ordinary one.
    pub fn known(&self, path: &Path) -> Result<Option<&str>, FileError> {
        let (path, state) = look(path)?;
        Ok(self.kept.get(&path).filter(|kept| kept.state == state).map(|kept| kept.sha256.as_str()))
    }

    /// The digest of a file, computed if it is not known; as [`crate::sha256_file`].
    pub fn of(&mut self, path: &Path) -> Result<String, FileError> {
        // It goes on, so there is one.
        self.of_while(path, &mut |_| true).map(Option::unwrap_or_default)
    }

    /// [`Digests::of`] that tells `go_on` the bytes of each block that is hashed; none when that says no.
    pub fn of_while(
        &mut self,
        path: &Path,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, FileError> {
        self.at(path, SystemTime::now(), go_on)
    }

    fn at(
        &mut self,
        path: &Path,
        now: SystemTime,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, FileError> {
        if let Some(known) = self.known(path)? {
            return Ok(Some(known.to_owned()));
        }
        let (path, state) = look(path)?;
        let Some(sha256) = sha256_file_while(&path, go_on)? else { return Ok(None) };
        if state.is_settled(now) && look(&path)?.1 == state {
            self.kept.insert(path, Kept { state, sha256: sha256.clone() });
            self.keep();
        }
        Ok(Some(sha256))
    }

    /// Forgets files that are gone, and writes the rest. A file that cannot be written costs time and nothing else.
    fn keep(&mut self) {
        self.kept.retain(|path, _| path.exists());
        if let Ok(text) = serde_json::to_vec(&self.kept) {
            let _ = write_atomic(&self.file, &text);
        }
    }
}

/// Waits until the last change of a file is so long ago that its digest is kept; false when `go_on`, which is asked meanwhile,
/// says no.
pub fn settle(path: &Path, go_on: &mut dyn FnMut() -> bool) -> Result<bool, FileError> {
    // Nobody sends: waiting for it lets time pass.
    let (_sender, never) = std::sync::mpsc::channel::<()>();
    let begun = SystemTime::now();
    // A change that lies in the future, by a clock that was set back, is not waited for.
    while !look(path)?.1.is_settled(SystemTime::now())
        && begun.elapsed().is_ok_and(|waited| waited <= SETTLED)
    {
        if !go_on() {
            return Ok(false);
        }
        let _ = never.recv_timeout(GLANCE);
    }
    Ok(true)
}

/// The file behind a path, links followed, and its state.
fn look(path: &Path) -> Result<(PathBuf, State), FileError> {
    let real = path.canonicalize().map_err(|e| FileError::io("cannot read", path, e))?;
    let meta = require_regular(&real)?;
    Ok((real, State::of(&meta)))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "files that change in place are what is tested")]
mod tests {
    use super::*;
    use crate::sha256;
    use std::fs;

    struct Desk {
        folder: tempfile::TempDir,
        file: PathBuf,
    }

    impl Desk {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("weights");
            fs::write(&file, "first").unwrap();
            Self { folder, file }
        }

        /// The digest, asked for so long after now, and the bytes that were hashed for it.
        fn ask(&self, later: Duration) -> (String, u64) {
            let (mut hashed, mut digests) = (0, Digests::kept_in(self.folder.path().join("digests.json")));
            let digest = digests.at(&self.file, SystemTime::now() + later, &mut |bytes| {
                hashed += bytes;
                true
            });
            (digest.unwrap().unwrap(), hashed)
        }
    }

    const SOON: Duration = Duration::ZERO;
    const LATER: Duration = Duration::from_secs(3);

    #[test]
    fn a_digest_is_computed_once_and_anew_for_another_content() {
        let desk = Desk::new();
        assert_eq!(desk.ask(LATER), (sha256(b"first"), 5));
        assert_eq!(desk.ask(LATER), (sha256(b"first"), 0));
        fs::write(&desk.file, "longer").unwrap();
        assert_eq!(desk.ask(LATER), (sha256(b"longer"), 6));
        assert_eq!(desk.ask(SOON), (sha256(b"longer"), 0));
    }

    #[test]
    fn what_changed_a_moment_ago_is_not_kept() {
        let desk = Desk::new();
        assert_eq!(desk.ask(SOON), (sha256(b"first"), 5));
        assert_eq!(desk.ask(SOON), (sha256(b"first"), 5));
        // A clock that was set back.
        let future = State::of(&fs::metadata(&desk.file).unwrap());
        assert!(!future.is_settled(UNIX_EPOCH));
    }

    #[test]
    fn after_settling_a_digest_is_kept_and_the_wait_can_be_given_up() {
        let desk = Desk::new();
        assert!(!settle(&desk.file, &mut || false).unwrap());
        assert!(settle(&desk.file, &mut || true).unwrap());
        assert_eq!(desk.ask(SOON), (sha256(b"first"), 5));
        assert_eq!(desk.ask(SOON), (sha256(b"first"), 0));
    }

    /// Size, inode and time of modification are those of before.
    #[cfg(unix)]
    #[test]
    fn a_changed_byte_is_found_also_where_its_time_was_set_back() {
        let desk = Desk::new();
        let before = fs::metadata(&desk.file).unwrap().modified().unwrap();
        assert_eq!(desk.ask(LATER), (sha256(b"first"), 5));
        // The clock of the file system ticks a few times a second.
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            fs::write(&desk.file, "other").unwrap();
        }
        fs::File::options().write(true).open(&desk.file).unwrap().set_modified(before).unwrap();
        assert_eq!(desk.ask(LATER), (sha256(b"other"), 5));
    }

    #[test]
    fn a_change_while_it_is_hashed_is_not_kept() {
        let desk = Desk::new();
        let mut digests = Digests::kept_in(desk.folder.path().join("digests.json"));
        let mut grow = |_| fs::write(&desk.file, "first and more").is_ok();
        digests.at(&desk.file, SystemTime::now() + LATER, &mut grow).unwrap();
        assert_eq!(digests.known(&desk.file).unwrap(), None);
    }

    #[test]
    fn links_share_a_digest_and_files_that_are_gone_are_forgotten() {
        let desk = Desk::new();
        let mut digests = Digests::kept_in(desk.folder.path().join("digests.json"));
        let now = SystemTime::now() + LATER;
        digests.at(&desk.file, now, &mut |_| true).unwrap();
        #[cfg(unix)]
        {
            let link = desk.folder.path().join("link");
            std::os::unix::fs::symlink(&desk.file, &link).unwrap();
            assert_eq!(digests.known(&link).unwrap(), Some(sha256(b"first").as_str()));
        }
        let other = desk.folder.path().join("other");
        fs::rename(&desk.file, &other).unwrap();
        digests.at(&other, now, &mut |_| true).unwrap();
        assert_eq!(digests.kept.len(), 1);
        assert!(digests.known(&desk.file).is_err());
    }
}
