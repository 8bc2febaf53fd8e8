//! The token of a lease, from the header or from the body.

use axum::extract::FromRequestParts;
use http::{HeaderMap, HeaderName, request::Parts};

use crate::{
    http::problem::Problem,
    lock::{IdempotencyKey, IdempotencyKeyError, Token, TokenError},
};

use super::field::{Form, declare_fields};

/// The header `Lock-Token`, if there is one.
pub(in crate::http) struct LockToken(Option<Token>);

/// The token in the header, or in the body instead.
pub(in crate::http) struct TokenOrBody;
/// The token of several leases, where no body can have it.
pub(in crate::http) struct OnlyToken;
/// The token of a lease that a stream adopts.
pub(in crate::http) struct AdoptedToken;

pub(super) const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");
/// As it is written in answers.
const FIELD: &str = "Lock-Token";
/// The text of a token.
pub(in crate::http) const TOKEN: Form = Form::text(
    Token::TEXT_LEN,
    Token::TEXT_LEN,
    "^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$",
);
const REQUIRED: Form = TOKEN
    .required()
    .example("qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU");

declare_fields! {
    /// The token of the lease. It may be sent as `token` in a JSON body instead; two that differ are
    /// refused.
    Header LockToken: FIELD => REQUIRED;
    /// The token of the lease, instead of the body or besides it; two that differ are refused.
    Header TokenOrBody: FIELD => TOKEN;
    /// The token of the leases.
    Header OnlyToken: FIELD => REQUIRED;
    /// The token of a living lease, which the stream then goes on with instead of acquiring one.
    Header AdoptedToken: FIELD => TOKEN;
    /// Makes the request safe to repeat: asked again while the lease lives, the answer is 200 with
    /// the same lease, token included; for a minute after its end it is 409. A random UUID is fine.
    /// It is as secret as the token, and must be of this request alone: whoever else asks with it is answered
    /// with this lease. A key below 16 characters is refused, and one below 22 is taken with a warning in
    /// `Latchgate-Warning`.
    ///
    /// The same request has the same `ttl_ms`, `max_hold_ms`, `mode`, `limit`, `owner` and `metadata`, or leaves
    /// the same of them out; else the answer is 409 `idempotency-mismatch`. A lease that was acquired can
    /// be held under its key, and the other way round: it keeps the TTL and the hold limit that it has.
    Header IdempotencyKeyHeader: KEY_FIELD =>
        Form::text(IdempotencyKey::MIN_LEN, IdempotencyKey::MAX_LEN, "^[!-~]*$")
            .example("0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11");
}

// === impl LockToken ===

impl LockToken {
    /// The token in the header, if there is one.
    pub(in crate::http) fn header(self) -> Option<Token> {
        self.0
    }

    /// The token in the header, of an operation that has no body.
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

/// The text of a header that may be given once.
pub(super) fn single<'a>(
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

// === Idempotency key ===
//
// The header `Idempotency-Key`.

/// The header `Idempotency-Key`, if there is one.
pub(in crate::http) struct IdempotencyKeyHeader(pub(in crate::http) Option<IdempotencyKey>);

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// As it is written in answers.
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
