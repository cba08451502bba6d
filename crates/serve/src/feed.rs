//! News of all calls of a page over one connection: a browser opens six to a server at most, whatever the number of its pages.

use axum::body::Body;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// The feeds that are open, by the names that their pages have made up.
#[derive(Default)]
pub(crate) struct Feeds(Mutex<BTreeMap<String, UnboundedSender<String>>>);

impl Feeds {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<String, UnboundedSender<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a feed: what its page reads, line by line, until it is gone.
    pub(crate) fn open(&self, name: String) -> Body {
        let (sender, receiver) = unbounded_channel();
        let mut feeds = self.locked();
        feeds.retain(|_, sender| !sender.is_closed());
        feeds.insert(name, sender);
        Body::from_stream(UnboundedReceiverStream::new(receiver).map(Ok::<_, Infallible>))
    }

    /// Where lines for a page go; none once it is gone.
    pub(crate) fn of(&self, name: &str) -> Option<UnboundedSender<String>> {
        self.locked().get(name).filter(|sender| !sender.is_closed()).cloned()
    }
}

/// One line of a feed: the number of the call, and news, its answer or its error, as JSON.
pub(crate) fn line(number: u64, kind: &str, json: &str) -> String {
    format!("{{\"number\":{number},\"{kind}\":{json}}}\n")
}
