//! The attempts and requests from which the tests make all others.

use super::prelude::*;

/// An attempt for an exclusive lease with this TTL, without a key and without a wait.
pub(crate) fn new_attempt(lock: &str, ttl: Ttl) -> Attempt {
    Attempt {
        name: LockName::new(lock).unwrap(),
        token: Token::random().hash(),
        terms: Terms::lasting(ttl),
        idempotency: None,
        wait: None,
    }
}

/// A request for an exclusive lease with this TTL, without a key.
pub(crate) fn new_request(lock: &str, ttl: Ttl, wait: Duration) -> AcquireRequest {
    AcquireRequest {
        name: LockName::new(lock).unwrap(),
        terms: Terms::lasting(ttl),
        wait,
        caller: CallerId::ANONYMOUS,
        authorization: Authorization::default(),
        idempotency_key: None,
        by: None,
    }
}

/// The attempt with this hash as its idempotency key. Its TTL counts as one that the caller gave.
pub(crate) fn under_key(hash: IdempotencyHash, mut attempt: Attempt) -> Attempt {
    attempt.terms.explicit.ttl = Some(attempt.terms.ttl());
    attempt.idempotency = Some(Idempotency {
        hash,
        fingerprint: attempt.terms.fingerprint(),
        salt: Salt::random(),
    });
    attempt
}
