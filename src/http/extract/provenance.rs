//! Where a request comes from, for those who write it down.

use std::{convert::Infallible, net::IpAddr};

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::{
    audit::Requester,
    auth::Access,
    http::{
        edge::{RequestContext, RequestId},
        serve::peer,
    },
};

/// Which request it is, and from where.
pub(in crate::http) struct Provenance {
    /// As it is named in the log.
    pub(in crate::http) request_id: RequestId,
    /// The other end of the connection, if it is one of the network.
    pub(in crate::http) remote: Option<IpAddr>,
}

// === impl Provenance ===

impl Provenance {
    /// For the audit log: who sent the request.
    pub(in crate::http) fn requester<'a>(&'a self, caller: &'a Access) -> Requester<'a> {
        Requester {
            key: caller.name().map(AsRef::as_ref),
            request_id: self.request_id.as_str(),
            remote: self.remote,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Provenance {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self {
            request_id: RequestContext::of(parts).request_id(),
            remote: peer(&parts.extensions),
        })
    }
}
