//! Who signs out.

use std::{convert::Infallible, sync::Arc};

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::{
    auth::Access,
    http::{edge::RequestContext, state::AppState},
};

use super::session::session;

/// Who signs out, if they have a session. Nobody is refused, and nothing is charged: somebody else who
/// uses the same key up must not keep a browser from forgetting it.
pub(in crate::http) struct SignOutCaller(Option<Access>);

// === impl SignOutCaller ===

impl SignOutCaller {
    /// Whose session it is. `None`: it is over, or there was none.
    pub(in crate::http) fn session(&self) -> Option<&Access> {
        self.0.as_ref().filter(|access| access.is_session())
    }
}

impl FromRequestParts<Arc<AppState>> for SignOutCaller {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<AppState>,
    ) -> Result<Self, Infallible> {
        let access = session(parts, gateway).ok().flatten();
        if let Some(name) = access.as_ref().and_then(Access::name) {
            RequestContext::of(parts).set_caller(name);
        }
        Ok(Self(access))
    }
}
