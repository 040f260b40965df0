//! Failures of requests: an HTTP status, and one line for the user.

use std::fmt;
use std::io;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

/// A failed request.
#[derive(Debug)]
pub struct Failure {
    pub status: StatusCode,
    pub message: String,
}

/// The result of a request.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(status: StatusCode, message: impl fmt::Display) -> Self {
        Failure { status, message: message.to_string() }
    }

    /// The request is malformed, or names an object that does not exist.
    pub fn bad(message: impl fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// An operation on a file failed.
    pub fn file(operation: &str, path: &std::path::Path, error: &io::Error) -> Self {
        let status = match error.kind() {
            io::ErrorKind::NotFound => StatusCode::NOT_FOUND,
            io::ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
            _ => StatusCode::BAD_GATEWAY,
        };
        Self::new(status, format_args!("{operation} {}: {error}", path.display()))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        // As text, which a browser shows if the page did not ask, and never as HTML: it has names of files.
        (self.status, self.message).into_response()
    }
}
