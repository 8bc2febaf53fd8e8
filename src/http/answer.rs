//! Success, written as JSON.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_TYPE, HeaderName},
};
use serde::Serialize;

/// 200 with a JSON body.
pub(super) struct Answer<T>(pub(super) T);

/// 204 without a body.
pub(super) struct Empty;

// === impl Answer ===

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        (StatusCode::OK, JSON, json(&self.0)).into_response()
    }
}

// === impl Empty ===

impl IntoResponse for Empty {
    fn into_response(self) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

/// The header that says JSON.
pub(super) const JSON: [(HeaderName, HeaderValue); 1] =
    [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];

/// A body as JSON. It ends with a newline, so that the prompt of a shell does not stick to it.
pub(super) fn json(body: &impl Serialize) -> Bytes {
    let mut bytes =
        serde_json::to_vec(body).expect("bodies have text keys and serializers that do not fail");
    bytes.push(b'\n');
    bytes.into()
}
