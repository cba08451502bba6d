//! Who may ask.

use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names of this machine. The port may be another one, where the connection is forwarded.
const NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// One token that opens a page, and the keys of the pages that were opened.
pub(crate) struct Door {
    token: Mutex<String>,
    keys: Mutex<Vec<String>>,
    say: Box<dyn Fn(&str) + Send + Sync>,
}

impl Door {
    /// A door with a fresh token. `say` is told this one and every one that follows it.
    pub(crate) fn new(say: impl Fn(&str) + Send + Sync + 'static) -> Result<Self, getrandom::Error> {
        let token = secret()?;
        say(&token);
        Ok(Self { token: Mutex::new(token), keys: Mutex::default(), say: Box::new(say) })
    }

    /// The key of a new page, if the token is the one that was said last; it is used up then.
    pub(crate) fn open(&self, token: &str) -> Result<Option<String>, getrandom::Error> {
        let mut current = locked(&self.token);
        if !same(&current, token) {
            return Ok(None);
        }
        let key = secret()?;
        *current = secret()?;
        (self.say)(&current);
        locked(&self.keys).push(key.clone());
        Ok(Some(key))
    }

    /// Whether a page with a key asks.
    pub(crate) fn knows(&self, headers: &HeaderMap) -> bool {
        let stated = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let key = stated.and_then(|value| value.strip_prefix("Bearer "));
        key.is_some_and(|key| locked(&self.keys).iter().any(|known| same(known, key)))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// 256 random bits.
fn secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Compares digests, so that the time it takes tells nothing of the secret.
fn same(secret: &str, told: &str) -> bool {
    files::sha256(secret.as_bytes()) == files::sha256(told.as_bytes())
}

/// Lets through what is addressed to this machine by its own name and, unless it only fetches a page, comes from a page of
/// this server.
pub(crate) async fn only_from_here(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let (host, origin) = (text(HOST).unwrap_or_default(), text(ORIGIN));
    let ours = origin.map(|origin| origin.strip_prefix("http://") == Some(host));
    let fetches = request.method() == Method::GET;
    if !is_this_machine(host) || !ours.unwrap_or(fetches) {
        return (StatusCode::FORBIDDEN, "Refused: the request does not come from this server's own page.\n")
            .into_response();
    }
    next.run(request).await
}

fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    NAMES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn names_of_this_machine() {
        for host in ["127.0.0.1:8080", "localhost", "localhost:1", "[::1]:80", "[::1]"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "127.0.0.1.evil.example:80",
            "localhost.evil:80",
            "127.0.0.1:80:80",
            "10.0.0.1",
        ] {
            assert!(!is_this_machine(host), "{host}");
        }
    }

    #[test]
    fn a_token_opens_one_page_and_the_next_one_is_said() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let door = Door::new(move |token| locked(&heard).push(token.to_owned())).unwrap();
        let token = locked(&said)[0].clone();
        assert_eq!(door.open("").unwrap(), None);
        let key = door.open(&token).unwrap().unwrap();
        assert_eq!(door.open(&token).unwrap(), None, "used up");
        let next = locked(&said)[1].clone();
        assert!(door.open(&next).unwrap().is_some_and(|other| other != key));
        let with =
            |key: &str| HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {key}").parse().unwrap())]);
        assert!(door.knows(&with(&key)) && !door.knows(&with(&token)) && !door.knows(&HeaderMap::new()));
    }
}
