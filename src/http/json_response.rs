//! Successful answers as JSON.

use std::cell::RefCell;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_TYPE, HeaderName},
};
use serde::Serialize;

/// The answer 200 with a JSON body.
pub(super) struct JsonResponse<T>(pub(super) T);

// === impl JsonResponse ===

impl<T: Serialize> IntoResponse for JsonResponse<T> {
    fn into_response(self) -> Response {
        (StatusCode::OK, JSON, json(&self.0)).into_response()
    }
}

/// The header `Content-Type` for JSON.
pub(super) const JSON: [(HeaderName, HeaderValue); 1] =
    [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];

/// Encodes a body as JSON. The body ends with a newline, so that the prompt of a shell begins on a new line.
pub(super) fn json(body: &impl Serialize) -> Bytes {
    json_by(|json| {
        serde_json::to_writer(json, body)
            .expect("bodies have text keys and serializers that do not fail");
    })
}

/// Encodes a body as JSON with a function that writes it.
pub(super) fn json_by(write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    thread_local! {
        static JSON: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    JSON.with_borrow_mut(|json| {
        // A writer that panicked may have left bytes in the thread's buffer.
        json.clear();
        write(json);
        json.push(b'\n');
        let body = Bytes::copy_from_slice(json);
        // The buffer is cleared first: a full buffer does not shrink, and a token must not stay in it.
        json.clear();
        json.shrink_to(MAX_KEPT_BUFFER_BYTES);
        body
    })
}

/// Writes a JSON object, field by field.
pub(super) struct ObjectWriter<'a> {
    json: &'a mut Vec<u8>,
    begin: usize,
}

// === impl ObjectWriter ===

impl<'a> ObjectWriter<'a> {
    pub(super) fn new(json: &'a mut Vec<u8>) -> Self {
        let begin = json.len();
        Self { json, begin }
    }

    /// Writes a field of the object, if `is_there`.
    pub(super) fn field_if(&mut self, is_there: bool, name: &'static str, value: impl Serialize) {
        if is_there {
            for part in [&b",\""[..], name.as_bytes(), b"\":"] {
                self.json.extend_from_slice(part);
            }
            serde_json::to_writer(&mut *self.json, &value)
                .expect("numbers and texts can be written");
        }
    }

    /// Writes the end of the JSON object, which must have at least one field.
    pub(super) fn end(self) {
        // Each field begins with a comma, and the first comma becomes the brace.
        self.json[self.begin] = b'{';
        self.json.push(b'}');
    }
}

/// How many bytes of buffer a thread keeps for the next body. A larger buffer, as for a page of a list, is
/// freed.
const MAX_KEPT_BUFFER_BYTES: usize = 4 * 1_024;
