//! `Prefer: wait=N` (RFC 7240): for how long a caller would like to wait.

use std::{convert::Infallible, time::Duration};

use axum::extract::FromRequestParts;
use http::{HeaderMap, HeaderName, HeaderValue, request::Parts};

use crate::config::LimitsConfig;

use super::field::{Form, declare_fields};

/// The preference `wait` of a request, in seconds, if it has one. What cannot be understood is as if it were not
/// there, which is how preferences are meant: nobody is refused for one.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct PreferredWait(Option<u64>);

/// How many seconds the caller is let wait because it preferred to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct AppliedWait(u64);

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

declare_fields! {
    /// `wait=N` (RFC 7240) is another word for `wait_ms`, in seconds. It counts if the body has no `wait_ms`, is
    /// cut to the longest wait that is allowed, and is answered with `Preference-Applied: wait=N`. Anything else
    /// is ignored.
    Header PreferredWait: "Prefer" => Form::TEXT.example("wait=10");
}

// === impl PreferredWait ===

impl PreferredWait {
    /// What is made of it: a preference may ask for more than is allowed, and gets what there is.
    pub(in crate::http) fn applied(self, limits: &LimitsConfig) -> Option<AppliedWait> {
        let most = limits.max_wait_ms.duration().as_secs();
        self.0.map(|seconds| AppliedWait(seconds.min(most)))
    }

    fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(PREFER).iter();
        let texts = values.filter_map(|value| value.to_str().ok());
        // Of several the first counts.
        let mut waits = texts.flat_map(|text| text.split(',')).filter_map(wait);
        Self(waits.next().and_then(seconds))
    }
}

impl<S: Sync> FromRequestParts<S> for PreferredWait {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.headers))
    }
}

/// What follows, if the preference is `wait`.
fn wait(preference: &str) -> Option<&str> {
    let preference = preference.split(';').next().unwrap_or_default();
    let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
    let is_wait = name.trim().eq_ignore_ascii_case("wait");
    is_wait.then(|| value.trim())
}

/// A number of seconds, if that is what it is.
fn seconds(value: &str) -> Option<u64> {
    let unquoted = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let digits = unquoted.unwrap_or(value);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // More than any number is more than is allowed.
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

// === impl AppliedWait ===

impl AppliedWait {
    pub(in crate::http) fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }

    /// Says so to the caller.
    pub(in crate::http) fn insert(self, headers: &mut HeaderMap) {
        let value = format!("wait={}", self.0);
        let value = HeaderValue::try_from(value).expect("a number is visible ASCII");
        headers.insert(PREFERENCE_APPLIED, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preferred(values: &[&str]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(PREFER, value.parse().unwrap());
        }
        PreferredWait::of(&headers).0
    }

    #[test]
    fn reads_the_first_wait_among_preferences() {
        for values in [
            &["wait=10"][..],
            &["Wait = 10"],
            &["wait=\"10\""],
            &["respond-async, wait=10"],
            &["wait=10; foo=bar"],
            &["return=minimal", "wait=10"],
            &["wait=10, wait=20"],
            &["wait=10", "wait=20"],
        ] {
            assert_eq!(preferred(values), Some(10), "{values:?}");
        }
        assert_eq!(preferred(&["wait=99999999999999999999999"]), Some(u64::MAX));
    }

    #[test]
    fn what_is_no_number_of_seconds_is_no_preference() {
        for values in [
            &[][..],
            &[""],
            &["respond-async"],
            &["wait"],
            &["wait="],
            &["wait=\""],
            &["wait=-1"],
            &["wait=1.5"],
            &["wait=+1"],
            &["wait=ten, wait=10"],
            &["waiting=10"],
        ] {
            assert_eq!(preferred(values), None, "{values:?}");
        }
    }

    #[test]
    fn is_cut_to_whole_seconds_that_are_allowed() {
        let limits = LimitsConfig {
            max_wait_ms: crate::config::Millis(2_900),
            ..LimitsConfig::default()
        };
        for (asked, applied) in [(0, 0), (2, 2), (3, 2), (u64::MAX, 2)] {
            let preferred = PreferredWait(Some(asked)).applied(&limits);
            assert_eq!(preferred, Some(AppliedWait(applied)));
        }
        assert_eq!(PreferredWait(None).applied(&limits), None);
    }
}
