//! Evidence: read any file, recompute every number, audit every claim, compare, decide.
//!
//! `files → read → audit → compare / gate`. Nothing here trusts a stored number: hits are recounted from stored texts and
//! regenerated answers, rates and statistics from their rows, verdicts from integers.

mod audit;
mod compare;
mod finding;
mod gate;
mod identity;
mod json;
mod model;
mod read;
mod recompute;
pub mod stats;

pub use audit::{Audit, Verdict, audit};
pub use compare::{
    Agreement, Axis, AxisName, Comparison, Factor, MemoryRow, PairClass, PairVerdict, SampleCell, SampleRow,
    Scope, compare,
};
pub use finding::{Finding, Severity};
pub use identity::{Identity, Platform, Role};
pub use gate::{GateCell, GateKind, GateReport, GateVerdict, MEMORY_LIMIT_BYTES, gate};
pub use model::{
    Arm, MemoryFigure, MemoryKind, Niah, NiahKind, Prompt, PromptFit, Provenance, Restoration, RestoredLayer,
    Row, Settings, dataset_digest,
};
pub use read::{File, ReadError, find, read};
pub use recompute::{DecodeOnly, Paired, Recomputed, Spreads};
