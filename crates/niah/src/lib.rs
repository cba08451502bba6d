//! Needle-in-a-haystack datasets, bit-exact with the reference generator; scoring; the ladder; eviction.

mod dataset;
mod evicted;
mod ladder;
mod python_random;
mod score;

pub use dataset::{Dataset, DatasetError, PromptVariant, Sample};
pub use evicted::evicted;
pub use ladder::{LADDER, Rung};
pub use score::Score;
