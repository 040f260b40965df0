//! The errors of calls: a code of gRPC and one line for the event log of the orchestrator.

use std::fmt::Display;

use tonic::{Code, Status};

/// Result of a call.
pub(crate) type Result<T> = std::result::Result<T, Status>;

/// A field of the request is missing or malformed.
pub(crate) fn invalid(message: impl Display) -> Status {
    new(Code::InvalidArgument, message)
}

/// The volume, or the directory that it shows, does not exist.
pub(crate) fn not_found(message: impl Display) -> Status {
    new(Code::NotFound, message)
}

/// The volume exists with other properties.
pub(crate) fn exists(message: impl Display) -> Status {
    new(Code::AlreadyExists, message)
}

/// The state of the volume or of the node does not allow the call.
pub(crate) fn precondition(message: impl Display) -> Status {
    new(Code::FailedPrecondition, message)
}

/// Any other failure.
pub(crate) fn internal(message: impl Display) -> Status {
    new(Code::Internal, message)
}

/// A failure with this code.
pub(crate) fn new(code: Code, message: impl Display) -> Status {
    // A path may contain any character, yet the message has to stay one line.
    Status::new(code, message.to_string().replace(char::is_control, " "))
}
