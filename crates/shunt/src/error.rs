//! The errors of commands: a line for the user, and the exit code.

use std::fmt;

use shunt_fuse::mount::MountError;

use crate::text;

/// The exit codes of every command. They are a contract, documented in `shunt --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// It failed, for the reason given.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The path is not a mount of Shunt.
    NotShunt = 3,
    /// The mount is in use.
    Busy = 4,
    /// The user lacks the privilege.
    Privilege = 5,
    /// It is still under way after the given time.
    Timeout = 6,
}

impl Code {
    /// The code with this number, as a daemon passes it to the process that started it.
    pub fn from_number(number: u8) -> Self {
        use Code::*;
        [Usage, NotShunt, Busy, Privilege, Timeout]
            .into_iter()
            .find(|code| *code as u8 == number)
            .unwrap_or(Failed)
    }
}

/// One line for the user: what failed, the cause, and what to do.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: Code,
    /// The line, without the name of the command.
    pub message: String,
}

/// The result of a command.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// A failure with this code and line.
    pub fn new(code: Code, message: impl fmt::Display) -> Self {
        // A path may contain any byte but NUL, yet the message has to stay one line.
        let message = message.to_string();
        Failure { code, message: text::without_numbers(&text::printable(&message)) }
    }

    /// Prefixes the message with the operation.
    pub fn context(self, doing: impl fmt::Display) -> Self {
        Failure::new(self.code, format_args!("{doing}: {}", self.message))
    }
}

/// A failure without a specific code.
pub fn failed(message: impl fmt::Display) -> Failure {
    Failure::new(Code::Failed, message)
}

/// A wrong command line.
pub fn usage(message: impl fmt::Display) -> Failure {
    Failure::new(Code::Usage, message)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        let code = match &error {
            MountError::NotMounted(_) | MountError::NotFuse { .. } => Code::NotShunt,
            MountError::Busy(_) => Code::Busy,
            MountError::Option { .. } => Code::Usage,
            MountError::DeviceDenied | MountError::NoHelper | MountError::AllowOther => Code::Privilege,
            _ => Code::Failed,
        };
        Failure::new(code, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_the_way_through_a_pipe() {
        for code in [Code::Failed, Code::Usage, Code::NotShunt, Code::Busy, Code::Privilege, Code::Timeout] {
            assert_eq!(Code::from_number(code as u8), code);
        }
        assert_eq!(Code::from_number(77), Code::Failed);
    }

    #[test]
    fn a_failure_is_one_line() {
        assert_eq!(failed("cannot read /a\nb: \x1b[1m").message, "cannot read /a\\nb: \\u{1b}[1m");
    }
}
