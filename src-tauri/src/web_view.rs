//! What the web view is told beside its page.

/// Draws without the GPU, and keeps no pages to go back to: there is one page, of text and a few charts. Where there is no GPU
/// (a headless box, a virtual machine) WebKitGTK would load a compiler to imitate one, a third of the window's memory; where there
/// is one, several drivers show nothing at all.
#[cfg(target_os = "linux")]
pub(crate) fn set_up(window: &tauri::WebviewWindow) -> tauri::Result<()> {
    use webkit2gtk::{CacheModel, HardwareAccelerationPolicy, SettingsExt, WebContextExt, WebViewExt};
    window.with_webview(|view| {
        let view = view.inner();
        if let Some(settings) = view.settings() {
            settings.set_hardware_acceleration_policy(HardwareAccelerationPolicy::Never);
        }
        if let Some(context) = view.context() {
            context.set_cache_model(CacheModel::DocumentViewer);
        }
    })
}

/// Other systems' web views do well by themselves.
#[cfg(not(target_os = "linux"))]
pub(crate) fn set_up(_: &tauri::WebviewWindow) -> tauri::Result<()> {
    Ok(())
}
