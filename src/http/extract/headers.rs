//! Extractors of headers (tokens, keys and preferences), and of the id and the address of a request.

use std::{convert::Infallible, net::IpAddr, sync::Arc, time::Duration};

use axum::extract::FromRequestParts;
use http::{HeaderMap, HeaderName, request::Parts};

use crate::{
    audit::Requester,
    config::LimitsConfig,
    http::{
        edge::{RequestContext, RequestId},
        problem::Problem,
        serve::peer,
    },
    lock::{FencingToken, IdempotencyKey, IdempotencyKeyError, Token, TokenError},
};

use super::{
    field::{Form, declare_fields},
    fields::digits,
};

/// The header `Lock-Token`, if there is one.
pub(in crate::http) struct LockToken(pub(in crate::http) Option<Token>);

/// Stands for the header `Lock-Token` where the body may have the token instead, in the OpenAPI document.
pub(in crate::http) struct TokenOrBody;
/// Stands for the header `Lock-Token` of an operation on several leases that has no body, in the OpenAPI
/// document.
pub(in crate::http) struct OnlyToken;
/// Stands for the header `Lock-Token` with a lease that a stream adopts, in the OpenAPI document.
pub(in crate::http) struct AdoptedToken;

pub(in crate::http) const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");
/// Name of the header `Lock-Token` as problems write it.
const FIELD: &str = "Lock-Token";
/// Form of a lease's token: its length, and the characters that it may have.
pub(in crate::http) const TOKEN: Form = Form::text(
    Token::TEXT_LEN,
    Token::TEXT_LEN,
    "^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$",
);
const REQUIRED: Form = TOKEN
    .required()
    .example("qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU");

declare_fields! {
    /// The token of the lease. It may be sent as `token` in a JSON body instead; two different tokens are
    /// refused.
    Header LockToken: FIELD => REQUIRED;
    /// The token of the lease, instead of the body or besides it; two different tokens are refused.
    Header TokenOrBody: FIELD => TOKEN;
    /// The token of the leases.
    Header OnlyToken: FIELD => REQUIRED;
    /// The token of a living lease, which the stream adopts instead of acquiring a lease.
    Header AdoptedToken: FIELD => TOKEN;
    /// Makes the request safe to repeat: repeated while the lease lives, the answer is 200 with the same
    /// lease, token included; for a minute after its end it is 409. A random UUID is fine. The key is as
    /// secret as the token, and must be of this request alone: every other caller with the key is answered
    /// with this lease. A key below 16 characters is refused, and a key below 22 is taken with a warning in
    /// `Latchgate-Warning`.
    ///
    /// A repeated request has the same fields with the same values, but for `wait_ms`; otherwise the answer is
    /// 409 `idempotency-mismatch`. A lease that was acquired can be held under its key, and the other way round: it keeps its TTL and its hold limit.
    Header IdempotencyKeyHeader: KEY_FIELD =>
        // No example: the page `/docs` fills examples in, and all its visitors would be answered one lease.
        Form::text(IdempotencyKey::MIN_LEN, IdempotencyKey::MAX_LEN, "^[!-~]*$");
}

// === impl LockToken ===

impl LockToken {
    /// The token in the header, for an operation that has no body.
    pub(in crate::http) fn required(self) -> Result<Token, Problem> {
        let missing = || Problem::invalid_field(FIELD, "is missing; send the token in this header");
        self.0.ok_or_else(missing)
    }

    /// The token of the request: from the header, or from the body, or from both if they agree.
    pub(in crate::http) fn or(self, body: Option<Token>) -> Result<Token, Problem> {
        match (self.0, body) {
            (Some(header), Some(body)) if header.hash() != body.hash() => {
                Err(Problem::invalid_field(
                    FIELD,
                    "is another token than the field `token` of the body",
                ))
            }
            (Some(token), _) | (None, Some(token)) => Ok(token),
            (None, None) => Err(Problem::invalid_field(
                FIELD,
                "is missing; send the token in this header, or as `token` in the body",
            )),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for LockToken {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let refuse = |reason| Problem::invalid_field(FIELD, reason);
        match single(&parts.headers, &LOCK_TOKEN).map_err(refuse)? {
            None => Ok(Self(None)),
            Some(text) => Token::parse(text)
                .map(|token| Self(Some(token)))
                .map_err(|error: TokenError| Problem::invalid_field(FIELD, error.to_string())),
        }
    }
}

/// The text of a header; fails if the request has the header more than once.
pub(in crate::http) fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, &'static str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match value.to_str() {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err("has a character that is not visible ASCII"),
        },
        (Some(_), Some(_)) => Err("is given more than once"),
    }
}

// === Fencing token ===
//
// The header `Fencing-Token`.

/// The header `Fencing-Token` of a check.
pub(in crate::http) struct FencingTokenHeader(pub(in crate::http) FencingToken);

/// Name of the header `Fencing-Token` as problems write it.
const FENCE_FIELD: &str = "Fencing-Token";

declare_fields! {
    /// The fencing token to check: that of the lease under which the request was made.
    Header FencingTokenHeader: FENCE_FIELD =>
        Form::whole(|_| (1, FencingToken::MAX.get())).required();
}

// === impl FencingTokenHeader ===

