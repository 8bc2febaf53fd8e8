//! Headers of all answers: the request id, the security headers for browsers, and the rate of an API key.

use std::{
    io::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS},
};

use crate::{
    auth::{RateReading, may_hold_secret},
    lock::{IdempotencyKey, Token},
};

/// The header with the request id, in requests and in answers.
pub(in crate::http) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Length of the longest request id that a caller may choose.
const MAX_LEN: usize = 128;
/// Length of the longest request id that the gateway makes: two numbers of 64 bits in hexadecimal digits, and
/// a hyphen.
const MINTED_LEN: usize = 33;

/// Request headers whose values are secrets, so that no request id may repeat them.
const SECRETS: [HeaderName; 3] = [
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("lock-token"),
    http::header::AUTHORIZATION,
];

/// A request id: 1 to 128 characters that are harmless in a header, in a log line and in JSON, and that
/// contain no secret of the request.
#[derive(Debug, Clone)]
pub(in crate::http) struct RequestId(HeaderValue);

/// Makes request ids that differ from those of every other process and of every other request.
#[derive(Debug)]
pub(in crate::http) struct RequestIds {
    process: u64,
    next: AtomicU64,
}

// === impl RequestId ===

impl RequestId {
    /// The id that the caller sent, if the gateway may repeat it.
    pub(super) fn sent(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(X_REQUEST_ID).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return None;
        };
        let fit = (1..=MAX_LEN).contains(&value.len())
            && value.as_bytes().iter().all(|&byte| is_harmless(byte))
            && !is_secret(value)
            && !repeats_secret(value, headers);
        fit.then(|| Self(copied(value)))
    }

    pub(in crate::http) fn as_str(&self) -> &str {
        self.0.to_str().expect("a request id is visible ASCII")
    }

    pub(in crate::http) fn into_header(self) -> HeaderValue {
        self.0
    }
}

/// Copies a header value into memory of its own. A clone shares the memory of the request's whole head, which
/// would stay for as long as the request waits for a lock.
pub(super) fn copied(value: &HeaderValue) -> HeaderValue {
    HeaderValue::from_bytes(value.as_bytes()).expect("copied from a valid HeaderValue")
}

/// Whether the value contains a token, or a secret of its caller or a part of one, which the log would show.
fn is_secret(value: &HeaderValue) -> bool {
    let is_secret = |text: &str| may_hold_secret(text) || Token::parse(text).is_ok();
    value.to_str().is_ok_and(is_secret)
}

/// Whether the caller sent a secret of the request as the id, or as a part of it. The log would show the
/// secret.
fn repeats_secret(value: &HeaderValue, headers: &HeaderMap) -> bool {
    let id = value.as_bytes();
    let mut secrets = SECRETS.into_iter().flat_map(|name| headers.get_all(name));
    secrets.any(|secret| {
        let secret = secret.as_bytes();
        // A header value that is shorter than any idempotency key is no secret, and occurs in many request
        // ids by chance.
        let long = secret.len() >= IdempotencyKey::MIN_LEN;
        id == secret || (long && id.windows(secret.len()).any(|part| part == secret))
    })
}

fn is_harmless(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.:~+/=@".contains(&byte)
}

// === impl RequestIds ===

impl RequestIds {
    pub(in crate::http) fn new() -> Self {
        // Request ids protect nothing, so the gateway starts even on a machine that has no random bytes for
        // them.
        Self {
            process: getrandom::u64().unwrap_or_default(),
            next: AtomicU64::new(1),
        }
    }

    /// The number of the next request.
    pub(super) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The id of a request, made of its process and its number. That is cheaper than random bytes for each
    /// request.
    pub(super) fn format(&self, number: u64) -> RequestId {
        let mut text = [0; MINTED_LEN];
        let mut left = text.as_mut_slice();
        write!(left, "{:016x}-{number:x}", self.process).expect("there is room for both numbers");
        let length = MINTED_LEN - left.len();
        let value = HeaderValue::from_bytes(&text[..length]);
        RequestId(value.expect("hexadecimal digits and a hyphen are visible ASCII"))
    }
}

pub(in crate::http) const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");
const CROSS_ORIGIN_OPENER_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-opener-policy");
const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");

/// Headers of every answer: a browser must not guess the media type, and no page of another origin may embed
/// the answer. A listed page reads answers by CORS, which these headers do not affect.
const OF_ALL: [(HeaderName, &str); 2] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"),
];

