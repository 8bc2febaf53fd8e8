//! The headers of the routes under `/locks`, for the OpenAPI document.

use utoipa::IntoParams;

/// The token where it is expected in the header.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it only describes what `LockToken` reads")]
pub(super) struct TokenHeader {
    /// The token of the lease. It may be sent as `token` in a JSON body instead; two that differ are
    /// refused.
    #[param(
        rename = "Lock-Token",
        min_length = 43,
        max_length = 43,
        pattern = "^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$",
        example = "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU"
    )]
    token: String,
}

/// The token where it can be nowhere else.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it only describes what `LockToken` reads")]
pub(super) struct OnlyTokenHeader {
    /// The token of the leases.
    #[param(
        rename = "Lock-Token",
        min_length = 43,
        max_length = 43,
        pattern = "^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$",
        example = "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU"
    )]
    token: String,
}

/// The token where it is expected in the body.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it only describes what `LockToken` reads")]
pub(super) struct TokenHeaderToo {
    /// The token of the lease, instead of the body or besides it; two that differ are refused.
    #[param(
        rename = "Lock-Token",
        nullable = false,
        min_length = 43,
        max_length = 43,
        pattern = "^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$"
    )]
    token: Option<String>,
}

/// The key that makes a request safe to repeat.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(
    dead_code,
    reason = "it only describes what `IdempotencyKeyHeader` reads"
)]
pub(super) struct KeyHeader {
    /// Makes the request safe to repeat: asked again while the lease lives, the answer is 200 with
    /// the same lease, token included; for a minute after its end it is 409. A random UUID is fine.
    /// It is as secret as the token, and must be of this request alone: whoever else asks with it is answered
    /// with this lease. A key below 16 characters is refused, and one below 22 is taken with a warning in
    /// `Latchgate-Warning`.
    ///
    /// The same request has the same `ttl_ms`, `max_hold_ms`, `mode`, `limit`, `owner` and `metadata`, or leaves
    /// the same of them out; else the answer is 409 `idempotency-mismatch`. A lease that was acquired can
    /// be held under its key, and the other way round: it keeps the TTL and the hold limit that it has.
    #[param(
        rename = "Idempotency-Key",
        nullable = false,
        min_length = 16,
        max_length = 128,
        pattern = "^[!-~]*$",
        example = "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11"
    )]
    key: Option<String>,
}

/// For how long to wait, for those who say it in a header.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it only describes what `PreferredWait` reads")]
pub(super) struct PreferHeader {
    /// `wait=N` (RFC 7240) is another word for `wait_ms`, in seconds. It counts if the body has no `wait_ms`, is
    /// cut to the longest wait that is allowed, and is answered with `Preference-Applied: wait=N`. Anything else
    /// is ignored.
    #[param(rename = "Prefer", nullable = false, example = "wait=10")]
    prefer: Option<String>,
}

/// What the caller has seen of a lock.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it only describes what `IfNoneMatch` reads")]
pub(super) struct SeenHeader {
    /// The `ETag` of an earlier answer: if it is still that of the lock, the answer is 304.
    #[param(rename = "If-None-Match", nullable = false)]
    tags: Option<String>,
}

/// The token of a lease that is to be adopted.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it only describes what `LockToken` reads")]
pub(super) struct AdoptedTokenHeader {
    /// The token of a living lease, which the stream then goes on with instead of acquiring one.
    #[param(
        rename = "Lock-Token",
        nullable = false,
        min_length = 43,
        max_length = 43,
        pattern = "^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$"
    )]
    token: Option<String>,
}

// === Lock path ===
//
// The path parameter of the routes under `/locks`, for the OpenAPI document.

/// The lock that a path names.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it only describes what `ApiPath<LockName>` reads")]
pub(super) struct LockPath {
    /// The lock: ASCII letters, digits and `. _ : @ ~ -`. Use `:` for hierarchy.
    #[param(
        min_length = 1,
        max_length = 200,
        example = "deploy:prod",
        pattern = r"^(\.*[A-Za-z0-9_:@~-][A-Za-z0-9._:@~-]*|\.{3,})$"
    )]
    name: String,
}
