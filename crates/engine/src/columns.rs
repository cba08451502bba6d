//! Which keys of several segments a block of queries sees, and in which columns of its scores they stand.

use crate::Error;
use crate::backend::{Mask, Segment};
use std::ops::Range;

/// The position of the first of `queries` queries, which end with the last segment.
pub(crate) fn queried<T>(keys: &[Segment<T>], queries: usize) -> Result<usize, Error> {
    let last = keys.last().ok_or_else(|| Error::Tensor("attention over no keys".into()))?;
    let first = last.positions.end.checked_sub(queries);
    first.ok_or_else(|| Error::Tensor(format!("{queries} queries but fewer positions before them")))
}

/// The parts of the segments that some query of `block` sees; `part` takes rows out of an array.
pub(crate) fn seen<T>(
    keys: &[Segment<T>],
    mask: Mask,
    block: Range<usize>,
    part: impl Fn(&T, Range<usize>) -> Result<T, Error>,
) -> Result<Vec<Segment<T>>, Error> {
    let end = keys.last().map_or(0, |last| last.positions.end);
    let (first, last) = (mask.visible(block.start, end), mask.visible(block.end - 1, end));
    let early = first.0.start.min(last.0.start)..first.0.end.max(last.0.end);
    let near = first.1.start.min(last.1.start).max(early.end)..last.1.end;
    let mut seen = Vec::new();
    for segment in keys {
        for wanted in [&early, &near] {
            let start = wanted.start.max(segment.positions.start);
            let end = wanted.end.min(segment.positions.end);
            if start < end {
                let rows = start - segment.positions.start..end - segment.positions.start;
                let (k, v) = (part(&segment.k, rows.clone())?, part(&segment.v, rows)?);
                seen.push(Segment { positions: start..end, k, v });
            }
        }
    }
    Ok(seen)
}

/// Which position each column of a score matrix belongs to: runs of consecutive positions.
pub(crate) struct Columns(Vec<Range<usize>>);

impl Columns {
    /// The positions of `seen`, side by side.
    pub(crate) fn of_segments<T>(seen: &[Segment<T>]) -> Self {
        Self(seen.iter().map(|segment| segment.positions.clone()).collect())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(Range::len).sum()
    }

    /// The position after the last column's.
    pub(crate) fn end(&self) -> usize {
        self.0.last().map_or(0, |run| run.end)
    }

    /// Columns of the positions `range`.
    pub(crate) fn of(&self, range: Range<usize>) -> Range<usize> {
        // Positions that have no column lie between two runs.
        let before = |position: usize| {
            self.0.iter().map(|run| position.clamp(run.start, run.end) - run.start).sum::<usize>()
        };
        before(range.start)..before(range.end)
    }
}
