//! The window. Every call is answered by [`api::Desk`] on a thread that may block; nothing here decides anything.

mod ask;
mod commands;
mod menu;
mod web_view;

use api::Desk;
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tauri::{AppHandle, Emitter, Manager};
use tauri_plugin_window_state::StateFlags;

/// Label of the only window.
const WINDOW: &str = "main";
/// The event that asks the page to open a folder.
const OPEN: &str = "open";

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
    let window_state = tauri_plugin_window_state::Builder::new().with_state_flags(
        StateFlags::SIZE | StateFlags::POSITION | StateFlags::MAXIMIZED | StateFlags::FULLSCREEN,
    );
    // An engine ends when its input closes, so none outlives the window.
    let outcome = tauri::Builder::default()
        // First, so that a second program ends before it does anything.
        .plugin(tauri_plugin_single_instance::init(|app, arguments, folder| again(app, &arguments, &folder)))
        .plugin(window_state.build())
        .plugin(tauri_plugin_dialog::init())
        .plugin(tauri_plugin_notification::init())
        .manage(desk)
        .setup(|app| {
            if let Some(window) = app.get_webview_window(WINDOW) {
                web_view::set_up(&window)?;
            }
            Ok(())
        })
        .on_menu_event(|app, event| menu::pass_on(app, &event))
        .invoke_handler(tauri::generate_handler![
            commands::call,
            commands::choose_folder,
            commands::choose_files,
            commands::notify,
            commands::save,
            commands::set_menu,
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

/// The program was started again: its window comes to the front and opens the workspace that was named.
fn again(app: &AppHandle, arguments: &[String], folder: &str) {
    let Some(window) = app.get_webview_window(WINDOW) else { return };
    // Where a window manager refuses one of these, the workspace is opened all the same.
    let _ = window.unminimize();
    let _ = window.set_focus();
    let named = Arguments::try_parse_from(arguments).ok().and_then(|arguments| arguments.workspace);
    if let Some(workspace) = named {
        let workspace = Path::new(folder).join(workspace);
        // A page that does not listen yet will ask.
        app.state::<Arc<Desk>>().open_next(workspace.clone());
        let _ = app.emit(OPEN, workspace);
    }
}
