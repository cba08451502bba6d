//! What can end a run early.

use files::FileError;
use niah::DatasetError;
use protocol::{ErrorReport, SpecError};
use std::path::PathBuf;

/// A run that ended before its last trial. Evidence of rungs that were complete has been written; nothing else has.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The specification does not hold together.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// No dataset can be made from a rung.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The engine program did not start.
    #[error("cannot start the engine {program}: {source}", program = program.display())]
    NotStarted {
        /// The program.
        program: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The engine process ended, or stopped answering, while it was needed.
    #[error("the engine process {how} while {doing}{last_words}")]
    Lost {
        /// How it ended: exit status, signal or silence.
        how: String,
        /// What it was doing.
        doing: String,
        /// The end of its standard error, if it left any.
        last_words: String,
    },
    /// The engine wrote something that is no message.
    #[error("the engine wrote a line that is no message: {0}")]
    Garbled(String),
    /// The engine refused a request.
    #[error(transparent)]
    Engine(#[from] ErrorReport),
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The user cancelled.
    #[error("cancelled; evidence of rungs that were complete is kept")]
    Cancelled,
}

impl From<RunError> for ErrorReport {
    fn from(error: RunError) -> Self {
        let (code, hint) = match &error {
            RunError::Engine(report) => return report.clone(),
            RunError::Spec(_) | RunError::Dataset(_) => ("bad-spec", "correct the setting and start again"),
            RunError::NotStarted { .. } => (
                "engine-not-started",
                "build or install the program kakeya-gate, or name it in KAKEYA_GATE_PROGRAM",
            ),
            RunError::Lost { .. } => {
                ("engine-lost", "start the run again; a crash in the same place is worth a report")
            }
            RunError::Garbled(_) => ("engine-garbled", "use an engine of the same version as this program"),
            RunError::File(_) => ("file", "check the folder's permissions and free space"),
            RunError::Cancelled => ("cancelled", "start the run again when it suits you"),
        };
        Self { code: code.into(), message: error.to_string(), hint: hint.into() }
    }
}
