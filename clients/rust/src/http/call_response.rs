//! What one copy of a request came to.

use std::{error::Error, time::Duration};

use reqwest::StatusCode;
use tokio::time::Instant;

use crate::{ClientError, Problem, tls::distrust};

/// An answer that sending again would not change.
pub(crate) struct CallResponse {
    pub(crate) url: String,
    pub(crate) status: StatusCode,
    pub(crate) body: String,
    /// When the copy of the request that was answered was sent.
    pub(crate) sent_at: Instant,
    /// When the answer was there.
    pub(crate) received_at: Instant,
    /// Whether an earlier copy may have been carried out as well.
    pub(crate) in_doubt: bool,
}

/// What one copy of a request came to.
pub(crate) enum SendOutcome {
    /// It was answered, and the answer may say when to come again.
    Answered(StatusCode, String, Option<Duration>),
    /// It never reached a gateway.
    NotSent(String),
    /// It was sent, and no whole answer came back.
    NoAnswer(String),
}

// === impl SendOutcome ===

impl SendOutcome {
    /// What an error of the HTTP client says about the request.
    pub(crate) fn of(error: &reqwest::Error) -> Self {
        let reason = cause(error);
        if error.is_connect() || error.is_builder() {
            Self::NotSent(reason)
        } else if error.is_timeout() {
            Self::NoAnswer("no answer in time".to_owned())
        } else {
            Self::NoAnswer(reason)
        }
    }
}

// === impl CallResponse ===

impl CallResponse {
    /// The problem document, if it is one.
    pub(crate) fn problem(&self) -> Option<Problem> {
        Problem::parse(&self.body)
    }

    /// The refusal that this answer is.
    pub(crate) fn refusal(self) -> ClientError {
        let Some(problem) = self.problem().map(Box::new) else {
            // A gateway says so to who speaks plain HTTP. What others answer is not shown: it may hold a token.
            let speaks_tls = self.body.starts_with("This address speaks TLS");
            return self.unexpected(if speaks_tls {
                "this address speaks TLS: its URL begins with https://"
            } else {
                "no problem document"
            });
        };
        match problem.code.as_str() {
            // These three say how the lock stands, earlier copies included.
            "locked" => ClientError::Held(problem),
            "lease-lost" => ClientError::Lost(problem),
            _ if self.status == StatusCode::CONFLICT => ClientError::Refused(problem),
            // The others speak of this copy alone.
            _ if self.in_doubt => ClientError::OutcomeUnknown {
                reason: format!("an earlier copy of the request was not answered; then {problem}"),
                problem: Some(problem),
            },
            "internal" => self.unexpected(&problem.to_string()),
            _ if self.status == StatusCode::SERVICE_UNAVAILABLE => {
                ClientError::Unavailable(problem)
            }
            _ => ClientError::Refused(problem),
        }
    }

    /// Success, and not what comes with it: something on the way has changed the answer.
    pub(crate) fn unusable(self, what: &str) -> ClientError {
        ClientError::OutcomeUnknown {
            reason: format!(
                "{} answered with status {} and without {what}",
                self.url,
                self.status.as_u16()
            ),
            problem: None,
        }
    }

    /// An answer that no gateway gives.
    pub(crate) fn unexpected(self, what: &str) -> ClientError {
        ClientError::Unexpected {
            what: format!("status {}, {what}", self.status.as_u16()),
            url: self.url,
        }
    }
}

/// The innermost cause: it says what happened ("connection refused"), the others only that something
/// did.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> String {
    if let Some(why) = distrust(error, "--ca-file") {
        return format!("its certificate is not believed: {why}");
    }
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
