//! Who asks, on routes for which nobody needs to be known.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::{header::AUTHORIZATION, request::Parts};

use crate::{
    auth::Access,
    http::{edge::RequestContext, problem::Problem, state::AppState},
};

use super::{caller::admit, session::session};

/// Who asks, if they are known. Only a key that is wrong is refused: somebody has put it there.
pub(in crate::http) struct OptionalCaller(Option<Access>);

// === impl OptionalCaller ===

impl OptionalCaller {
    /// Who it is. `None`: nobody that is known here.
    pub(in crate::http) fn access(&self) -> Option<&Access> {
        self.0.as_ref()
    }
}

impl FromRequestParts<Arc<AppState>> for OptionalCaller {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<AppState>,
    ) -> Result<Self, Problem> {
        if gateway.gate.is_open() {
            return Ok(Self(Some(Access::ANYBODY)));
        }
        let access = if parts.headers.contains_key(AUTHORIZATION) {
            Some(admit(parts, gateway)?)
        } else {
            // Over, or of another page: then it is nobody.
            session(parts, gateway).ok().flatten()
        };
        if let Some(access) = &access {
            if let Some(name) = access.name() {
                RequestContext::of(parts).set_caller(name);
            }
            access.count_request()?;
        }
        Ok(Self(access))
    }
}
