//! Tells the audit log of those who were refused.

use std::net::IpAddr;

use axum::extract::Request;
use percent_encoding::percent_decode_str;

use crate::{
    audit::{Asker, Audit, Refused},
    auth::{ApiKey, SealedSession},
    http::{
        problem::{Problem, ProblemCode},
        serve::peer,
    },
    lock::{LockName, Token},
};

use super::access_log::AccessLog;

/// What the audit log wants to know of a request, should it be refused.
pub(super) struct Asked {
    /// A copy: the URI shares its memory with the whole head of the request, which would stay for as
    /// long as somebody waits for a lock.
    path: Box<str>,
    remote: Option<IpAddr>,
}

// === impl Asked ===

impl Asked {
    pub(super) fn of(request: &Request) -> Self {
        Self {
            path: request.uri().path().into(),
            remote: peer(request.extensions()),
        }
    }

    /// Tells it, if a permission was refused.
    pub(super) fn tell(&self, audit: &Audit, log: &AccessLog, problem: &Problem) {
        if !is_about_permission(problem.code) {
            return;
        }
        let name = self.name();
        audit.refused(&Refused {
            asker: Asker {
                key: log.caller().get(),
                request_id: log.request_id().as_str(),
                remote: self.remote,
            },
            method: log.method().as_str(),
            route: log.route(),
            name: name.as_ref(),
            outcome: problem.code.as_str(),
            // Not the detail: it may repeat what the caller wrote where a name belongs.
            reason: problem.cause.as_deref().unwrap_or(problem.code.title()),
        });
    }

    /// The lock that was meant, unless it looks as if somebody had put a token, an API key or a
    /// session in its place.
    fn name(&self) -> Option<LockName> {
        let (_, path) = self.path.split_once("/locks/")?;
        let segment = path.split('/').next()?;
        let text = percent_decode_str(segment).decode_utf8().ok()?;
        if Token::parse(&text).is_ok() || ApiKey::resembles(&text) || SealedSession::is_in(&text) {
            return None;
        }
        LockName::new(&text).ok()
    }
}

fn is_about_permission(code: ProblemCode) -> bool {
    matches!(
        code,
        ProblemCode::Unauthorized
            | ProblemCode::Forbidden
            | ProblemCode::LimitExceeded
            | ProblemCode::OriginRefused
            | ProblemCode::WrongHost
    )
}
