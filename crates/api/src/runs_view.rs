//! The journal, as front ends see it.

use crate::{ErrorCode, ErrorReport};
use protocol::RunSpec;
use runs::{Begin, Journal, JournalledRun, RunError, Shard, Target};
use std::path::{Path, PathBuf};

/// The environment variable that names the data folder.
const DATA_VARIABLE: &str = "KAKEYA_GATE_DATA";

/// Folder of the journal, of host keys and of this machine's own packs: the one named in `KAKEYA_GATE_DATA`, else the
/// platform's.
pub fn data_folder() -> Result<PathBuf, ErrorReport> {
    let named = std::env::var_os(DATA_VARIABLE).filter(|named| !named.is_empty()).map(PathBuf::from);
    named.or_else(|| Some(dirs::data_dir()?.join("kakeya-gate"))).ok_or_else(|| {
        ErrorReport::new(
            ErrorCode::NoDataFolder,
            "this system names no folder for data",
            "name one in KAKEYA_GATE_DATA",
        )
    })
}

/// Runs that have not ended and that nobody works on, the latest first.
pub fn unfinished_runs(data: &Path) -> Result<Vec<JournalledRun>, ErrorReport> {
    let mut runs = Journal::open(data).and_then(|journal| journal.runs()).map_err(RunError::from)?;
    runs.retain(JournalledRun::is_unfinished);
    Ok(runs)
}

/// How a run that is asked for with its settings alone goes on: the one of these settings that has not ended, or a new one
/// that takes over what any run has finished.
pub fn resume_or_reuse(
    data: &Path,
    spec: &RunSpec,
    target: &Target,
    shard: Option<Shard>,
) -> Result<Begin, ErrorReport> {
    let going_on = |run| Begin::Continue { run };
    Ok(runs::unfinished(data, spec, target, shard)?.map_or(Begin::Reuse, going_on))
}

/// Forgets a run that shall not be continued.
pub fn discard_run(data: &Path, id: &str) -> Result<(), ErrorReport> {
    Ok(Journal::open(data).and_then(|journal| journal.discard(id)).map_err(RunError::from)?)
}
