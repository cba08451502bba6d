//! Native dialogs. They are opened here and not by the page, so that the page never chooses where something is written.

use std::path::PathBuf;
use tauri::AppHandle;
use tauri_plugin_dialog::{DialogExt, FilePath};

/// Stands in for the answer of the save dialog, and for nothing else: WebDriver cannot drive a native dialog, so the
/// desktop test names the file here. Everything before and after the dialog is the same.
const TEST_SAVE_PATH: &str = "KAKEYA_GATE_TEST_SAVE_PATH";

/// A folder, or None when the user changes their mind. Blocks until they answer.
pub(crate) fn folder(app: &AppHandle) -> Option<PathBuf> {
    path(app.dialog().file().set_title("Open a workspace").blocking_pick_folder())
}

/// Evidence files; none when the user changes their mind. Blocks until they answer.
pub(crate) fn evidence(app: &AppHandle) -> Vec<PathBuf> {
    let chosen =
        app.dialog().file().set_title("Add evidence").add_filter("Evidence", &["json"]).blocking_pick_files();
    chosen.unwrap_or_default().into_iter().filter_map(|file| file.into_path().ok()).collect()
}

/// Where a file of this name goes, or None when the user changes their mind. Blocks until they answer.
pub(crate) fn place(app: &AppHandle, name: &str) -> Option<PathBuf> {
    if let Some(answer) = std::env::var_os(TEST_SAVE_PATH) {
        return Some(PathBuf::from(answer));
    }
    let dialog = app.dialog().file().set_title("Save").set_file_name(name);
    let ending = name.rsplit('.').next().unwrap_or_default();
    path(dialog.add_filter(ending.to_uppercase(), &[ending]).blocking_save_file())
}

fn path(answer: Option<FilePath>) -> Option<PathBuf> {
    answer.and_then(|file| file.into_path().ok())
}
