//! stub while the surface is being written
/// runs
pub fn run() -> std::process::ExitCode {
    match tauri::Builder::default().plugin(tauri_plugin_dialog::init()).run(tauri::generate_context!()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(_) => std::process::ExitCode::FAILURE,
    }
}
