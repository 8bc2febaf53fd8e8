//! Who releases a lease: whoever has its token, with an API key or without.

use std::{convert::Infallible, net::IpAddr, sync::Arc};

use axum::extract::FromRequestParts;
use http::{header::AUTHORIZATION, request::Parts};

use crate::{
    auth::{Access, Charge},
    http::{problem::Problem, serve::peer, state::AppState},
    lock::{LockName, TokenHash},
};

use super::{caller::bearer, lock_token::single, session::session};

/// Who releases a lease. Nobody is refused for the key that they show, or for showing none.
pub(in crate::http) struct ReleaseCaller {
    /// Who it is, if they show a key that is let in.
    access: Option<Access>,
    from: Option<IpAddr>,
}

// === impl ReleaseCaller ===

impl ReleaseCaller {
    /// Charges the release, should its token be wrong: to the key, or else to the address. Refused is
    /// an address from which too many came, unless the lease is known here.
    pub(in crate::http) fn charge(
        self,
        gateway: &AppState,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Charge, Problem> {
        if let Some(access) = self.access {
            return Ok(access.charge());
        }
        if gateway.gate.is_open() {
            return Ok(Charge::default());
        }
        // Whoever was granted a lease here can give it back, whoever else has the same address.
        if gateway.engine.has_lease(name, token) {
            return Ok(Charge::default());
        }
        Ok(gateway.gate.charge(self.from)?)
    }
}

impl FromRequestParts<Arc<AppState>> for ReleaseCaller {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<AppState>,
    ) -> Result<Self, Infallible> {
        let access = match single(&parts.headers, &AUTHORIZATION) {
            Ok(Some(header)) => gateway.gate.recognize(bearer(header)),
            Ok(None) => session(parts, gateway).ok().flatten(),
            Err(_) => None,
        };
        Ok(Self {
            access,
            from: peer(&parts.extensions),
        })
    }
}
