//! Headers of answers: what a browser is told about everything that it gets from here, and what an API key with a rate is
//! told of it.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS},
};

use crate::auth::RateReading;

pub(in crate::http) const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");
const CROSS_ORIGIN_OPENER_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-opener-policy");
const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");

/// Of every answer: it is what it says that it is, and no page elsewhere embeds it. A page that is
/// listed reads it by CORS, which this does not concern.
const OF_ALL: [(HeaderName, &str); 2] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"),
];

/// Of what a person may look at.
const OF_PAGES: [(HeaderName, &str); 4] = [
    (REFERRER_POLICY, "no-referrer"),
    (X_FRAME_OPTIONS, "DENY"),
    (CROSS_ORIGIN_OPENER_POLICY, "same-origin"),
    (
        PERMISSIONS_POLICY,
        "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
];

/// Of a page that does not say what it loads: it loads nothing.
const LOADS_NOTHING: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Adds the headers for browsers. `is_page` says that a person may look at the answer; what needs an API key is for
/// programs, and gets no more than it needs.
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

/// Adds the fields of the IETF draft `ratelimit-headers`, so that a caller need not be refused to learn how fast it may ask.
pub(super) fn insert_rate(reading: RateReading, headers: &mut HeaderMap) {
    let policy = format!("\"requests\";q={};w={}", reading.quota, reading.window);
    let rate = format!("\"requests\";r={};t={}", reading.left, reading.reset);
    for (name, value) in [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, rate)] {
        let value = HeaderValue::try_from(value).expect("numbers are visible ASCII");
        headers.insert(name, value);
    }
}
