//! Files that clients may have in their cache already: the dashboard with its parts, and the OpenAPI
//! document.

use std::io::Write as _;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{
        ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
    },
};
use sha2::{Digest, Sha256};

use crate::http::extract::{accepts, items};

/// A file to serve, with its media type, and plain and compressed content.
#[derive(Debug, Clone)]
pub(in crate::http) struct File {
    pub(in crate::http) media: &'static str,
    /// Version mark of the content: every other content has another mark.
    pub(in crate::http) mark: String,
    pub(in crate::http) plain: Bytes,
    /// The content compressed with gzip, if there is such a form.
    pub(in crate::http) gzip: Option<Bytes>,
}

// === impl File ===

impl File {
    /// A file that is made at run time and not by the build, and may be another after the next start.
    pub(in crate::http) fn new(media: &'static str, plain: Bytes) -> Self {
        Self {
            media,
            mark: mark(&plain),
            gzip: Some(compressed(&plain)),
            plain,
        }
    }

    /// Answers a request for the file. `asked` has the headers of the request.
    pub(in crate::http) fn answer(&self, asked: &HeaderMap) -> Response {
        let gzip = self.gzip.as_ref().filter(|_| takes_gzip(asked));
        // The compressed form of the file has other bytes, so it needs another `ETag`.
        let tag = match gzip {
            Some(_) => format!("\"{}-gzip\"", self.mark),
            None => format!("\"{}\"", self.mark),
        };
        let has_it = lists(asked.get_all(IF_NONE_MATCH).iter(), &tag);
        let tag = HeaderValue::try_from(tag).expect("a mark is of hexadecimal digits");
        let headers = [
            (ETAG, tag),
            // A client asks for the file each time, and the answer has no body if the file has not
            // changed: page and scripts must be of one version, and of that of the API.
            (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (VARY, HeaderValue::from_static("Accept-Encoding")),
        ];
        if has_it {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        let media = [(CONTENT_TYPE, HeaderValue::from_static(self.media))];
        match gzip {
            Some(bytes) => {
                let coding = [(CONTENT_ENCODING, HeaderValue::from_static("gzip"))];
                (headers, media, coding, bytes.clone()).into_response()
            }
            None => (headers, media, self.plain.clone()).into_response(),
        }
    }
}

/// Version mark of a content: 64 bits of its hash, as the build marks the files of the dashboard.
pub(in crate::http) fn mark(content: &[u8]) -> String {
    let hash = Sha256::digest(content);
    let first: [u8; 8] = std::array::from_fn(|at| hash[at]);
    format!("{:016x}", u64::from_be_bytes(first))
}

fn compressed(content: &[u8]) -> Bytes {
    let mut writer = GzEncoder::new(Vec::new(), Compression::default());
    writer
        .write_all(content)
        .expect("a write to memory does not fail");
    let small = writer.finish().expect("a write to memory does not fail");
    Bytes::from(small)
}

/// Whether an `If-None-Match` lists a tag, or `*`. A weak tag is as good as a strong tag.
fn lists<'a>(values: impl Iterator<Item = &'a HeaderValue>, tag: &str) -> bool {
    let opaque = |tag: &'a str| tag.strip_prefix("W/").unwrap_or(tag);
    let tag = tag.strip_prefix("W/").unwrap_or(tag);
    items(values).any(|item| item == "*" || opaque(item) == tag)
}

/// Whether the request says that its sender understands gzip. A sender that does not say so gets the plain
/// form.
fn takes_gzip(asked: &HeaderMap) -> bool {
    let values = || asked.get_all(ACCEPT_ENCODING).iter();
    accepts(values, &["gzip", "*"]) == Some(true)
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn asked(name: HeaderName, value: &str) -> HeaderMap {
        [(name, value.parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn gzip_is_sent_to_those_who_say_that_they_take_it() {
        for taken in [
            "gzip",
            "br, GZIP;q=0.5",
            "*",
            "deflate, *;q=0.1",
            "gzip; q=1",
        ] {
            assert!(takes_gzip(&asked(ACCEPT_ENCODING, taken)), "{taken}");
        }
        for not in ["", "br", "gzip;q=0", "*;q=0", "gzip;q=0, *", "identity"] {
            assert!(!takes_gzip(&asked(ACCEPT_ENCODING, not)), "{not}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    fn has(value: &str, tag: &str) -> bool {
        lists([HeaderValue::try_from(value).unwrap()].iter(), tag)
    }

    #[test]
    fn a_browser_has_what_it_names() {
        for named in ["\"a\"", "W/\"a\"", "\"b\", \"a\"", "*"] {
            assert!(has(named, "\"a\""), "{named}");
            assert!(has(named, "W/\"a\""), "{named}");
        }
        for named in ["", "a", "\"b\"", "\"a-gzip\""] {
            assert!(!has(named, "\"a\""), "{named}");
        }
    }
}
