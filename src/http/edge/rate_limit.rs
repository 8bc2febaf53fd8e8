//! What a key with a rate is told of it, in the fields of the IETF draft `ratelimit-headers`.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::auth::RateReading;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Tells it, so that a caller need not be refused to learn how fast it may ask.
pub(super) fn insert(reading: RateReading, headers: &mut HeaderMap) {
    let RateReading {
        quota,
        window,
        left,
        reset,
    } = reading;
    for (name, value) in [
        (
            RATE_LIMIT_POLICY,
            format!("\"requests\";q={quota};w={window}"),
        ),
        (RATE_LIMIT, format!("\"requests\";r={left};t={reset}")),
    ] {
        let value = HeaderValue::try_from(value).expect("numbers are visible ASCII");
        headers.insert(name, value);
    }
}
