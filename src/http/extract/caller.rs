//! Who calls, and whether they may.

use std::{marker::PhantomData, ops::Deref, sync::Arc};

use axum::extract::FromRequestParts;
use http::{header::AUTHORIZATION, request::Parts};

use crate::{
    auth::{Access, Scope},
    http::{edge::RequestContext, problem::Problem, serve::peer, state::AppState},
};

use super::{lock_token::single, path::lock, session::session};

/// A caller who has the permission `S`: on the lock that the path names, or, where it names none, on
/// some lock.
///
/// The first extractor of a handler: who may not do a thing does not learn what else was wrong, and
/// nothing is asked of the store.
pub(in crate::http) struct Caller<S> {
    access: Access,
    scope: PhantomData<S>,
}

/// As it is written in answers.
const FIELD: &str = "Authorization";

// === impl Caller ===

impl<S> Deref for Caller<S> {
    type Target = Access;

    fn deref(&self) -> &Access {
        &self.access
    }
}

impl<S: Scope> FromRequestParts<Arc<AppState>> for Caller<S> {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<AppState>,
    ) -> Result<Self, Problem> {
        let scope = PhantomData;
        if gateway.gate.is_open() {
            let access = Access::ANYBODY;
            RequestContext::of(parts).take_permit()?;
            return Ok(Self { access, scope });
        }
        let access = admit(parts, gateway)?;
        let context = RequestContext::of(parts);
        if let Some(name) = access.name() {
            context.set_caller(name);
        }
        if S::IS_COUNTED {
            access.count_request()?;
        }
        let lock = lock(parts)?;
        if let Some(permission) = S::PERMISSION
            && !access.permits(permission, lock.as_ref())
        {
            return Err(Problem::forbidden(permission, lock.as_ref()));
        }
        if let Some(max_ttl) = access.key().and_then(|key| key.limits.max_ttl) {
            context.set_ttl_cap(max_ttl);
        }
        context.take_permit()?;
        Ok(Self { access, scope })
    }
}

/// Lets somebody in by the key that they send, or else by their session: a key was put into the request
/// on purpose, a cookie by the browser.
pub(super) fn admit(parts: &Parts, gateway: &AppState) -> Result<Access, Problem> {
    let header = single(&parts.headers, &AUTHORIZATION)
        .map_err(|reason| Problem::invalid_field(FIELD, reason))?;
    if header.is_none()
        && let Some(access) = session(parts, gateway)?
    {
        return Ok(access);
    }
    let from = peer(&parts.extensions);
    Ok(gateway.gate.admit(header.map(bearer), from)?)
}

/// The key behind `Bearer`; empty, and no key, if something else stands there.
pub(super) fn bearer(header: &str) -> &str {
    match header.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => key.trim_matches(' '),
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_stands_behind_bearer() {
        for header in ["Bearer k", "bearer k", "BEARER   k "] {
            assert_eq!(bearer(header), "k", "{header}");
        }
        for header in ["", "k", "Bearer", "Basic k", "Bearerk", " Bearer k"] {
            assert_eq!(bearer(header), "", "{header}");
        }
    }
}
