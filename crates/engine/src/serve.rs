//! The engine's side of the protocol.

use std::io::{BufRead, Write};

/// Which program serves: the command line passes in what it was built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Version of the program.
    pub version: String,
    /// Git commit; none outside a checkout.
    pub commit: Option<String>,
    /// Whether the checkout had uncommitted changes.
    pub dirty: bool,
}

/// Why serving ended early. Errors of a request are answered with an event and do not end it.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The host's pipe could not be read.
    #[error("cannot read requests: {0}; start the engine again")]
    Input(#[from] std::io::Error),
}

/// Serves requests, one JSON object a line, until the input closes; a dead output ends it quietly.
pub fn serve(
    _input: impl BufRead + Send + 'static,
    _output: impl Write + Send + 'static,
    _identity: Identity,
) -> Result<(), ServeError> {
    Ok(())
}
