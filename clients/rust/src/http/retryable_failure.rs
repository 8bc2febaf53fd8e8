//! What a copy of a request leaves behind that is to be followed by another one.

use std::time::Duration;

use reqwest::StatusCode;

use crate::{ClientError, Problem};

use super::call_response::{CallResponse, NoAnswer};

/// A copy that another one may do better than.
pub(crate) struct RetryableFailure {
    pub(crate) error: ClientError,
    /// Whether this copy may have been carried out.
    pub(crate) in_doubt: bool,
    /// How long the next copy is to be put off, if the gateway says so.
    pub(crate) requested_pause: Option<Duration>,
    /// Whether the next copy to the same address would end in the same way.
    pub(crate) is_lasting: bool,
}

// === impl RetryableFailure ===

impl RetryableFailure {
    /// What an answer says, if it says that the same request may be answered otherwise a moment
    /// later.
    pub(crate) fn of_answer(answer: &CallResponse) -> Option<Self> {
        let status = answer.status;
        // 408: the whole request has not come.
        if !status.is_server_error() && status != StatusCode::REQUEST_TIMEOUT {
            return None;
        }
        match answer.problem() {
            Some(problem) if status == StatusCode::REQUEST_TIMEOUT => {
                Some(Self::nothing(ClientError::Unavailable(Box::new(problem))))
            }
            Some(problem) if status == StatusCode::SERVICE_UNAVAILABLE => {
                // No fencing token will come back.
                let gone = problem.code == "fence-exhausted";
                (!gone).then(|| Self {
                    requested_pause: problem.retry_after().or(answer.retry_after),
                    ..Self::nothing(ClientError::Unavailable(Box::new(problem)))
                })
            }
            Some(problem) if status == StatusCode::GATEWAY_TIMEOUT => {
                Some(Self::indeterminate(problem.to_string(), Some(problem)))
            }
            // A bug or foreign data: the same the next time.
            Some(_) => None,
            // A proxy between us and the gateway; it may have passed the request on.
            None => {
                let reason = format!("a proxy answered with status {}", status.as_u16());
                Some(Self::indeterminate(reason, None))
            }
        }
    }

    /// A refusal that ends by itself: the gateway says when.
    pub(crate) fn of_rate_limit(answer: &CallResponse) -> Option<Self> {
        let is_such = answer.status == StatusCode::TOO_MANY_REQUESTS;
        let problem = answer.problem().filter(|_| is_such)?;
        let requested_pause = problem.retry_after().or(answer.retry_after)?;
        (problem.code == "rate-limited").then(|| Self {
            requested_pause: Some(requested_pause),
            ..Self::nothing(ClientError::Refused(Box::new(problem)))
        })
    }

    /// What a copy without an answer leaves behind; `looks` if the copy only looks.
    pub(crate) fn of_no_answer(outcome: NoAnswer, url: &str, looks: bool) -> Self {
        match outcome {
            NoAnswer::NotSent(reason) => Self::unreachable(url, reason),
            NoAnswer::NotTrusted(reason) => Self {
                is_lasting: true,
                ..Self::unreachable(url, reason)
            },
            NoAnswer::Lost(reason) if looks => Self::unreachable(url, reason),
            NoAnswer::Lost(reason) => Self::indeterminate(reason, None),
        }
    }

    /// No gateway was reached.
    pub(crate) fn unreachable(url: &str, reason: String) -> Self {
        Self::nothing(ClientError::Unreachable {
            url: url.to_owned(),
            reason,
        })
    }

    /// The copy may have been carried out.
    pub(crate) fn indeterminate(reason: String, problem: Option<Problem>) -> Self {
        Self {
            error: ClientError::OutcomeUnknown {
                reason,
                problem: problem.map(Box::new),
            },
            in_doubt: true,
            requested_pause: None,
            is_lasting: false,
        }
    }

    /// The same of a copy that only looks: whatever became of it, nothing has happened.
    pub(crate) fn of_look(self, url: &str) -> Self {
        match self.error {
            ClientError::OutcomeUnknown {
                problem: Some(problem),
                ..
            } => Self::nothing(ClientError::Unavailable(problem)),
            ClientError::OutcomeUnknown {
                reason,
                problem: None,
            } => Self::unreachable(url, reason),
            error => Self {
                requested_pause: self.requested_pause,
                ..Self::nothing(error)
            },
        }
    }

    /// Nothing has happened.
    pub(crate) fn nothing(error: ClientError) -> Self {
        Self {
            error,
            in_doubt: false,
            requested_pause: None,
            is_lasting: false,
        }
    }

    /// Whether the copy came as far as a gateway, or a proxy before one.
    pub(crate) fn arrived(&self) -> bool {
        !matches!(self.error, ClientError::Unreachable { .. })
    }

    /// The error of a call whose last copy came to this: what one copy left in doubt, no later
    /// failure settles.
    pub(crate) fn after(self, in_doubt: bool) -> ClientError {
        match self.error {
            error if !in_doubt || self.in_doubt => error,
            error => ClientError::OutcomeUnknown {
                reason: format!("an earlier copy of the request was not answered; then {error}"),
                problem: error.problem().cloned().map(Box::new),
            },
        }
    }
}
