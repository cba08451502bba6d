//! The window's pages in a browser: a server on this machine's loopback, for boxes without a display and for tests.
//!
//! Who may ask is decided three times. `Host` must name this machine, so that no name of a stranger that resolves here gets
//! in; `Origin` must be the server's own, so that no other page can ask; and every call carries a key that only the page gets
//! that was opened with the token in the printed address. A token opens one page. It stands in the address's fragment, which
//! no browser sends anywhere.

mod door;
mod pages;

use api::{Call, Desk, ErrorCode, ErrorReport, Language};
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{ACCEPT_LANGUAGE, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router, middleware};
use door::Door;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::mpsc::unbounded_channel;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// A checklist or a report that is sent back can be long; anything longer is none.
const LONGEST_CALL: usize = 16 << 20;

/// Why nothing can be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port is taken, or the machine has no loopback.
    #[error("cannot listen on 127.0.0.1:{port}: {source}")]
    Port {
        /// The port.
        port: u16,
        /// The system's own answer.
        source: std::io::Error,
    },
    /// The system refused something else.
    #[error("the server stopped: {0}")]
    Stopped(#[from] std::io::Error),
    /// No random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

struct Server {
    desk: Desk,
    door: Door,
}

/// Whether the pages are part of this program.
pub fn has_pages() -> bool {
    pages::are_here()
}

/// Serves until the process ends. `port` 0 takes a free one. `say` is told the address that opens a page: at once, and a new
/// one each time the last was used.
pub fn serve(
    port: u16,
    workspace: Option<PathBuf>,
    say: impl Fn(&str) + Send + Sync + 'static,
) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .map_err(|source| ServeError::Port { port, source })?;
        let address = listener.local_addr()?;
        let door = Door::new(move |token| say(&format!("http://{address}/#{token}")))?;
        let server = Arc::new(Server { desk: Desk::new(workspace), door });
        Ok(axum::serve(listener, routes(server)).await?)
    })
}

fn routes(server: Arc<Server>) -> Router {
    Router::new()
        .route("/session", post(session))
        .route("/call", post(call))
        .fallback(pages::page)
        .layer(DefaultBodyLimit::max(LONGEST_CALL))
        .layer(middleware::from_fn(door::only_from_here))
        .with_state(server)
}

#[derive(Deserialize)]
struct Token {
    token: String,
}

#[derive(Serialize)]
struct Key {
    key: String,
}

/// The key for a token, once.
async fn session(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Json(Token { token }): Json<Token>,
) -> Response {
    let report = match server.door.open(&token) {
        Ok(Some(key)) => return Json(Key { key }).into_response(),
        Ok(None) => {
            let hint = "take the address that the program printed last";
            ErrorReport::new(ErrorCode::AddressUsed, "this address was used before", hint)
        }
        Err(error) => ErrorReport::new(ErrorCode::NoRandomNumbers, error, "start the program again"),
    };
    refused(report, language(&headers))
}

/// Lines of JSON: news while the call is answered, the answer or an error at the end.
async fn call(State(server): State<Arc<Server>>, headers: HeaderMap, Json(call): Json<Call>) -> Response {
    let language = language(&headers);
    if !server.door.knows(&headers) {
        let hint = "open the address that the program printed last";
        return refused(
            ErrorReport::new(ErrorCode::NotSignedIn, "this page is not signed in", hint),
            language,
        );
    }
    let (sender, receiver) = unbounded_channel();
    tokio::task::spawn_blocking(move || {
        let line =
            |kind: &str, json: &str| Ok::<_, std::convert::Infallible>(format!("{{\"{kind}\":{json}}}\n"));
        let news = |json: String| sender.send(line("news", &json)).is_ok();
        let last = match server.desk.answer(call, language, &news) {
            Ok(json) => line("answer", &json),
            Err(error) => line("error", &serde_json::to_string(&error).unwrap_or_default()),
        };
        // The page may be gone.
        drop(sender.send(last));
    });
    let headers = [(CONTENT_TYPE, "application/x-ndjson"), (CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(UnboundedReceiverStream::new(receiver))).into_response()
}

/// The reader's language, as the page states it.
fn language(headers: &HeaderMap) -> Language {
    let list = headers.get(ACCEPT_LANGUAGE).and_then(|list| list.to_str().ok());
    list.map_or(Language::En, Language::accepted)
}

fn refused(report: ErrorReport, language: Language) -> Response {
    (StatusCode::FORBIDDEN, Json(api::in_language(report, language))).into_response()
}
