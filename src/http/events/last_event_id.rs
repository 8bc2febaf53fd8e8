//! The header with which somebody reads on.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::{HeaderName, request::Parts};

use crate::http::extract::{Form, declare_fields};

/// The id of the last event that the caller has read. Whatever cannot be read is an id that nobody
/// gave, and answered with a gap: a browser sends this header by itself and can do nothing about it.
pub(in crate::http) struct LastEventId(pub(super) Option<String>);

declare_fields! {
    /// The id of the last event that was read, to read on behind it. A browser sends it by itself.
    Header LastEventId: "Last-Event-ID" => Form::TEXT;
}

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

impl<S: Sync> FromRequestParts<S> for LastEventId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let header = parts.headers.get(LAST_EVENT_ID);
        let header = header.filter(|header| !header.is_empty());
        let id = header.map(|header| header.to_str().unwrap_or_default().to_owned());
        Ok(Self(id))
    }
}