/// Headers of answers that a person may look at in a browser.
const OF_PAGES: [(HeaderName, &str); 4] = [
    (REFERRER_POLICY, "no-referrer"),
    (X_FRAME_OPTIONS, "DENY"),
    (CROSS_ORIGIN_OPENER_POLICY, "same-origin"),
    (
        PERMISSIONS_POLICY,
        "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
];

/// Security policy of a page that has none of its own: the page loads nothing.
const LOADS_NOTHING: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Adds the headers for browsers. `is_page` says that a person may look at the answer. An answer that needs
/// an API key is for programs, and gets only the headers that every answer has.
pub(super) fn insert_security(is_page: bool, headers: &mut HeaderMap) {
    for (name, value) in OF_ALL {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !is_page {
        return;
    }
    for (name, value) in OF_PAGES {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(CONTENT_SECURITY_POLICY) {
        headers.insert(CONTENT_SECURITY_POLICY, LOADS_NOTHING);
    }
}

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Adds the fields of the IETF draft `ratelimit-headers`, so that a caller learns its rate before it is
/// refused.
pub(super) fn insert_rate(reading: RateReading, headers: &mut HeaderMap) {
    let policy = format!("\"requests\";q={};w={}", reading.quota, reading.window);
    let rate = format!("\"requests\";r={};t={}", reading.left, reading.reset);
    for (name, value) in [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, rate)] {
        let value = HeaderValue::try_from(value).expect("numbers are visible ASCII");
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(values: &[&[u8]]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(X_REQUEST_ID, HeaderValue::from_bytes(value).unwrap());
        }
        RequestId::sent(&headers).map(|id| id.as_str().to_owned())
    }

    #[test]
    fn is_taken_over_if_it_is_harmless() {
        let longest = "a".repeat(128);
        for id in ["a", "4711-x_y.z:~+/=@", longest.as_str()] {
            assert_eq!(sent(&[id.as_bytes()]).as_deref(), Some(id));
        }
    }

    #[test]
    fn is_not_taken_over_if_it_could_forge_a_log_line_or_is_ambiguous() {
        let long = "a".repeat(129);
        for id in ["", "a b", "a\"b", "<b>", "a\tb", "{}", long.as_str()] {
            assert_eq!(sent(&[id.as_bytes()]), None, "{id}");
        }
        assert_eq!(sent(&[b"lgk_abcdefghij_0"]), None);
        assert_eq!(sent(&[b"x:lgs_AAAA"]), None);
        let token = Token::random().expose();
        assert_eq!(sent(&[token.as_bytes()]), None);
        assert_eq!(sent(&[b"\xff"]), None);
        assert_eq!(sent(&[b"a", b"b"]), None);
        assert_eq!(sent(&[]), None);
    }

    #[test]
    fn is_not_taken_over_if_it_repeats_a_secret_of_the_request() {
        let key = "5f0c2f5e-9d1b-4c58-9a3b-6f5f2b1f7d11";
        let sent = |id: &str, header: &'static str, secret: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(X_REQUEST_ID, HeaderValue::from_str(id).unwrap());
            headers.insert(header, HeaderValue::from_str(secret).unwrap());
            RequestId::sent(&headers).is_some()
        };
        for header in ["idempotency-key", "lock-token", "authorization"] {
            assert!(!sent(key, header, key), "{header}");
            assert!(!sent(&format!("req:{key}/1"), header, key), "{header}");
            assert!(!sent("short", header, "short"), "{header}");
            assert!(sent("4711", header, key), "{header}");
            assert!(sent("id-of-1", header, "1"), "{header}");
        }
        assert!(sent(key, "traceparent", key));
    }

    #[test]
    fn says_which_process_and_which_request_in_hexadecimal_digits() {
        let ids = |process| RequestIds {
            process,
            next: AtomicU64::new(1),
        };
        assert_eq!(ids(0xab).format(0).as_str(), "00000000000000ab-0");
        assert_eq!(ids(0xab).format(0x1f0).as_str(), "00000000000000ab-1f0");
        let most = ids(u64::MAX).format(u64::MAX);
        assert_eq!(most.as_str(), "ffffffffffffffff-ffffffffffffffff");
    }

    #[test]
    fn differs_between_requests_and_between_processes() {
        let ids = RequestIds::new();
        assert_ne!(
            ids.format(ids.next()).as_str(),
            ids.format(ids.next()).as_str()
        );
        assert_ne!(
            RequestIds::new().format(1).as_str(),
            RequestIds::new().format(1).as_str()
        );
    }
}
