//! What a copy of a request leaves behind that is to be followed by another one.

use std::time::Duration;

use reqwest::{Method, StatusCode};

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

impl From<ClientError> for RetryableFailure {
    fn from(error: ClientError) -> Self {
        Self::nothing(error)
    }
}

impl RetryableFailure {
    /// What an answer says, if it says that the same request may be answered otherwise a moment
    /// later. The table is in `clients/conformance.md`.
    pub(crate) fn of_answer(answer: &CallResponse) -> Option<Self> {
        let status = answer.status;
        let is_busy = matches!(
            status,
            StatusCode::REQUEST_TIMEOUT
                | StatusCode::TOO_MANY_REQUESTS
                | StatusCode::SERVICE_UNAVAILABLE
        );
        if !is_busy && !status.is_server_error() {
            return None;
        }
        let by_proxy = || format!("a proxy answered with status {}", status.as_u16());
        let problem = answer.problem();
        let requested_pause = problem.as_ref().and_then(Problem::retry_after);
        let failure = match problem {
            // No fencing token will come back.
            Some(problem) if problem.code == "fence-exhausted" => return None,
            Some(problem) if is_busy => Self::nothing(ClientError::Unavailable(Box::new(problem))),
            Some(problem) if status == StatusCode::GATEWAY_TIMEOUT => {
                Self::indeterminate(problem.to_string(), Some(problem))
            }
            // A bug or foreign data: the same the next time.
            Some(_) => return None,
            // A proxy that limits the rate has not passed the request on.
            None if status == StatusCode::TOO_MANY_REQUESTS => {
                let problem = Problem::of_proxy(status.as_u16(), "rate-limited", by_proxy());
                Self::nothing(ClientError::Unavailable(Box::new(problem)))
            }
            // Any other proxy may have.
            None => Self::indeterminate(by_proxy(), None),
        };
        Some(Self {
            requested_pause: requested_pause.or(answer.retry_after),
            ..failure
        })
    }

    /// Whether success comes without its document: the answer was cut off, or a proxy wrote it.
    pub(crate) fn is_cut_off(method: &Method, answer: &CallResponse) -> bool {
        let status = answer.status;
        if !status.is_success() || status == StatusCode::NO_CONTENT {
            return false;
        }
        match serde_json::from_str::<serde_json::Value>(&answer.body) {
            // A success without `results`, other than 204, does not prove that the lease is released.
            Ok(document) => method == Method::DELETE && document.get("results").is_none(),
            Err(_) => true,
        }
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
        let failure = match self.error {
            ClientError::OutcomeUnknown {
                problem: Some(problem),
                ..
            } => Self::nothing(ClientError::Unavailable(problem)),
            ClientError::OutcomeUnknown {
                reason,
                problem: None,
            } => Self::unreachable(url, reason),
            error => Self::nothing(error),
        };
        Self {
            requested_pause: self.requested_pause,
            ..failure
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
