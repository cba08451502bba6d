//! Scoring one answer.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// Whether a text recalls the code: the reference's strict rule decides, the second figure is shown beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct Score {
    /// The code is a case-sensitive substring of the text.
    pub strict: bool,
    /// The code is a substring when both are lower-cased.
    pub ignoring_case: bool,
}

impl Score {
    /// Scores `text` against `answer`. An empty answer is never a hit: every text contains it.
    pub fn of(text: &str, answer: &str) -> Self {
        if answer.is_empty() {
            return Self { strict: false, ignoring_case: false };
        }
        let strict = text.contains(answer);
        Self { strict, ignoring_case: strict || text.to_lowercase().contains(&answer.to_lowercase()) }
    }
}
