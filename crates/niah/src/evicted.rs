//! Which positions a bounded KV memory no longer holds.

use std::ops::Range;

/// Evicted positions of a sequence of `len` tokens: empty if it fits into sink + window, else `sink .. len - window`.
/// Source: the reference's `compute_evicted_positions`; goldens `dataset/evicted_and_masks.json`.
pub fn evicted(len: usize, sink: usize, window: usize) -> Range<usize> {
    if len <= sink.saturating_add(window) { 0..0 } else { sink..len - window }
}
