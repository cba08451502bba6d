//! One error type at the edge.

pub use protocol::ErrorReport;

/// An error with a code, from anything that says what happened.
pub(crate) fn report(code: &str, message: impl ToString, hint: &str) -> ErrorReport {
    ErrorReport { code: code.to_owned(), message: message.to_string(), hint: hint.to_owned() }
}
