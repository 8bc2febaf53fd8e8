//! Success, written as JSON.

use std::io::Write;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_TYPE, HeaderName},
};
use serde::Serialize;

/// 200 with a JSON body.
pub(super) struct JsonResponse<T>(pub(super) T);

/// 204 without a body.
pub(super) struct NoContent;

// === impl JsonResponse ===

impl<T: Serialize> IntoResponse for JsonResponse<T> {
    fn into_response(self) -> Response {
        (StatusCode::OK, JSON, json(&self.0)).into_response()
    }
}

// === impl NoContent ===

impl IntoResponse for NoContent {
    fn into_response(self) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

/// The header that says JSON.
pub(super) const JSON: [(HeaderName, HeaderValue); 1] =
    [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];

/// A body as JSON. It ends with a newline, so that the prompt of a shell does not stick to it.
pub(super) fn json(body: &impl Serialize) -> Bytes {
    // Nearly every body fits, and is then copied into memory of just its size.
    let mut short = [0; 512];
    let mut rest = short.as_mut_slice();
    if serde_json::to_writer(&mut rest, body).is_ok() && rest.write_all(b"\n").is_ok() {
        let left = rest.len();
        return Bytes::copy_from_slice(&short[..short.len() - left]);
    }
    let mut long =
        serde_json::to_vec(body).expect("bodies have text keys and serializers that do not fail");
    long.push(b'\n');
    long.into()
}
