//! What the exit code of the program says.

use std::{fmt::Write, process::ExitCode};

use crate::{client::ClientError, store::OpenError, with_all::with_all};

use super::serve::ServeError;

with_all! {
    /// The exit codes, the same for every command. Above 100 there is one for each thing that a script
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

    /// What it says, for `--help`.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Unexpected => {
                "healthcheck: not healthy; else something unexpected; the message says what"
            }
            Self::Usage => "the command line or the configuration is wrong",
            Self::Held => "acquire, run: somebody else holds the lock",
            Self::WaitOver => "acquire, run: the wait ran out",
            Self::Lost => {
                "renew, release: the token does not hold the lock now; run: the lease was lost"
            }
            Self::Unreachable => "no gateway was reached; nothing happened",
            Self::Unavailable => "the gateway or its store cannot serve now; nothing happened",
            Self::OutcomeUnknown => "it may have happened; inspect the lock",
            Self::Refused => "the gateway refused the request, and would again",
            Self::NotHeld => "break: nobody holds the lock",
            Self::HolderChanged => "break: somebody else holds the lock now; nothing was broken",
            Self::CannotListen => "serve: cannot listen on the address",
            Self::NoStore => "serve: the store cannot be opened",
            Self::CutShort => "serve: a second signal, or the grace period, cut something short",
        }
    }

    /// The list of them that ends every `--help`.
    pub fn list() -> String {
        let mut text = "Exit codes:".to_owned();
        for exit in Self::ALL {
            write!(text, "\n  {:>3}  {}", exit.code(), exit.meaning())
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

impl From<&ServeError> for Exit {
    fn from(error: &ServeError) -> Self {
        match error {
            ServeError::Listen { .. } => Self::CannotListen,
            ServeError::Keys(_)
            | ServeError::SessionSecret(_)
            | ServeError::Certificates(_)
            | ServeError::Audit(_)
            | ServeError::Traces(_)
            | ServeError::Store(OpenError::Credentials(_)) => Self::Usage,
            ServeError::Store(OpenError::Embedded(_)) => Self::NoStore,
            ServeError::SecondSignal | ServeError::TasksLeft(_) | ServeError::StoreLeft => {
                Self::CutShort
            }
            ServeError::Logging(_) | ServeError::Signals(_) => Self::Unexpected,
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
    }
}
