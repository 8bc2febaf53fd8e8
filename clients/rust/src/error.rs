//! Why a call did not do what it was asked to.

use std::time::Duration;

use crate::{Problem, format_duration};

/// What is known after a call that failed, one variant for each thing a caller can do about it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// Somebody else holds the lock. Ask again later.
    #[error("the lock is held{}", by(_0))]
    Held(Box<Problem>),
    /// Somebody else went on holding the lock for as long as the caller wanted to wait.
    #[error("the wait ran out: the lock is held{}", by(_0))]
    WaitOver(Box<Problem>),
    /// The token does not hold the lock now. Stop what the lock protected.
    #[error("the lease is lost: {0}")]
    Lost(Box<Problem>),
    /// No gateway was reached, so nothing happened.
    #[error("no gateway at {url}: {reason}")]
    Unreachable {
        /// Where one was sought.
        url: String,
        /// Why it was not found.
        reason: String,
    },
    /// The gateway was reached but cannot serve (503), or the key may not ask for as much now (429): nothing happened.
    /// Asking again is safe.
    #[error("the gateway cannot serve: {0}")]
    Unavailable(Box<Problem>),
    /// The command was sent and may have been carried out, or may yet be.
    #[error("the outcome is unknown: {reason}")]
    OutcomeUnknown {
        /// What is missing.
        reason: String,
        /// What the gateway said, if it said something.
        problem: Option<Box<Problem>>,
    },
    /// The gateway refused: asking again in the same words is no use.
    #[error("the gateway refused: {0}")]
    Refused(Box<Problem>),
    /// What answered is not a gateway that this client knows.
    #[error("{url} gave an answer that is none of a gateway's: {what}")]
    Unexpected {
        /// Who answered.
        url: String,
        /// What it answered, without the body: it may hold a token.
        what: String,
    },
}

// === impl ClientError ===

impl ClientError {
    /// The problem document behind it, if the gateway sent one.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Held(problem)
            | Self::WaitOver(problem)
            | Self::Lost(problem)
            | Self::Unavailable(problem)
            | Self::Refused(problem) => Some(problem),
            Self::OutcomeUnknown { problem, .. } => problem.as_deref(),
            Self::Unreachable { .. } | Self::Unexpected { .. } => None,
        }
    }
}

fn by(problem: &Problem) -> String {
    let Some(holder) = problem.holders.first() else {
        return String::new();
    };
    let who = match &holder.owner {
        Some(owner) => format!(" by {owner}"),
        None if holder.foreign => " by a client that uses no gateway".to_owned(),
        None => String::new(),
    };
    let how_long = match holder.expires_in_ms {
        Some(ms) => {
            let left = format_duration(Duration::from_millis(ms));
            format!(" for another {left} unless it is renewed")
        }
        None if holder.foreign => " without an expiry".to_owned(),
        None => String::new(),
    };
    who + &how_long
}
