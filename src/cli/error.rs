//! Errors of commands, and the exit codes of the program.

use std::{
    error::Error,
    fmt::{Display, Write},
    io,
    process::ExitCode,
};

use rustix::process::Signal;

use crate::{
    audit::AuditError,
    auth::{KeysFileError, SessionSecretError},
    client::{ClientError, SetupError},
    config::{ConfigError, LocksFileError},
    store::{OpenError, redis::CredentialsError},
    telemetry::trace::TraceError,
    tls::TlsError,
    with_all::with_all,
};

/// The failure of a command.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    /// The gateway refused the request, or no gateway answered it. The text of the error may contain words that a
    /// lease's owner or a server that is not a gateway has chosen.
    #[error("{}", in_flags(_0))]
    Client(#[from] ClientError),
    /// As `Client`, with the names of the locks that the command is about.
    #[error("{_0}: {}", in_flags(_1))]
    OfLocks(String, ClientError),
    /// A signal ended the command while it waited for a lock. The lock was not acquired.
    #[error("gave up waiting")]
    Interrupted(Signal),
    /// Any other failure: its exit code and its text.
    #[error("{1}")]
    Other(Exit, String),
}

/// Marks the errors that the user can correct by changing a variable, a file or the configuration.
trait UsageError: Error {}

impl UsageError for AuditError {}
impl UsageError for ConfigError {}
impl UsageError for CredentialsError {}
impl UsageError for KeysFileError {}
impl UsageError for LocksFileError {}
impl UsageError for SessionSecretError {}
impl UsageError for TlsError {}
impl UsageError for TraceError {}

with_all! {
    /// The exit codes. A code has the same meaning for every command. Each outcome that a script may want to
    /// distinguish has a code from 100, below the codes that shells and `timeout` use (124 and up).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Exit {
        /// The command has succeeded.
        Done = 0,
        /// An unexpected failure, such as an answer that no gateway gives.
        Unexpected = 1,
        /// The command line or the configuration is wrong.
        Usage = 2,
        /// Another caller holds the lock.
        Held = 100,
        /// The wait ran out while other callers held the lock.
        WaitOver = 101,
        /// The token, or the fencing token, does not hold the lock.
        Lost = 102,
        /// No gateway was reached, so nothing happened.
        Unreachable = 103,
        /// The gateway or its store cannot serve now, and nothing happened.
        Unavailable = 104,
        /// The outcome is unknown: the command may have been carried out, or may still be.
        OutcomeUnknown = 105,
        /// The gateway refused the request, and would refuse the same request again.
        Refused = 106,
        /// The lock to be broken is free.
        NotHeld = 107,
        /// The lock is held by another lease than the one to be broken.
        HolderChanged = 108,
        /// The lease holds the lock, and ends sooner than the command needs it.
        EndsTooSoon = 109,
        /// The gateway cannot listen on its address.
        CannotListen = 110,
        /// The gateway's store cannot be opened.
        NoStore = 111,
        /// The gateway ended before all of its work was done.
        CutShort = 112,
        /// A newer waiter took the command out of the queue.
        NewerWaiter = 113,
        /// The lock was granted for a higher order.
        Outdated = 114,
    }
}

// === impl CliError ===

impl<E: UsageError> From<E> for CliError {
    fn from(error: E) -> Self {
        Self::usage(error)
    }
}

impl From<SetupError> for CliError {
    fn from(error: SetupError) -> Self {
        let exit = match &error {
            SetupError::Url(_) | SetupError::Tls(TlsError::File(_) | TlsError::Pair { .. }) => {
                Exit::Usage
            }
            SetupError::Tls(TlsError::Setup(_)) | SetupError::Http(_) => Exit::Unexpected,
        };
        Self::new(exit, error)
    }
}

impl From<OpenError> for CliError {
    fn from(error: OpenError) -> Self {
        let exit = match &error {
            OpenError::Embedded(_) => Exit::NoStore,
            OpenError::Credentials(_) => Exit::Usage,
        };
        Self::new(exit, format!("cannot open the store: {error}"))
    }
}

