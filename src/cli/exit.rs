//! What the exit code of the program says.

use std::{fmt::Write, process::ExitCode};

use crate::{client::ClientError, with_all::with_all};

with_all! {
    /// The exit codes; each command has some of them, and none has another meaning elsewhere. Above 100 there is one for each thing that a script
    /// may want to tell apart, clear of what shells and `timeout` use for themselves (124 and up).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Exit {
        /// It was done.
        Done = 0,
        /// Something that should not happen, such as an answer that is none of a gateway's.
        Unexpected = 1,
        /// The command line or the configuration is wrong.
        Usage = 2,
        /// Somebody else holds the lock.
        Held = 100,
        /// Somebody else went on holding the lock for as long as we were to wait.
        WaitOver = 101,
        /// The token does not hold the lock.
        Lost = 102,
        /// No gateway was reached: nothing happened.
        Unreachable = 103,
        /// The gateway or its store cannot serve now: nothing happened.
        Unavailable = 104,
        /// It may have happened, or may yet happen.
        OutcomeUnknown = 105,
        /// The gateway refused: the same request will be refused again.
        Refused = 106,
        /// The lock that was to be broken is free.
        NotHeld = 107,
        /// Another lease holds the lock than the one that was to be broken.
        HolderChanged = 108,
        /// The gateway cannot listen on its address.
        CannotListen = 110,
        /// The gateway's store cannot be opened.
        NoStore = 111,
        /// The gateway ended before everything under way had ended.
        CutShort = 112,
    }
}

// === impl Exit ===

impl Exit {
    /// The number.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// What it says when this command exits with it, for `--help`.
    fn meaning(self, command: &str) -> &'static str {
        match (self, command) {
            (Self::Done, "run") => "the command was run and ended with 0",
            (Self::Done, _) => "done",
            (Self::Unexpected, "healthcheck") => {
                "the gateway is not healthy, or something unexpected; the message says what"
            }
            (Self::Unexpected, _) => "something unexpected; the message says what",
            (Self::Usage, _) => "the command line or the configuration is wrong",
            (Self::Held, _) => "somebody else holds the lock",
            (Self::WaitOver, _) => "the wait ran out",
            (Self::Lost, "run") => "the lease was lost, and the command was stopped",
            (Self::Lost, _) => {
                "the token does not hold the lock: the lease was released, broken or has expired"
            }
            (Self::Unreachable, _) => "no gateway was reached; nothing happened",
            (Self::Unavailable, _) => "the gateway or its store cannot serve now; nothing happened",
            (Self::OutcomeUnknown, _) => "it may have happened; inspect the lock",
            (Self::Refused, _) => "the gateway refused the request, and would again",
            (Self::NotHeld, _) => "nobody holds the lock",
            (Self::HolderChanged, _) => "somebody else holds the lock now; nothing was broken",
            (Self::CannotListen, _) => "cannot listen on the address",
            (Self::NoStore, _) => "the store cannot be opened",
            (Self::CutShort, _) => "a second signal, or the grace period, cut something short",
        }
    }

    /// Whether a command may exit with it. One that has commands of its own exits with none.
    fn is_of(self, command: &str) -> bool {
        let acquires = matches!(command, "run" | "acquire");
        let changes = acquires || matches!(command, "renew" | "release" | "break");
        match self {
            Self::Done | Self::Unexpected | Self::Usage => !matches!(command, "key" | "config"),
            Self::Held | Self::WaitOver => acquires,
            Self::Lost => matches!(command, "run" | "renew" | "release"),
            Self::Unreachable | Self::Unavailable | Self::Refused => {
                changes || matches!(command, "inspect" | "list" | "events" | "backup")
            }
            // What only looks leaves nothing in doubt.
            Self::OutcomeUnknown => changes,
            Self::NotHeld | Self::HolderChanged => command == "break",
            Self::CannotListen | Self::NoStore | Self::CutShort => command == "serve",
        }
    }

    /// The list of them that ends the `--help` of a command; empty if it has none.
    pub(super) fn list(command: &str) -> String {
        let mut text = String::new();
        let listed = Self::ALL.into_iter().filter(|exit| exit.is_of(command));
        for (number, exit) in listed.enumerate() {
            let title = if number == 0 { "Exit codes:" } else { "" };
            write!(
                text,
                "{title}\n  {:>3}  {}",
                exit.code(),
                exit.meaning(command)
            )
            .expect("writing to a String never fails");
        }
        text
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl From<&ClientError> for Exit {
    fn from(error: &ClientError) -> Self {
        match error {
            ClientError::Held(_) => Self::Held,
            ClientError::WaitOver(_) => Self::WaitOver,
            ClientError::Lost(_) => Self::Lost,
            ClientError::Unreachable { .. } => Self::Unreachable,
            ClientError::Unavailable(_) => Self::Unavailable,
            ClientError::OutcomeUnknown { .. } => Self::OutcomeUnknown,
            ClientError::Refused(problem) => match problem.code.as_str() {
                "not-held" => Self::NotHeld,
                "holder-changed" => Self::HolderChanged,
                _ => Self::Refused,
            },
            ClientError::Unexpected { .. } => Self::Unexpected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_there_once_and_in_order() {
        let codes: Vec<_> = Exit::ALL.map(Exit::code).into();
        assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
        let commands = ["serve", "run", "renew", "break"];
        for exit in Exit::ALL {
            let is_listed = commands.iter().any(|command| exit.is_of(command));
            assert!(is_listed, "no help lists {exit:?}");
        }
    }
}
