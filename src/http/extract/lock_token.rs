//! The token of a lease, from the header or from the body.

use axum::extract::FromRequestParts;
use http::{HeaderMap, HeaderName, request::Parts};

use crate::{
    http::problem::Problem,
    lock::{IdempotencyKey, IdempotencyKeyError, Token, TokenError},
};

/// The header `Lock-Token`, if there is one.
pub(in crate::http) struct LockToken(Option<Token>);

pub(super) const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");
/// As it is written in answers.
const FIELD: &str = "Lock-Token";

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
