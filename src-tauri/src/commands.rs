//! The commands of the window: one that answers every [`Call`], and the dialogs that only a window can open.
//! `ui/src/lib/backend/tauri.ts` is their other side.

use crate::menu::{self, Described};
use crate::{WINDOW, ask};
use api::{Call, Content, Desk, ErrorCode, ErrorReport, Language};
use std::path::PathBuf;
use std::sync::Arc;
use tauri::ipc::{Channel, InvokeResponseBody, Response};
use tauri::{AppHandle, Manager, State};
use tauri_plugin_notification::NotificationExt;

type Answer<T> = Result<T, ErrorReport>;

/// Does the work on a thread that may block; the window stays alive. Errors are told in the reader's language.
async fn aside<T: Send + 'static>(
    language: Language,
    work: impl FnOnce() -> Answer<T> + Send + 'static,
) -> Answer<T> {
    let done = tauri::async_runtime::spawn_blocking(work).await.unwrap_or_else(|panicked| {
        let hint = "this is a fault of the program: report it with what you did last";
        Err(ErrorReport::new(ErrorCode::Panicked, panicked, hint))
    });
    done.map_err(|error| api::in_language(error, language))
}

#[tauri::command]
pub(crate) async fn call(
    desk: State<'_, Arc<Desk>>,
    call: Call,
    language: Language,
    news: Channel<InvokeResponseBody>,
) -> Answer<Response> {
    let desk = Arc::clone(&desk);
    aside(language, move || {
        let told = |json| news.send(InvokeResponseBody::Json(json)).is_ok();
        desk.answer(call, language, &told).map(Response::new)
    })
    .await
}

#[tauri::command]
pub(crate) async fn choose_folder(app: AppHandle, language: Language) -> Answer<Option<PathBuf>> {
    aside(language, move || Ok(ask::folder(&app))).await
}

#[tauri::command]
pub(crate) async fn choose_files(app: AppHandle, language: Language) -> Answer<Vec<PathBuf>> {
    aside(language, move || Ok(ask::evidence(&app))).await
}

/// Asks where to, then writes. None when the user changes their mind.
#[tauri::command]
pub(crate) async fn save(
    app: AppHandle,
    language: Language,
    name: String,
    content: Content,
) -> Answer<Option<PathBuf>> {
    aside(language, move || ask::place(&app, &name).map(|out| api::save(&content, &out)).transpose()).await
}

/// Tells of something that ended while the user is elsewhere. A system that shows no notifications loses nothing: the window
/// says the same.
#[tauri::command]
pub(crate) fn notify(app: AppHandle, title: String, text: String) {
    let seen = app.get_webview_window(WINDOW).is_some_and(|window| window.is_focused().unwrap_or(false));
    if !seen {
        let _ = app.notification().builder().title(title).body(text).show();
    }
}

#[tauri::command]
pub(crate) async fn set_menu(app: AppHandle, language: Language, menus: Vec<Described>) -> Answer<()> {
    menu::show(&app, &menus).map_err(|e| {
        let message = format!("the menus cannot be shown: {e}");
        let report = ErrorReport::new(ErrorCode::Menu, message, "every command is in the palette as well");
        api::in_language(report, language)
    })
}
