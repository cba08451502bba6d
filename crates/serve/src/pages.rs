//! The pages, as `npm run build` left them.

use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use rust_embed::RustEmbed;

/// Development builds read them from the checkout at each request, so that they are never stale.
#[derive(RustEmbed)]
#[folder = "../../ui/dist"]
#[allow_missing = true]
struct Pages;

const START: &str = "index.html";
const ABSENT: &str = "This program was built without its pages.\n\n\
    Build the front end, then the program:\n  npm --prefix ui ci\n  npm --prefix ui run build\n  cargo build -p cli\n";

/// A page may load only itself and call only this server. The preview of a report is a frame of the page's own making, in which
/// nothing runs.
const POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; \
    frame-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) fn are_here() -> bool {
    Pages::get(START).is_some()
}

pub(crate) async fn page(address: Uri) -> Response {
    let name = match address.path().trim_start_matches('/') {
        "" => START,
        name => name,
    };
    let Some(file) = Pages::get(name) else {
        let missing = if are_here() { "Not found.\n" } else { ABSENT };
        return (StatusCode::NOT_FOUND, missing).into_response();
    };
    let headers = [
        (CONTENT_TYPE, kind(name)),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (headers, file.data).into_response()
}

/// What vite writes, and nothing else.
fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}
