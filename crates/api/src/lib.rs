//! What every front end of Kakeya Gate can ask for: the window, the command line, later a browser.
//!
//! One function per command, plain data in and out, one error type: [`ErrorReport`] with a code, a message and a hint.

mod complete;
mod desk;
mod difference;
mod documents;
mod error;
mod evidence_view;
mod export;
mod pairs;
mod preflight_view;
mod program;
mod prompts_view;
mod sarif;
mod workspace;

pub use complete::{Entry, complete};
pub use desk::{Call, Desk, News, Start};
pub use difference::{Change, DiffPart, diff};
pub use documents::{AuditDocument, CompareDocument, ReportDocument, UnreadableFile};
pub use error::ErrorReport;
pub use evidence_view::{
    ComparisonView, EvidenceDetail, EvidenceList, EvidenceRow, FigureView, GridView, compare, find_evidence,
    gate, gate_junit, load, unreadable,
};
pub use export::{Content, Export, Rendered, ReportFormat, export, render, save};
pub use pairs::{PairView, pairs};
pub use preflight_view::{
    PreflightReport, PreflightRequest, preflight, preflight_check, preflight_digests, preflight_fix,
    preflight_fix_preview, preflight_markdown, preflight_undo,
};
pub use program::program_beside;
pub use prompts_view::{
    PromptChoice, PromptPart, PromptSet, PromptView, PromptsView, Zone, grid, prompts_of_dataset,
    prompts_of_files,
};
pub use report::{Chart, Spot};
pub use runs::{Cancel, EngineProgram, Run, RunError, RunEvent};
pub use sarif::sarif;
pub use workspace::{PackEntry, Workspace, default_spec, open_workspace};

/// Version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
