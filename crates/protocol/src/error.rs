//! Errors as they are told: a code for programs, words for people.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use ts_rs::TS;

/// The enum of these codes and the list of all of them, which cannot lack one.
macro_rules! codes {
    ($($(#[$about:meta])* $code:ident,)*) => {
        /// What kind of error it is: stable, for programs. Reads as its name, words joined by hyphens.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS)]
        #[serde(rename_all = "kebab-case")]
        pub enum ErrorCode {
            $($(#[$about])* $code,)*
        }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$code),*];
        }
    };
}

codes! {
    // A pack and what an engine makes of it.
    /// There is no pack in the folder.
    PackNotFound,
    /// The manifest of a pack cannot be used.
    PackMalformed,
    /// A folder that the manifest names does not exist.
    PartNotFound,
    /// The manifest names no part that an arm needs.
    PartMissing,
    /// A file of a pack is absent or unreadable.
    FileUnreadable,
    /// A weight file holds no weights, not all of them, or those of another model.
    WeightsDamaged,
    /// The digest of a file is not the one that the manifest names.
    DigestMismatch,
    /// A configuration lacks a key, or asks for what is not supported.
    ConfigUnsupported,
    /// Parts of a pack do not belong together.
    DimensionMismatch,
    /// The tokenizer or its chat template cannot be used.
    Tokenizer,
    /// A trial makes no sense.
    TrialMalformed,
    /// This program or this machine cannot compute on the device.
    DeviceUnusable,
    /// A tensor operation failed.
    Tensor,
    /// The host gave a trial up.
    TrialCancelled,

    // The talk with an engine.
    /// A line is no request.
    RequestMalformed,
    /// The first request was not hello.
    HelloMissing,
    /// Host and engine speak different protocols.
    ProtocolVersion,
    /// A trial came before its pack was loaded.
    PackNotLoaded,
    /// The engine's program cannot be found.
    EngineNotFound,
    /// The engine's program did not start.
    EngineNotStarted,
    /// The engine's process ended, or stopped answering, while it was needed.
    EngineLost,
    /// The engine wrote something that is no message.
    EngineGarbled,
    /// The engine cannot read its requests or write its answers.
    Engine,

    // Runs.
    /// The specification of a run does not hold together.
    BadSpec,
    /// A file holds no specification of a run.
    BadSpecFile,
    /// A file cannot be read or written.
    File,
    /// There is no space left for the journal.
    DiskFull,
    /// The journal cannot be used.
    Journal,
    /// The journal has no such run.
    NoRun,
    /// Another process works on the run.
    RunBusy,
    /// Trials were not answered, and nobody said why.
    RunIncomplete,
    /// The user cancelled.
    Cancelled,
    /// The user wanted the run to stop after a sample.
    Paused,
    /// The queue cannot be used.
    Queue,
    /// Nobody could answer some trials of a queue.
    DeadLetters,
    /// The pack of a run is not where the run is to happen.
    PackNotThere,
    /// Shards do not make one run.
    Shards,

    // Workers behind ssh.
    /// The name of a target cannot be read.
    BadTarget,
    /// No target has that name.
    NoTarget,
    /// There is no ssh, or no folder for its files.
    Ssh,
    /// Nobody has approved of the host's key.
    SshNotPinned,
    /// The host shows another key than the pinned one.
    SshWrongKey,
    /// The host does not let the user in.
    SshDenied,
    /// The host does not answer.
    SshUnreachable,
    /// The host has no such program.
    WorkerMissing,
    /// The program over there is another version.
    WorkerVersion,
    /// What was sent did not arrive whole.
    WorkerDamaged,
    /// The program is for other machines.
    WorkerSystem,

    // The checklist and its fixes.
    /// There is no such check.
    NoSuchCheck,
    /// The check has no fix.
    NoSuchFix,
    /// The file has a form that the fix does not know.
    FixUnrecognised,
    /// The file lies where fixes do not write.
    FixOutside,
    /// The folder does not take a new file.
    FixReadOnly,
    /// The backup of an earlier fix is in the way.
    FixBackup,
    /// The command of a fix did not do its work.
    FixCommand,
    /// There is nothing to take back.
    UndoNoBackup,
    /// The file was changed after it was fixed.
    UndoChanged,

    // Evidence and what is made of it.
    /// There is no evidence file below the paths.
    NoEvidence,
    /// The path is that of a folder, or of nothing.
    NoSuchEvidence,
    /// A file cannot be read.
    UnreadableEvidence,
    /// A file is empty.
    EmptyEvidence,
    /// A file is no JSON.
    DamagedEvidence,
    /// A file is JSON, but no evidence.
    NotEvidence,
    /// A file has changed since the list was read.
    EvidenceChanged,
    /// No file holds needle evidence.
    NoNeedles,
    /// No file holds the arm.
    NoArm,
    /// The dataset has no such sample.
    NoSample,
    /// No dataset can be made from the settings.
    Dataset,
    /// A policy cannot be read.
    Policy,
    /// A report cannot be made.
    Report,
    /// No font has the letters of a Chinese report.
    NoChineseFont,
    /// The ending of a file's name names no format.
    UnknownFormat,
    /// What is to be saved cannot be read.
    Content,

    // Workspaces and the program itself.
    /// The workspace is no folder.
    NoWorkspace,
    /// The workspace cannot be watched.
    NotWatched,
    /// The demo workspace cannot be laid out.
    Demo,
    /// The system names no folder for data.
    NoDataFolder,
    /// An answer cannot be put into words.
    Answer,
    /// The program failed where it must not.
    Panicked,

    // The command line.
    /// The result cannot be written.
    Output,
    /// Ctrl-C cannot be listened to.
    Signal,
    /// No folder of reference outputs was given.
    NoGoldens,
    /// The program was built without its pages.
    NoPages,
    /// Nothing can be served.
    Serve,

    // Pages.
    /// The address that opens a page was used before.
    AddressUsed,
    /// The page has no key.
    NotSignedIn,
    /// The page that calls has stopped listening.
    NoFeed,
    /// The system gives no random numbers.
    NoRandomNumbers,
    /// The program no longer answers the page.
    Gone,
    /// The native menus cannot be shown.
    Menu,
    /// The ladder is no list of whole numbers.
    Ladder,
    /// The sweep is no list of weights.
    Sweep,
    /// A field is no whole number.
    Number,
    /// The page failed where it must not.
    Unexpected,

    /// A code of another version of the program.
    #[serde(other)]
    Unknown,
}

impl Display for ErrorCode {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        self.serialize(f)
    }
}

/// An error with what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS, thiserror::Error)]
#[error("{message}")]
pub struct ErrorReport {
    /// What kind of error it is.
    pub code: ErrorCode,
    /// What happened and where.
    pub message: String,
    /// What to do.
    pub hint: String,
    /// The message as the program itself words it, in English, where `message` is in another language; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[ts(as = "Option<String>", optional)]
    pub detail: String,
}

impl ErrorReport {
    /// An error in the program's own words.
    pub fn new(code: ErrorCode, message: impl ToString, hint: &str) -> Self {
        Self { code, message: message.to_string(), hint: hint.to_owned(), detail: String::new() }
    }
}
