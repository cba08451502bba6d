//! What every front end of Kakeya Gate can ask for: the window, the command line, later a browser.
//!
//! One function per command, plain data in and out, one error type: [`ErrorReport`] with a code, a message and a hint.

mod complete;
mod demo;
mod desk;
mod difference;
mod documents;
mod error;
mod evidence_view;
mod export;
mod forecast;
mod going;
mod pairs;
mod preflight_view;
mod program;
mod prompts_view;
mod runs_view;
mod sarif;
mod targets_view;
mod wanted;
mod watch;
mod workspace;

pub use complete::{Entry, complete};
pub use demo::demo_workspace;
pub use desk::{Call, Desk, News, Start};
pub use difference::{Change, DiffPart, diff};
pub use documents::{AuditDocument, CompareDocument, ReportDocument, UnreadableFile};
pub use error::{ErrorCode, ErrorReport, in_language};
pub use evidence::Language;
pub use evidence_view::{
    ComparisonView, EvidenceDetail, EvidenceList, EvidenceRow, FigureView, GridView, compare, find_evidence,
    gate, gate_junit, load, unreadable,
};
pub use export::{Content, Export, Rendered, ReportFormat, export, render, save};
pub use forecast::{ForecastView, MemoryForecast, TargetTime, forecast};
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
pub use runs::queue::{QueueWorker, WorkerEvent};
pub use runs::ssh::{HostKey, Machine, Probe};
pub use runs::{
    Begin, Cancel, EngineProgram, JournalledRun, Run, RunError, RunEvent, RunState, Shard, Target,
    TimeForecast, durable, merge, own_packs,
};
pub use runs_view::{data_folder, discard_run, resume_or_reuse, unfinished_runs};
pub use sarif::sarif;
pub use targets_view::{
    TargetReport, add_target, copy_to_target, remove_target, target_key, targets, test_target,
};
pub use wanted::wanted;
pub use watch::Watched;
pub use workspace::{FThetaEntry, PackEntry, Workspace, default_spec, open_workspace};

/// Version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
