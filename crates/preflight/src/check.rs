//! What a check says.

use evidence::Text;
use protocol::ErrorReport;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// Part of the set-up that a check looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// The machine.
    Host,
    /// The engine program and its device.
    Engine,
    /// The manifest and its digests.
    Pack,
    /// The verifier's folder.
    Verifier,
    /// The tokenizer's files.
    Tokenizer,
    /// The drafter's folder.
    Drafter,
    /// The projection's folder.
    FTheta,
    /// The run that is meant.
    Specification,
    /// A machine elsewhere.
    Worker,
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Holds.
    Pass,
    /// A run is possible, its result needs care.
    Warn,
    /// A run would fail or be worthless.
    Fail,
    /// Could not be looked at, because something before it failed or is absent.
    Skipped,
}

/// One row of the checklist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
pub struct Check {
    /// Stable name, for programs: `verifier-weights`, …
    pub id: String,
    /// Part it looks at.
    pub group: Group,
    /// Title of the row.
    pub title: Text,
    /// Outcome.
    pub status: Status,
    /// What was measured, with units.
    pub measured: Text,
    /// Why it matters.
    pub why: Text,
    /// What to do; empty when it passes.
    pub hint: Text,
    /// A command that does it, to copy; empty where there is none.
    pub command: String,
    /// Whether the program can fix it by itself.
    pub fixable: bool,
    /// Whether a fix of it can be taken back.
    pub undoable: bool,
    /// Seconds the check took.
    pub seconds: f64,
}

/// What a check found, before it becomes a row.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub status: Status,
    pub measured: Text,
    /// Boxed, so that what a look stops at is small.
    pub hint: Box<Text>,
    pub command: String,
    pub fixable: bool,
    /// Seconds, where the engine took them.
    pub seconds: Option<f64>,
}

impl Finding {
    fn new(status: Status, measured: Text, hint: Text) -> Self {
        Self { status, measured, hint: Box::new(hint), command: String::new(), fixable: false, seconds: None }
    }

    pub(crate) fn pass(measured: Text) -> Self {
        Self::new(Status::Pass, measured, Text::default())
    }

    pub(crate) fn warn(measured: Text, hint: Text) -> Self {
        Self::new(Status::Warn, measured, hint)
    }

    pub(crate) fn fail(measured: Text, hint: Text) -> Self {
        Self::new(Status::Fail, measured, hint)
    }

    pub(crate) fn skipped(why: Text) -> Self {
        Self::new(Status::Skipped, why, Text::default())
    }

    pub(crate) fn fixable(self) -> Self {
        Self { fixable: true, ..self }
    }

    pub(crate) fn command(self, command: impl Into<String>) -> Self {
        Self { command: command.into(), ..self }
    }

    pub(crate) fn took(self, seconds: f64) -> Self {
        Self { seconds: Some(seconds), ..self }
    }
}

/// What an engine reports is English.
impl From<&ErrorReport> for Finding {
    fn from(report: &ErrorReport) -> Self {
        Self::fail(Text::same(&report.message), Text::same(&report.hint))
    }
}

/// A look either finds something or stops at what is in its way; both become the row.
pub(crate) type Found = Result<Finding, Finding>;
