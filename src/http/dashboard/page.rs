//! The page itself, as one gateway serves it.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header::CONTENT_SECURITY_POLICY};

use crate::http::{
    base_path::BasePath,
    file::{File, mark},
};

use super::files::file;

/// `index.html` of a gateway: with the path of that gateway in it. Cheap to clone.
#[derive(Debug, Clone)]
pub(in crate::http) struct IndexPage(File);

/// Nothing from elsewhere, and nothing in the page itself: what callers have written (names, owners,
/// metadata) cannot become a script or a style.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; font-src 'self'; base-uri 'self'; form-action 'self'; \
     frame-ancestors 'none'",
);

/// What all addresses in the page are relative to, as the file has it.
const BASE: &str = "<base href=\"/dashboard/\">";

// === impl IndexPage ===

impl IndexPage {
    /// The page of a gateway that is served below a path.
    pub(in crate::http) fn at(base_path: &BasePath) -> Self {
        let index = file("index.html").expect("the build has packed the page");
        if base_path.as_str().is_empty() {
            return Self(index);
        }
        let text = String::from_utf8_lossy(&index.plain);
        let text = text.replace(BASE, &format!("<base href=\"{base_path}/dashboard/\">"));
        Self(File {
            mark: mark(text.as_bytes()),
            plain: Bytes::from(text),
            // A few kilobytes; all else is compressed wherever it is.
            gzip: None,
            ..index
        })
    }

    /// The answer to a request with these headers.
    pub(super) fn answer(&self, asked: &HeaderMap) -> Response {
        let policy = [(CONTENT_SECURITY_POLICY, POLICY)];
        (policy, self.0.answer(asked)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(base_path: &str) -> String {
        let page = IndexPage::at(&BasePath::new(base_path));
        String::from_utf8(page.0.plain.to_vec()).unwrap()
    }

    #[test]
    fn says_where_it_is() {
        assert_eq!(text("").matches(BASE).count(), 1);
        let below = text("/a/b");
        assert_eq!(below.matches("<base ").count(), 1);
        assert!(below.contains("<base href=\"/a/b/dashboard/\">"), "{below}");
    }
}
