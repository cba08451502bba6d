//! The window. Each command is one call of [`api`] on a thread that may block; nothing here decides anything.

mod ask;
mod commands;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

/// Reviews of long-context evidence: preflight, run, compare, gate.
#[derive(Debug, Parser)]
#[command(name = "kakeya-gate-app", version)]
struct Arguments {
    /// Folder to open, with model packs and evidence in it.
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

/// What the commands share.
#[derive(Default)]
struct Desk {
    /// The workspace named on the command line.
    workspace: Option<PathBuf>,
    /// Stops the run that is going on.
    running: Mutex<Option<api::Cancel>>,
    /// Counts requests to hash a pack: the newest is the one that goes on.
    hashing: Arc<AtomicU64>,
}

/// Opens the window and returns when it closes.
#[expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "inside what `generate_context!` expands to"
)]
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let desk = Desk { workspace: arguments.workspace, ..Desk::default() };
    // An engine ends when its input closes, so none outlives the window.
    let outcome = tauri::Builder::default()
        .plugin(tauri_plugin_dialog::init())
        .manage(desk)
        .invoke_handler(tauri::generate_handler![
            commands::starting_workspace,
            commands::choose_workspace,
            commands::open_workspace,
            commands::preflight,
            commands::preflight_check,
            commands::preflight_fix_preview,
            commands::preflight_fix,
            commands::preflight_undo,
            commands::preflight_digests,
            commands::preflight_markdown,
            commands::default_spec,
            commands::check_spec,
            commands::run,
            commands::cancel_run,
            commands::choose_evidence,
            commands::list_evidence,
            commands::evidence_detail,
            commands::compare,
            commands::gate,
            commands::report_markdown,
            commands::export_report,
        ])
        .run(tauri::generate_context!());
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: the window cannot be opened: {error}");
            ExitCode::FAILURE
        }
    }
}
