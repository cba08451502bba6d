//! What a check says.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// Part of the set-up that a check looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS)]
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
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Check {
    /// Stable name, for programs: `verifier-weights`, …
    pub id: String,
    /// Part it looks at.
    pub group: Group,
    /// Title of the row.
    pub title: String,
    /// Outcome.
    pub status: Status,
    /// What was measured, with units.
    pub measured: String,
    /// Why it matters.
    pub why: String,
    /// What to do; empty when it passes.
    pub hint: String,
    /// Whether the program can fix it by itself.
    pub fixable: bool,
    /// Seconds the check took.
    pub seconds: f64,
}

/// What a check found, before it becomes a row.
pub(crate) struct Finding {
    status: Status,
    measured: String,
    hint: String,
}

impl Finding {
    pub(crate) fn pass(measured: impl Into<String>) -> Self {
        Self { status: Status::Pass, measured: measured.into(), hint: String::new() }
    }

    pub(crate) fn warn(measured: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { status: Status::Warn, measured: measured.into(), hint: hint.into() }
    }

    pub(crate) fn fail(measured: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { status: Status::Fail, measured: measured.into(), hint: hint.into() }
    }

    pub(crate) fn skipped(why: impl Into<String>) -> Self {
        Self { status: Status::Skipped, measured: why.into(), hint: String::new() }
    }
}

/// The fixed part of a row.
pub(crate) struct Row {
    pub id: &'static str,
    pub group: Group,
    pub title: &'static str,
    pub why: &'static str,
}

impl Row {
    /// Runs the look and takes its time. An error is a failure with its own words.
    pub(crate) fn look(&self, look: impl FnOnce() -> Result<Finding, Finding>) -> Check {
        let began = std::time::Instant::now();
        let finding = look().unwrap_or_else(|finding| finding);
        Check {
            id: self.id.to_owned(),
            group: self.group,
            title: self.title.to_owned(),
            status: finding.status,
            measured: finding.measured,
            why: self.why.to_owned(),
            hint: finding.hint,
            fixable: false,
            seconds: began.elapsed().as_secs_f64(),
        }
    }
}
