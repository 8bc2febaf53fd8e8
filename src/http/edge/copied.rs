//! A header that is kept while its request waits.

use http::HeaderValue;

/// The same in memory of its own. A clone shares that of the whole head of the request, which would
/// stay for as long as somebody waits for a lock.
pub(super) fn copied(value: &HeaderValue) -> HeaderValue {
    HeaderValue::from_bytes(value.as_bytes()).expect("a value that was one is one")
}