impl CliError {
    /// Makes an error with this exit code and text.
    pub(super) fn new(exit: Exit, text: impl Display) -> Self {
        Self::Other(exit, text.to_string())
    }

    /// Makes an error because an argument, a variable, a file or the configuration is wrong.
    pub(super) fn usage(text: impl Display) -> Self {
        Self::new(Exit::Usage, text)
    }

    /// Makes an error because the value of this flag is not allowed.
    pub(super) fn argument(flag: &str, error: impl Display) -> Self {
        Self::usage(format!("{flag} {error}"))
    }

    /// Makes an error for an unexpected failure, which has no exit code of its own.
    pub(super) fn unexpected(text: impl Display) -> Self {
        Self::new(Exit::Unexpected, text)
    }

    /// Makes an error for a failure to set up threads, signal handlers or the event loop.
    #[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
    pub(super) fn runtime(error: io::Error) -> Self {
        Self::unexpected(format!("the operating system refused a resource: {error}"))
    }

    /// Adds the names of the command's locks to an error of the gateway. Of several locks, the error may be about one.
    pub(super) fn of_locks(self, names: Option<&str>) -> Self {
        match (self, names) {
            (Self::Client(error), Some(names)) => {
                let held = error.problem().and_then(|problem| problem.name.clone());
                Self::OfLocks(held.unwrap_or_else(|| names.to_owned()), error)
            }
            (error, _) => error,
        }
    }

    /// The exit code of the failure.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Client(error) | Self::OfLocks(_, error) => Exit::from(error).code(),
            // The exit code after a signal is 128 plus the number of the signal, as in shells.
            Self::Interrupted(signal) => u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX),
            Self::Other(exit, _) => exit.code(),
        }
    }

    /// The problem document of the gateway, if the gateway sent one.
    pub(super) fn problem_json(&self) -> Option<&str> {
        let Self::Client(error) = self else {
            return None;
        };
        // The problem of one lease of a group has no JSON document of its own: the command has already printed it with
        // the results of the other leases.
        let json = error.problem()?.json();
        (!json.is_empty()).then_some(json)
    }
}

/// Pairs of a name that the gateway's error texts use, for a field or a header, and the flag that sets that field.
const FLAGS: [(&str, &str); 22] = [
    (
        "Send it as `Authorization: Bearer KEY`",
        "Name a file with it by --key-file, or set LATCHGATE_KEY",
    ),
    ("`Idempotency-Key`", "--idempotency-key-file"),
    ("`Lock-Token`", "--token-file"),
    ("`ttl_ms`", "--ttl"),
    ("`max_hold_ms`", "--max-hold"),
    ("`min_hold_ms`", "--min-hold"),
    ("`wait_ms`", "--wait"),
    ("`grace_ms`", "--grace"),
    ("`limit`", "--limit"),
    ("`supersedes`", "--latest"),
    ("`order`", "--order"),
    ("`rollback`", "--rollback"),
    ("`owner`", "--owner"),
    ("`metadata`", "--meta"),
    ("`reason`", "--reason"),
    ("`fencing_token`", "--fencing-token"),
    ("`all`", "--all"),
    ("`Fencing-Token`", "--fence"),
    ("`query.for_ms`", "--for"),
    // In texts that list several fields or recommend one field, the names have no backticks.
    ("ttl_ms", "--ttl"),
    ("max_hold_ms", "--max-hold"),
    ("min_hold_ms", "--min-hold"),
];

/// The text of an error in which flags of the command line replace the gateway's names of fields and headers.
fn in_flags(error: &ClientError) -> String {
    let text = error.to_string();
    match error {
        // The text of this problem names a permission such as `order`, and no field.
        ClientError::Refused(problem) if problem.code == "forbidden" => text,
        ClientError::Refused(_) | ClientError::Unavailable(_) => FLAGS
            .iter()
            .fold(text, |text, (name, flag)| text.replace(name, flag)),
        // Texts of other errors stay as they are: they contain words of callers, such as an owner.
        _ => text,
    }
}

// === impl Exit ===

