//! Success, written as JSON.

use std::cell::RefCell;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_TYPE, HeaderName},
};
use serde::Serialize;

/// 200 with a JSON body.
pub(super) struct JsonResponse<T>(pub(super) T);

// === impl JsonResponse ===

impl<T: Serialize> IntoResponse for JsonResponse<T> {
    fn into_response(self) -> Response {
        (StatusCode::OK, JSON, json(&self.0)).into_response()
    }
}

/// The header that says JSON.
pub(super) const JSON: [(HeaderName, HeaderValue); 1] =
    [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];

/// A body as JSON. It ends with a newline, so that the prompt of a shell does not stick to it.
pub(super) fn json(body: &impl Serialize) -> Bytes {
    json_by(|json| {
        serde_json::to_writer(json, body)
            .expect("bodies have text keys and serializers that do not fail");
    })
}

/// The same, from what writes the body.
pub(super) fn json_by(write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    thread_local! {
        static JSON: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    JSON.with_borrow_mut(|json| {
        // Whatever a writer that panicked has left.
        json.clear();
        write(json);
        json.push(b'\n');
        let body = Bytes::copy_from_slice(json);
        // Empty first: what is full does not shrink, and a token need not stay here.
        json.clear();
        json.shrink_to(KEPT);
        body
    })
}

/// Writes an object of JSON, field by field.
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

    /// Writes a field, if the object has it.
    pub(super) fn field_if(&mut self, is_there: bool, name: &'static str, value: impl Serialize) {
        if is_there {
            for part in [&b",\""[..], name.as_bytes(), b"\":"] {
                self.json.extend_from_slice(part);
            }
            serde_json::to_writer(&mut *self.json, &value)
                .expect("numbers and texts can be written");
        }
    }

    /// The object is complete. It has one field at least.
    pub(super) fn end(self) {
        // A comma is in front of each field.
        self.json[self.begin] = b'{';
        self.json.push(b'}');
    }
}

/// How much memory a thread keeps for the next body: a page of a list takes more.
const KEPT: usize = 4 * 1_024;
