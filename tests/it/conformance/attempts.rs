//! Attempts to make, and short words for what is expected of their answers.

use latchgate::{
    lock::{
        Fingerprint, HeldLease, HoldLimit, IdempotencyHash, LockName, Metadata, Salt, Token,
        TokenHash, Ttl,
    },
    store::{
        AnyStore, Store,
        contract::{Acquisition, Attempt, Idempotency, Release},
    },
};

/// Longer than any test takes.
pub(super) const LONG: u64 = 600_000;
/// Soon over, and long enough for what a case does while it lasts on a busy machine.
pub(super) const SHORT: u64 = 1_000;

/// A lock name.
pub(super) fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

/// A TTL.
pub(super) fn ttl(ms: u64) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

/// A new attempt for a lease of so many milliseconds.
pub(super) fn attempt(lock: &str, ms: u64) -> Attempt {
    Attempt {
        name: name(lock),
        token: token(),
        ttl: ttl(ms),
        hold_limit: None,
        sharing: None,
        owner: None,
        metadata: Metadata::default(),
        idempotency: None,
        wait: None,
    }
}

/// A new attempt under an idempotency key.
pub(super) fn keyed(lock: &str, ms: u64, key: IdempotencyHash) -> Attempt {
    let plain = attempt(lock, ms);
    let idempotency = Idempotency {
        hash: key,
        fingerprint: Fingerprint::of(Some(plain.ttl), None, None, None, &plain.metadata),
        salt: Salt::random(),
    };
    Attempt {
        idempotency: Some(idempotency),
        ..plain
    }
}

/// A new attempt for a lease that may be kept for so long.
pub(super) fn limited(lock: &str, ms: u64, limit_ms: u64) -> Attempt {
    let limit = HoldLimit::from_millis(limit_ms, ttl(ms)).unwrap();
    Attempt {
        hold_limit: Some(limit),
        ..attempt(lock, ms)
    }
}

/// A token that nobody has.
pub(super) fn token() -> TokenHash {
    Token::random().hash()
}

/// A key that nobody has used.
pub(super) fn key() -> IdempotencyHash {
    IdempotencyHash::from_bytes(*token().as_bytes())
}

/// Acquires, and must be granted the lock.
pub(super) async fn granted(store: &AnyStore, attempt: &Attempt) -> HeldLease {
    match store.acquire(attempt).await.unwrap() {
        Acquisition::Granted(held) => held,
        other => panic!("not granted: {other:?}"),
    }
}

/// Acquires, and must find the lock held.
pub(super) async fn refused(store: &AnyStore, attempt: &Attempt) {
    match store.acquire(attempt).await.unwrap() {
        Acquisition::Held(_holder) => {}
        other => panic!("not held by another: {other:?}"),
    }
}

/// Releases, and must have held the lock.
pub(super) async fn released(store: &AnyStore, attempt: &Attempt) {
    let release = store.release(&attempt.name, &attempt.token).await.unwrap();
    assert_eq!(release, Release::Released);
}

/// Whether nobody holds the lock.
pub(super) async fn is_free(store: &AnyStore, lock: &str) -> bool {
    store.inspect(&name(lock)).await.unwrap().holder.is_none()
}
