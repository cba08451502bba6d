//! Everything that stands between a model pack and a valid run, checked from headers alone.
//!
//! Follows the seven checks of the reference's Mac script, closed where that script has holes: a pointer file passes no
//! size test here, an unreadable tokenizer configuration is a failure, dimensions are compared layer by layer.

mod check;
mod engine;
mod host;
mod pack;
mod parts;
mod weights;

pub use check::{Check, Group, Status};
pub use engine::EngineProbe;

use protocol::Pack;
use std::path::{Path, PathBuf};

/// A pack that cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// There is no such folder.
    #[error("{path} is no folder", path = .0.display())]
    NoFolder(PathBuf),
}

/// Every check of one pack, in the order of the checklist. Reads headers and configurations; whole files only for the
/// digests of small packs.
pub fn checks(folder: &Path, engine: &EngineProbe) -> Result<Vec<Check>, PreflightError> {
    if !folder.is_dir() {
        return Err(PreflightError::NoFolder(folder.to_owned()));
    }
    let opened = Pack::open(folder).and_then(|pack| pack.require_parts().map(|()| pack));
    let mut checks = vec![engine::answers(engine), engine::device(engine), host::disk(folder)];
    checks.push(pack::manifest(&opened));
    match &opened {
        Ok(pack) => {
            checks.push(host::memory(pack));
            checks.push(pack::digests(pack));
            checks.push(pack::conventions(pack));
            checks.extend(parts::checks(pack));
        }
        Err(_) => checks.extend(parts::skipped()),
    }
    checks.sort_by_key(|check| check.group);
    Ok(checks)
}
