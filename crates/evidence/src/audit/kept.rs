//! Audits that are kept from scan to scan, for programs that stay open.

use super::neighbours::{self, Alone, Told};
use super::{Audit, Scan, audit_one};
use crate::read::{self, Place, ReadError};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// What tells that a file is still the one that was read: its size and when it changed last.
type Stamp = (u64, SystemTime);

/// Files as they were read last. A scan reads again only what has changed since.
#[derive(Default)]
pub struct Kept {
    files: BTreeMap<Place, (Stamp, Arc<Alone>)>,
}

/// Files beside each other. It shares their audits with [`Kept`], so it costs little to hold on to.
pub struct Beside {
    files: Vec<Arc<Alone>>,
    told: Vec<Told>,
    /// Files that could not be read.
    pub unreadable: Vec<ReadError>,
}

impl Kept {
    /// Looks at the files beside each other, reading those that are new or have changed.
    pub fn look(&mut self, places: &[Place]) -> Beside {
        let read: Vec<Result<(Stamp, Arc<Alone>), ReadError>> =
            places.par_iter().map(|place| self.fresh(place)).collect();
        let (mut files, mut unreadable) = (Vec::new(), Vec::new());
        for (place, outcome) in places.iter().zip(read) {
            match outcome {
                Ok((stamp, alone)) => {
                    files.push(Arc::clone(&alone));
                    self.files.insert(place.clone(), (stamp, alone));
                }
                Err(problem) => {
                    self.files.remove(place);
                    unreadable.push(problem);
                }
            }
        }
        Beside { told: neighbours::tell(&files), files, unreadable }
    }

    /// Forgets every file that is not among these.
    pub fn retain(&mut self, places: &[Place]) {
        self.files.retain(|place, _| places.binary_search(place).is_ok());
    }

    fn fresh(&self, place: &Place) -> Result<(Stamp, Arc<Alone>), ReadError> {
        let stamp = stamp(&place.path);
        match (self.files.get(place), stamp) {
            (Some((known, alone)), Some(stamp)) if *known == stamp => Ok((stamp, Arc::clone(alone))),
            // A file without a time is read each time.
            _ => Ok((stamp.unwrap_or((0, SystemTime::UNIX_EPOCH)), Arc::new(audit_one(&read::read(place)?)))),
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = path.metadata().ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

impl Beside {
    /// Every audit, in the order of the places; made one by one, so that nobody has to hold them all.
    pub fn audits(&self) -> impl Iterator<Item = Audit> {
        let joined = |(file, told): (&Arc<Alone>, &Told)| neighbours::joined(file.audit.clone(), told);
        self.files.iter().zip(&self.told).map(joined)
    }

    /// The audit of one file.
    pub fn audit(&self, path: &Path) -> Option<Audit> {
        let at = self.files.iter().position(|file| file.audit.path == path)?;
        Some(neighbours::joined(self.files[at].audit.clone(), &self.told[at]))
    }

    /// The paths of the files.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.iter().map(|file| &file.audit.path)
    }

    /// All of it at once.
    pub fn scan(self) -> Scan {
        Scan { audits: self.audits().collect(), unreadable: self.unreadable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::scan;

    fn places(folder: &Path) -> Vec<Place> {
        read::find(&[folder.to_owned()])
    }

    #[test]
    fn only_what_changed_is_read_again_and_neighbours_are_heard() {
        let folder = tempfile::tempdir().unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/fixtures");
        let text = std::fs::read(fixtures.join("demo_ctx20.json")).unwrap();
        files::write_atomic(&folder.path().join("a.json"), &text).unwrap();
        let mut kept = Kept::default();
        let alone = kept.look(&places(folder.path()));
        assert!(!alone.audits().any(|audit| audit.has("DUPLICATE_EVIDENCE")));

        files::write_atomic(&folder.path().join("b.json"), &text).unwrap();
        let beside = kept.look(&places(folder.path()));
        assert!(Arc::ptr_eq(&alone.files[0], &beside.files[0]), "a.json is not read twice");
        let path = folder.path().join("a.json");
        assert!(beside.audit(&path).is_some_and(|audit| audit.has("DUPLICATE_EVIDENCE")));
        assert_eq!(beside.scan().audits, scan(&places(folder.path()), || {}).audits);

        files::write_atomic(&path, b"{").unwrap();
        let broken = kept.look(&places(folder.path()));
        assert_eq!((broken.audits().count(), broken.unreadable.len()), (1, 1));
    }
}
