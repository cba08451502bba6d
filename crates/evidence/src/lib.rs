//! Evidence: read any file, recompute every number, audit every claim, compare, decide.
//!
//! `files → read → audit → compare / gate`. Nothing here trusts a stored number: hits are recounted from stored texts and
//! regenerated answers, rates and statistics from their rows, verdicts from integers.

mod audit;
mod compare;
mod document;
mod finding;
mod gate;
mod grid;
mod identity;
mod json;
mod labels;
mod layout;
mod locate;
mod model;
mod normalise;
mod policy;
mod prompts;
mod read;
mod recompute;
pub mod stats;
mod text;
mod wanted;

pub use audit::{Audit, Beside, CrossFile, Kept, Scan, Verdict, audit, scan};
pub use compare::{
    Agreement, Axis, AxisName, Comparison, Factor, MemoryRow, PairClass, PairVerdict, SampleCell, SampleRow,
    Scope, compare,
};
pub use document::{FileDocument, FindingDocument, shown_path};
pub use finding::{Finding, Severity};
pub use gate::{GateCell, GateKind, GateReport, GateVerdict, gate};
pub use grid::{DEPTH_BINS, Grid, GridCell, GridRow, LeftOut, grid};
pub use identity::{Identity, Platform, Role};
pub use layout::Malformed;
pub use locate::{Position, locate};
pub use model::{
    Acceptance, Arm, MemoryFigure, MemoryKind, Niah, NiahKind, OverriddenCheck, PromptFit, Provenance,
    Restoration, RestoredLayer, Row, Settings, ThroughputFigure, TimeScope, dataset_digest,
};
pub use policy::{Policy, PolicyError, Thresholds};
pub use prompts::{MarkedPrompt, NeedlePrompt, TOKEN_DEPTH};
pub use read::{CAP, File, Place, ReadError, SKIPPED_FOLDERS, find, read};
pub use recompute::{Analytic, DecodeOnly, Paired, Recomputed, Spreads};
pub use text::{Language, Text, UnknownLanguage, spoken};
pub use wanted::{Wanted, wanted};