impl<S: Sync> FromRequestParts<S> for FencingTokenHeader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let refuse = |reason: &str| Problem::invalid_field(FENCE_FIELD, reason);
        let name = HeaderName::from_static("fencing-token");
        let text = single(&parts.headers, &name).map_err(refuse)?;
        let missing = || refuse("is missing; send the fencing token in this header");
        let number = digits(text.ok_or_else(missing)?);
        let number = number.ok_or_else(|| refuse("is not a whole number"))?;
        let fence = FencingToken::new(number).map_err(|error| refuse(&error.to_string()));
        fence.map(Self)
    }
}

// === Idempotency key ===
//
// The header `Idempotency-Key`.

/// The header `Idempotency-Key`, if there is one.
pub(in crate::http) struct IdempotencyKeyHeader(pub(in crate::http) Option<IdempotencyKey>);

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Name of the header `Idempotency-Key` as problems write it.
const KEY_FIELD: &str = "Idempotency-Key";

// === impl IdempotencyKeyHeader ===

impl<S: Sync> FromRequestParts<S> for IdempotencyKeyHeader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let text = single(&parts.headers, &IDEMPOTENCY_KEY)
            .map_err(|reason| Problem::invalid_field(KEY_FIELD, reason))?;
        text.map(IdempotencyKey::new)
            .transpose()
            .map(Self)
            .map_err(|error: IdempotencyKeyError| {
                Problem::invalid_field(KEY_FIELD, error.to_string())
            })
    }
}

/// The preference `wait` of a request, in seconds, if it has one. A preference that cannot be understood is
/// ignored, as RFC 7240 says: no request is refused for a preference.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct PreferredWait(Option<u64>);

const PREFER: HeaderName = HeaderName::from_static("prefer");

declare_fields! {
    /// `wait=N` (RFC 7240) has the meaning of `wait_ms`, in seconds. It counts if the body has no `wait_ms`,
    /// is cut to the longest wait that is allowed, and is answered with `Preference-Applied: wait=N`. Other
    /// preferences are ignored.
    Header PreferredWait: "Prefer" => Form::TEXT.example("wait=10");
}

// === impl PreferredWait ===

impl PreferredWait {
    /// The wait that the gateway applies, in whole seconds: a longer preference is cut to the longest wait
    /// that is allowed.
    pub(in crate::http) fn applied(self, limits: &LimitsConfig) -> Option<Duration> {
        let most = limits.max_wait_ms.duration().as_secs();
        let applied = |seconds: u64| Duration::from_secs(seconds.min(most));
        self.0.map(applied)
    }

    fn from_headers(headers: &HeaderMap) -> Self {
        let values = headers.get_all(PREFER).iter();
        let texts = values.filter_map(|value| value.to_str().ok());
        // If the caller prefers several waits, the first counts.
        let mut waits = texts.flat_map(|text| text.split(',')).filter_map(wait);
        Self(waits.next().and_then(seconds))
    }
}

impl<S: Sync> FromRequestParts<S> for PreferredWait {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::from_headers(&parts.headers))
    }
}

/// The value of a preference, if the preference is `wait`.
fn wait(preference: &str) -> Option<&str> {
    let preference = preference.split(';').next().unwrap_or_default();
    let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
    let is_wait = name.trim().eq_ignore_ascii_case("wait");
    is_wait.then(|| value.trim())
}

/// The number of seconds in the value of a `wait` preference, if the value is a number.
fn seconds(value: &str) -> Option<u64> {
    let unquoted = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let digits = unquoted.unwrap_or(value);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // A number that is too large for `u64` counts as the largest: the longest wait cuts it anyway.
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// The id of the last event that the caller has read. An unreadable id is kept as an empty, unknown id, and
/// the answer begins with a gap: a browser sends this header by itself and cannot correct it.
pub(in crate::http) struct LastEventId(pub(in crate::http) Option<String>);

declare_fields! {
    /// The id of the last event that the client has read: the stream begins after it. A browser sends this
    /// header by itself.
    Header LastEventId: "Last-Event-ID" => Form::TEXT;
}

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

impl<S: Sync> FromRequestParts<S> for LastEventId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let header = parts.headers.get(LAST_EVENT_ID);
        let header = header.filter(|header| !header.is_empty());
        let id = header.map(|header| header.to_str().unwrap_or_default().to_owned());
        Ok(Self(id))
    }
}

/// The id of a request, and the address it came from.
pub(in crate::http) struct Provenance {
    /// Request id, as in the log.
    pub(in crate::http) request_id: RequestId,
    /// Address of the other end of the connection, if it is a network connection.
    pub(in crate::http) remote: Option<IpAddr>,
}

// === impl Provenance ===

impl Provenance {
    /// The sender of the request, for the audit log. `key` is the name of the caller's API key.
    pub(in crate::http) fn requester<'a>(&'a self, key: Option<&'a Arc<str>>) -> Requester<'a> {
        Requester {
            key: key.map(AsRef::as_ref),
            request_id: self.request_id.as_str(),
            remote: self.remote,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Provenance {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self {
            request_id: RequestContext::from_parts(parts).request_id(),
            remote: peer(&parts.extensions),
        })
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
        PreferredWait::from_headers(&headers).0
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
}
