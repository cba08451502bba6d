//! What can end a run early.

use crate::journal::JournalError;
use crate::ssh::SshError;
use files::FileError;
use niah::DatasetError;
use protocol::{ErrorCode, ErrorReport, SpecError};
use std::path::PathBuf;

/// A run that ended before its last trial. What was finished is in the journal, and evidence of rungs that were complete
/// has been written.
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
        /// Its exit code, if it ended by itself.
        code: Option<i32>,
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
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Another process works on the run.
    #[error("another process works on the run {0}")]
    Busy(String),
    /// Nobody answered some trials, and nobody said why.
    #[error("{missing} trials were not answered")]
    Incomplete {
        /// How many.
        missing: usize,
    },
    /// The worker behind ssh could not be used.
    #[error(transparent)]
    Ssh(#[from] SshError),
    /// The queue could not be used.
    #[error("the queue {url}: {reason}")]
    Queue {
        /// Its address.
        url: String,
        /// What happened.
        reason: String,
    },
    /// Nobody could answer a trial on the queue.
    #[error(
        "{trials} trials were given up by the queue after {deliveries} deliveries each; the first: {first}"
    )]
    DeadLetters {
        /// How many.
        trials: usize,
        /// How often each was handed out.
        deliveries: usize,
        /// What the last worker said of the first of them.
        first: String,
    },
    /// No pack with that digest is where it is needed.
    #[error("{place} has no pack {pack}; it has {found}")]
    NoPack {
        /// Whose packs were looked at.
        place: String,
        /// The pack that was asked for.
        pack: String,
        /// Those that are there.
        found: String,
    },
    /// Shards that do not make one run.
    #[error("{path}: {reason}", path = path.display())]
    Shards {
        /// The file.
        path: PathBuf,
        /// Why it does not fit.
        reason: String,
    },
    /// The user cancelled.
    #[error("cancelled; what was finished is kept")]
    Cancelled,
    /// The user wanted it to stop after a sample.
    #[error("paused after a sample; nothing that was begun is lost")]
    Paused,
}

impl From<RunError> for ErrorReport {
    fn from(error: RunError) -> Self {
        Self::from(&error)
    }
}

impl From<&RunError> for ErrorReport {
    fn from(error: &RunError) -> Self {
        let (code, hint) = match error {
            RunError::Engine(report) => return report.clone(),
            RunError::Spec(_) | RunError::Dataset(_) => {
                (ErrorCode::BadSpec, "correct the setting and start again")
            }
            RunError::NotStarted { .. } => (
                ErrorCode::EngineNotStarted,
                "build or install the program kakeya-gate, or name it in KAKEYA_GATE_PROGRAM",
            ),
            RunError::Lost { .. } => {
                (ErrorCode::EngineLost, "start the run again; a crash in the same place is worth a report")
            }
            RunError::Garbled(_) => {
                (ErrorCode::EngineGarbled, "use an engine of the same version as this program")
            }
            RunError::File(_) => (ErrorCode::File, "check the folder's permissions and free space"),
            RunError::Busy(_) | RunError::Journal(JournalError::Busy(_)) => {
                (ErrorCode::RunBusy, "wait for it, or stop it where it was started")
            }
            RunError::Journal(error) if error.is_full() => (
                ErrorCode::DiskFull,
                "free some space, then continue the run with --resume; nothing that was finished is lost",
            ),
            RunError::Journal(JournalError::NoRun(_)) => {
                (ErrorCode::NoRun, "look at the list of runs again: it may have been discarded meanwhile")
            }
            RunError::Journal(_) => (
                ErrorCode::Journal,
                "check the data folder's permissions, or name another one in KAKEYA_GATE_DATA",
            ),
            RunError::Incomplete { .. } => (ErrorCode::RunIncomplete, "continue the run with --resume"),
            RunError::Ssh(error) => (error.code(), error.hint()),
            RunError::Queue { .. } => (
                ErrorCode::Queue,
                "check that the server runs with JetStream, its address, and the credentials; then continue with --resume",
            ),
            RunError::DeadLetters { .. } => {
                (ErrorCode::DeadLetters, "look at the workers' logs, then continue the run with --resume")
            }
            RunError::NoPack { .. } => (
                ErrorCode::PackNotThere,
                "copy the pack into one of the packs folders there; packs do not travel by themselves",
            ),
            RunError::Shards { .. } => (ErrorCode::Shards, "give every shard of one run, each once"),
            RunError::Paused => (ErrorCode::Paused, "continue the run with --resume when it suits you"),
            RunError::Cancelled => (ErrorCode::Cancelled, "continue the run with --resume when it suits you"),
        };
        Self::new(code, error, hint)
    }
}
