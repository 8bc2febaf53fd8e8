//! Answers to requests that nobody handles, because their heads never came whole or well-formed.

use http::StatusCode;
use tracing::info;

use crate::{
    config::HttpConfig,
    http::{
        base_path::BasePath,
        edge::RequestIds,
        problem::{Problem, ProblemCode, document},
    },
};

/// Writes such answers: problems like all others, and the last answer of their connection.
pub(super) struct Refusals {
    base_path: BasePath,
    request_ids: RequestIds,
    header_timeout_ms: u64,
    max_header_bytes: usize,
}

/// How many headers hyper takes. More are possible, but then it allocates room for all of them for
/// each request; nobody sends that many.
const MAX_HEADERS: usize = 100;

// === impl Refusals ===

impl Refusals {
    pub(super) fn new(config: &HttpConfig) -> Self {
        Self {
            base_path: BasePath::new(&config.base_path),
            request_ids: RequestIds::new(),
            header_timeout_ms: config.header_timeout_ms.0,
            max_header_bytes: config.max_header_bytes,
        }
    }

    /// The client took too long.
    pub(super) fn too_slow(&self) -> Vec<u8> {
        let detail = format!(
            "The headers had not arrived after {} ms.",
            self.header_timeout_ms
        );
        self.written(&Problem::new(ProblemCode::RequestTimeout, detail))
    }

    /// What to say instead of what hyper says by itself, which is a status without a problem.
    pub(super) fn instead_of(&self, bare: &[u8]) -> Option<Vec<u8>> {
        let line = bare.strip_prefix(b"HTTP/1.")?;
        let status = StatusCode::from_bytes(line.get(2..5)?).ok()?;
        let problem = match status {
            StatusCode::BAD_REQUEST => {
                Problem::invalid_field("request", "is not well-formed HTTP/1.1")
            }
            StatusCode::URI_TOO_LONG => Problem::new(
                ProblemCode::UriTooLong,
                "The request target is longer than any that is allowed.",
            ),
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Problem::new(
                ProblemCode::HeadersTooLarge,
                format!(
                    "There are too many request headers; at most {MAX_HEADERS} with together {} \
                     bytes are allowed.",
                    self.max_header_bytes
                ),
            ),
            _ => return None,
        };
        Some(self.written(&problem))
    }

    fn written(&self, problem: &Problem) -> Vec<u8> {
        let id = self.request_ids.mint();
        let (code, status) = (problem.code.as_str(), problem.code.status());
        info!(
            status = status.as_u16(),
            id = id.as_str(),
            code,
            "a connection was refused"
        );
        let body = document(problem, &self.base_path, id.as_str());
        let head = format!(
            "HTTP/1.1 {status}\r\n\
             content-type: application/problem+json\r\n\
             content-length: {}\r\n\
             cache-control: no-store\r\n\
             connection: close\r\n\
             x-content-type-options: nosniff\r\n\
             x-request-id: {}\r\n\r\n",
            body.len(),
            id.as_str()
        );
        [head.as_bytes(), &body].concat()
    }
}
