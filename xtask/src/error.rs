//! What can go wrong, with what to do about it.

use std::process::{ExitCode, ExitStatus};

/// A task that could not be carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A program that is not installed, or cannot be started.
    #[error("cannot start {program}: {source}\n  hint: {hint}")]
    Start {
        /// The program.
        program: String,
        /// The system's own answer.
        source: std::io::Error,
        /// How to get it.
        hint: &'static str,
    },
    /// A program that ended with an error, which it has explained itself.
    #[error("{command}: {status}")]
    Failed {
        /// The command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// A machine that lacks something which is not ours to install.
    #[error("{missing}\n  hint: {hint}")]
    Machine {
        /// What is missing.
        missing: String,
        /// How to get it.
        hint: String,
    },
    /// A file or folder that cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file or folder.
        path: String,
        /// The system's own answer.
        source: std::io::Error,
    },
    /// A program that was built and does not do what it is for.
    #[error("{program} does not run the demo pack: {said}")]
    TryOut {
        /// The program.
        program: String,
        /// What it wrote to standard error.
        said: String,
    },
    /// A measurement that cannot be read.
    #[error("not a measurement: {0:?}")]
    Measurement(String),
    /// Steps of the test that failed; each has explained itself.
    #[error("failed: {0}")]
    Steps(String),
}

impl Error {
    /// The failed program's own exit code, else 2: could not do it.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Failed { status, .. } => {
                ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
            }
            Self::Steps(_) => ExitCode::FAILURE,
            _ => ExitCode::from(2),
        }
    }
}
