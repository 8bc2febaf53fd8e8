//! Tells the audit log of those who were refused.

use std::net::IpAddr;

use axum::extract::Request;
use percent_encoding::percent_decode_str;

use crate::{
    audit::{Audit, Refused, Requester},
    auth::{ApiKey, SealedSession},
    http::{
        problem::{Problem, ProblemCode},
        serve::peer,
    },
    lock::{LockName, Token},
};

use super::context::RequestContext;

/// What the audit log wants to know of a request, should it be refused.
pub(super) struct AuditedRequest {
    /// What stands where the path names a lock. A copy: the URI shares its memory with the whole head of
    /// the request, which would stay for as long as the request waits for a lock.
    name: Option<Box<str>>,
    remote: Option<IpAddr>,
}

// === impl AuditedRequest ===

impl AuditedRequest {
    pub(super) fn of(request: &Request, context: &RequestContext) -> Self {
        Self {
            name: context.lock(request.uri().path()).map(Into::into),
            remote: peer(request.extensions()),
        }
    }

    /// Tells it, if a permission was refused.
    pub(super) fn record_refusal(
        &self,
        audit: &Audit,
        context: &RequestContext,
        problem: &Problem,
    ) {
        if !is_about_permission(problem.code) {
            return;
        }
        let name = self.name();
        let id = context.request_id();
        audit.refused(&Refused {
            requester: Requester {
                key: context.caller(),
                request_id: id.as_str(),
                remote: self.remote,
            },
            method: context.method().as_str(),
            route: context.route().template(),
            name: name.as_ref(),
            outcome: problem.code.as_str(),
            // Not the detail: it may repeat what the caller wrote where a name belongs.
            reason: problem.cause.as_deref().unwrap_or(problem.code.title()),
        });
    }

    /// The lock that was meant, unless it looks as if somebody had put a token, an API key or a
    /// session in its place.
    fn name(&self) -> Option<LockName> {
        let text = percent_decode_str(self.name.as_deref()?)
            .decode_utf8()
            .ok()?;
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
