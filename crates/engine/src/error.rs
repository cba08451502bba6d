//! What can go wrong in the engine, with what to do about it.

use protocol::{ErrorCode, ErrorReport, PackError};
use std::path::PathBuf;

/// A request that could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifest of a pack.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// A file of a pack that is absent or unreadable.
    #[error(transparent)]
    File(#[from] files::FileError),
    /// A weight file that holds no weights, or not all of them.
    #[error("{path}: {reason}", path = path.display())]
    Weights {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        hint: &'static str,
    },
    /// A file whose digest is not the one that the manifest names.
    #[error("{path}: sha256 is {found}, but pack.json expects {expected}", path = path.display())]
    Digest {
        /// The file.
        path: PathBuf,
        /// Digest of the file.
        found: String,
        /// Digest in the manifest.
        expected: String,
    },
    /// A configuration that lacks a key, or asks for what is not supported.
    #[error("{path} at {key}: {reason}", path = path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// Parts of a pack that do not belong together.
    #[error("{left} but {right}")]
    Mismatch {
        /// What one side says.
        left: String,
        /// What the other side says.
        right: String,
    },
    /// A part that the asked arm needs and the pack does not name.
    #[error("the arm {arm} needs {part}, which pack.json does not name")]
    MissingPart {
        /// The arm.
        arm: protocol::Arm,
        /// drafter or f_theta.
        part: &'static str,
    },
    /// The tokenizer or its chat template.
    #[error("{path}: {reason}", path = path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A trial that makes no sense.
    #[error("{0}")]
    Trial(String),
    /// A device that this program, or this machine, cannot compute on.
    #[error("{device} cannot be used: {reason}")]
    Device {
        /// The device.
        device: &'static str,
        /// What is in the way.
        reason: String,
        /// What to do.
        hint: &'static str,
    },
    /// A tensor operation failed.
    #[error("tensor operation failed: {0}")]
    Tensor(String),
    /// The host gave the trial up.
    #[error("cancelled")]
    Cancelled,
}

impl From<files::WeightsError> for Error {
    fn from(error: files::WeightsError) -> Self {
        Self::Weights { path: error.path, reason: error.reason, hint: error.hint }
    }
}

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Self::Tensor(error.to_string())
    }
}

impl Error {
    /// The error as the protocol carries it.
    pub fn report(&self) -> ErrorReport {
        let (code, hint) = match self {
            Self::Pack(PackError::NoFolder(_)) => {
                (ErrorCode::PackNotFound, "give the folder that holds pack.json")
            }
            Self::Pack(PackError::MissingPart { .. }) => {
                (ErrorCode::PartNotFound, "correct the path in pack.json")
            }
            Self::Pack(_) => (ErrorCode::PackMalformed, "correct pack.json"),
            Self::File(_) => (ErrorCode::FileUnreadable, "check that the pack is complete and readable"),
            Self::Weights { hint, .. } => (ErrorCode::WeightsDamaged, *hint),
            Self::Digest { .. } => (
                ErrorCode::DigestMismatch,
                "download the file again, or correct sha256 in pack.json if the change is meant",
            ),
            Self::Config { .. } => {
                (ErrorCode::ConfigUnsupported, "correct the file, or use a model that this program supports")
            }
            Self::Mismatch { .. } => {
                (ErrorCode::DimensionMismatch, "use a drafter and f_θ that were made for this verifier")
            }
            Self::MissingPart { .. } => {
                (ErrorCode::PartMissing, "add the part to pack.json, or leave the arm out")
            }
            Self::Tokenizer { .. } => {
                (ErrorCode::Tokenizer, "check the tokenizer files of the verifier folder")
            }
            Self::Trial(_) => (ErrorCode::TrialMalformed, "correct the run specification"),
            Self::Device { hint, .. } => (ErrorCode::DeviceUnusable, *hint),
            Self::Tensor(_) => {
                (ErrorCode::Tensor, "this may be a bug of the program: please report it with the message")
            }
            Self::Cancelled => (ErrorCode::TrialCancelled, "start the trial again"),
        };
        ErrorReport::new(code, self, hint)
    }
}
