//! The window. Every call is answered by [`api::Desk`] on a thread that may block; nothing here decides anything.

mod ask;
mod commands;

use api::Desk;
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Reviews of long-context evidence: preflight, run, compare, gate.
#[derive(Debug, Parser)]
#[command(name = "kakeya-gate-app", version)]
struct Arguments {
    /// Folder to open, with model packs and evidence in it.
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

/// Opens the window and returns when it closes.
#[expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "inside what `generate_context!` expands to"
)]
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let desk = Arc::new(Desk::new(arguments.workspace));
    // An engine ends when its input closes, so none outlives the window.
    let outcome = tauri::Builder::default()
        .plugin(tauri_plugin_dialog::init())
        .manage(desk)
        .invoke_handler(tauri::generate_handler![
            commands::call,
            commands::choose_folder,
            commands::choose_files,
            commands::save,
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