impl Exit {
    /// The exit code as a number.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The meaning of this exit code for a command, for its `--help`.
    fn meaning(self, command: &str) -> &'static str {
        match (self, command) {
            (Self::Done, "run") => "the command was run and ended with 0",
            (Self::Done, _) => "done",
            (Self::Unexpected, "healthcheck") => {
                "the gateway is not healthy, or the error is unexpected; the message says which"
            }
            (Self::Unexpected, _) => "an unexpected error; the message describes it",
            (Self::Usage, _) => "the command line or the configuration is wrong",
            (Self::Held, _) => "another caller holds the lock",
            (Self::WaitOver, _) => "the wait ran out",
            (Self::Lost, "run") => "the lease was lost before the command ended",
            (Self::Lost, "check") => "no lease with the fencing token holds the lock",
            (Self::Lost, _) => {
                "the token does not hold the lock: the lease was released, broken or has expired"
            }
            (Self::Unreachable, _) => "no gateway was reached; nothing happened",
            (Self::Unavailable, _) => "the gateway or its store cannot serve now; nothing happened",
            (Self::OutcomeUnknown, "run") => {
                "the outcome is unknown, or whether the lease lasted until the command ended"
            }
            (Self::OutcomeUnknown, _) => "the outcome is unknown; inspect the lock",
            (Self::Refused, _) => "the gateway refused the request, and would refuse it again",
            (Self::NotHeld, "unreserve") => "the lock is not reserved",
            (Self::NotHeld, _) => "nobody holds the lock",
            (Self::HolderChanged, _) => "another caller holds the lock now; nothing was broken",
            (Self::EndsTooSoon, _) => "the lease holds the lock, but ends before the time of --for",
            (Self::CannotListen, _) => "cannot listen on the address",
            (Self::NoStore, _) => "the store cannot be opened",
            (Self::CutShort, _) => {
                "a second signal, or the end of the grace period, interrupted work"
            }
            (Self::NewerWaiter, _) => "a newer waiter with the same --latest took over",
            (Self::Outdated, _) => "outdated: the lock was granted for a higher --order",
        }
    }

    /// Whether a command may end with this exit code. A command with subcommands has no exit codes.
    fn is_of(self, command: &str) -> bool {
        let acquires = matches!(command, "run" | "acquire" | "reserve");
        let breaks = matches!(command, "break" | "unreserve");
        let changes = acquires || breaks || matches!(command, "renew" | "release" | "order");
        match self {
            Self::Done | Self::Unexpected | Self::Usage => !matches!(command, "key" | "config"),
            Self::Held | Self::WaitOver => acquires,
            Self::NewerWaiter | Self::Outdated => acquires && command != "reserve",
            Self::Lost => matches!(command, "run" | "renew" | "release" | "check"),
            Self::Unreachable | Self::Unavailable | Self::Refused => {
                changes
                    || matches!(
                        command,
                        "inspect" | "list" | "where" | "history" | "check" | "events" | "backup"
                    )
            }
            // A command that only reads changes nothing, so it never ends with an unknown outcome.
            Self::OutcomeUnknown => changes,
            Self::NotHeld | Self::HolderChanged => breaks,
            Self::EndsTooSoon => command == "check",
            Self::CannotListen | Self::NoStore | Self::CutShort => {
                matches!(command, "serve" | "demo")
            }
        }
    }

    /// The list of exit codes at the end of the `--help` of a command; empty if the command has none.
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
            ClientError::Outdated(_) => Self::Outdated,
            ClientError::Lost(_) => Self::Lost,
            ClientError::Unreachable { .. } => Self::Unreachable,
            ClientError::Unavailable(_) => Self::Unavailable,
            ClientError::OutcomeUnknown { .. } => Self::OutcomeUnknown,
            ClientError::Refused(problem) => match problem.code.as_str() {
                "not-held" => Self::NotHeld,
                "holder-changed" => Self::HolderChanged,
                "ends-too-soon" => Self::EndsTooSoon,
                "newer-waiter" => Self::NewerWaiter,
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
        let commands = ["serve", "run", "renew", "check", "break"];
        for exit in Exit::ALL {
            let is_listed = commands.iter().any(|command| exit.is_of(command));
            assert!(is_listed, "no help lists {exit:?}");
        }
    }
}
