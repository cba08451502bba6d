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
