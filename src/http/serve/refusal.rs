//! Answers to requests that nobody handles, because their heads never came whole or well-formed.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS},
};
use tracing::info;

use crate::{
    config::HttpConfig,
    http::{
        base_path::BasePath,
        edge::{CROSS_ORIGIN_RESOURCE_POLICY, RequestIds, X_REQUEST_ID},
        problem::{Extra, Problem, ProblemCode, document},
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
pub(super) const MAX_HEADERS: usize = 100;

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

    /// As many connections are open as are allowed.
    pub(super) fn no_place(&self) -> Vec<u8> {
        let detail = "As many connections are open as this gateway takes. Nothing happened.";
        let problem = Problem::new(ProblemCode::Overloaded, detail);
        self.written(&problem.with(Extra::RetryAfter { ms: 1_000 }))
    }

    /// It does not speak TLS, to a gateway that speaks nothing else.
    pub(super) fn plain(&self) -> Vec<u8> {
        self.written(&Problem::invalid_field(
            "request",
            "came over plain HTTP to an address that speaks TLS; ask https:// instead of http://",
        ))
    }

    /// There are more headers than are taken. Over HTTP/1 hyper finds that out.
    pub(super) fn too_many_headers(&self) -> Response {
        self.response(&self.headers_too_large())
    }

    /// As many requests are open as are allowed.
    pub(super) fn no_stream(&self) -> Response {
        let detail = "As many requests are open as this gateway takes. Nothing happened.";
        let problem = Problem::new(ProblemCode::Overloaded, detail);
        self.response(&problem.with(Extra::RetryAfter { ms: 1_000 }))
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
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => self.headers_too_large(),
            _ => return None,
        };
        Some(self.written(&problem))
    }

    /// It is not clear where the request ends: nothing that comes behind it can be trusted either.
    pub(super) fn ambiguous(&self) -> Response {
        self.response(&Problem::invalid_field(
            "request",
            "does not say beyond doubt where it ends; send either Content-Length or \
             `Transfer-Encoding: chunked`, once and without any other coding",
        ))
    }

    fn headers_too_large(&self) -> Problem {
        Problem::new(
            ProblemCode::HeadersTooLarge,
            format!(
                "There are too many request headers; at most {MAX_HEADERS} with together {} \
                 bytes are allowed.",
                self.max_header_bytes
            ),
        )
    }

    fn response(&self, problem: &Problem) -> Response {
        let (status, headers, body) = self.answer(problem);
        let mut response = (status, body).into_response();
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }

    fn written(&self, problem: &Problem) -> Vec<u8> {
        let (status, headers, body) = self.answer(problem);
        let mut answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in &headers {
            answer = answer + name.as_str() + ": " + value + "\r\n";
        }
        [answer.as_bytes(), b"\r\n", &body].concat()
    }

    fn answer(&self, problem: &Problem) -> (StatusCode, Vec<(HeaderName, String)>, Bytes) {
        let id = self.request_ids.mint();
        let (code, status) = (problem.code.as_str(), problem.code.status());
        info!(
            status = status.as_u16(),
            id = id.as_str(),
            code,
            "a connection was refused"
        );
        let body = document(problem, &self.base_path, id.as_str());
        let mut headers = vec![
            (CONTENT_TYPE, "application/problem+json".to_owned()),
            (CACHE_CONTROL, "no-store".to_owned()),
            (CONNECTION, "close".to_owned()),
            (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
            (CROSS_ORIGIN_RESOURCE_POLICY, "same-origin".to_owned()),
            (X_REQUEST_ID, id.as_str().to_owned()),
        ];
        if let Extra::RetryAfter { ms } = problem.extra {
            let seconds = ms.div_ceil(1_000).to_string();
            headers.push((RETRY_AFTER, seconds));
        }
        (status, headers, body)
    }
}
