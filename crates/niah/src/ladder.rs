//! The ladder of context lengths that a release must climb.

use crate::Dataset;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// The release ladder, in padding lines.
pub const LADDER: [u32; 5] = [70, 280, 1100, 3200, 5000];

/// One rung: a nominal number of padding lines, 15 % up and down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS)]
#[serde(transparent)]
pub struct Rung(
    /// Nominal padding lines.
    pub u32,
);

impl Rung {
    /// Fewest and most padding lines: `[(85·L+50)/100, (115·L+50)/100]` in integer division, the low end at least 10,
    /// the high end at least low + 1.
    pub fn line_bounds(self) -> (u32, u32) {
        let share =
            |percent: u64| u32::try_from((percent * u64::from(self.0) + 50) / 100).unwrap_or(u32::MAX);
        let low = share(85).max(10);
        (low, share(115).max(low.saturating_add(1)))
    }

    /// The rung's dataset.
    pub fn dataset(self, seed: i64, n_samples: usize) -> Dataset {
        let (min_lines, max_lines) = self.line_bounds();
        Dataset { seed, n_samples, min_lines, max_lines }
    }

    /// The rung of the release ladder that these bounds belong to (the high end may be off by one, as in old files).
    pub fn of_bounds(min_lines: u32, max_lines: u32) -> Option<Self> {
        LADDER.into_iter().map(Rung).find(|rung| {
            let (low, high) = rung.line_bounds();
            low == min_lines && high.abs_diff(max_lines) <= 1
        })
    }
}
