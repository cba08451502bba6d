//! The window's pages in a browser: a server on this machine's loopback, for boxes without a display and for tests.
//!
//! Who may ask is decided three times. `Host` must name this machine, so that no name of a stranger that resolves here gets
//! in; `Origin` must be the server's own, so that no other page can ask; and every call carries a key that only the page gets
//! that was opened with the token in the printed address. A token opens one page. It stands in the address's fragment, which
//! no browser sends anywhere.

mod door;
mod feed;
mod pages;

use api::{Call, Desk, ErrorCode, ErrorReport, Language, News};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{ACCEPT_LANGUAGE, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router, middleware};
use door::Door;
use feed::{Feeds, line};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;

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
    feeds: Feeds,
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
        let server = Arc::new(Server { desk: Desk::new(workspace), door, feeds: Feeds::default() });
        Ok(axum::serve(listener, routes(server)).await?)
    })
}

fn routes(server: Arc<Server>) -> Router {
    Router::new()
        .route("/call", post(call))
        .route("/feed", post(feed))
        .route("/told", post(told))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&server), signed_in))
        .route("/session", post(session))
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

/// The answer to a call, as JSON. News of it goes nowhere: what goes on for as long as somebody listens ends at once.
async fn call(State(server): State<Arc<Server>>, headers: HeaderMap, Json(call): Json<Call>) -> Response {
    match answer(server, call, language(&headers), |_| false).await {
        Ok(json) => ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], json).into_response(),
        Err(report) => (StatusCode::UNPROCESSABLE_ENTITY, Json(report)).into_response(),
    }
}

#[derive(Deserialize)]
struct Feed {
    feed: String,
}

/// Lines of JSON for a page, for as long as it listens: what its calls tell.
async fn feed(State(server): State<Arc<Server>>, Json(Feed { feed }): Json<Feed>) -> Response {
    let headers = [(CONTENT_TYPE, "application/x-ndjson"), (CACHE_CONTROL, "no-store")];
    (headers, server.feeds.open(feed)).into_response()
}

/// A call that tells news while it is answered.
#[derive(Deserialize)]
struct Told {
    feed: String,
    number: u64,
    call: Call,
}

/// Takes a call; its news and its answer come through the page's feed.
async fn told(State(server): State<Arc<Server>>, headers: HeaderMap, Json(told): Json<Told>) -> Response {
    let Told { feed, number, call } = told;
    let Some(sender) = server.feeds.of(&feed) else {
        let report =
            ErrorReport::new(ErrorCode::NoFeed, "the page has stopped listening", "load the page again");
        return refused(report, language(&headers));
    };
    let language = language(&headers);
    tokio::spawn(async move {
        let news = sender.clone();
        let news = move |json: String| news.send(line(number, "news", &json)).is_ok();
        let last = match answer(server, call, language, news).await {
            Ok(json) => line(number, "answer", &json),
            Err(report) => line(number, "error", &serde_json::to_string(&report).unwrap_or_default()),
        };
        // The page may be gone.
        drop(sender.send(last));
    });
    StatusCode::NO_CONTENT.into_response()
}

/// Answers on a thread that may block.
async fn answer(
    server: Arc<Server>,
    call: Call,
    language: Language,
    news: impl Fn(String) -> bool + Send + Sync + 'static,
) -> Result<String, ErrorReport> {
    let answered = tokio::task::spawn_blocking(move || server.desk.answer(call, language, &news as News));
    answered.await.unwrap_or_else(|panicked| {
        let hint = "this is a fault of the program: report it with what you did last";
        Err(api::in_language(ErrorReport::new(ErrorCode::Panicked, panicked, hint), language))
    })
}

/// Lets through what a page with a key asks.
async fn signed_in(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    if server.door.knows(request.headers()) {
        return next.run(request).await;
    }
    let hint = "open the address that the program printed last";
    let report = ErrorReport::new(ErrorCode::NotSignedIn, "this page is not signed in", hint);
    refused(report, language(request.headers()))
}

/// The reader's language, as the page states it.
fn language(headers: &HeaderMap) -> Language {
    let list = headers.get(ACCEPT_LANGUAGE).and_then(|list| list.to_str().ok());
    list.map_or(Language::En, Language::accepted)
}

fn refused(report: ErrorReport, language: Language) -> Response {
    (StatusCode::FORBIDDEN, Json(api::in_language(report, language))).into_response()
}
