//! Attempts for the cases, and short helpers that assert their answers.

pub(super) use crate::redis::rig::{name, sharing as share, token, ttl};
use crate::{conformance::prelude::*, redis::rig};

/// A TTL longer than any test takes.
pub(super) const LONG: u64 = 600_000;
/// A TTL that ends soon, but is long enough for what a case does in this time on a busy machine.
pub(super) const SHORT: u64 = 1_000;

/// A new attempt with a TTL in milliseconds.
pub(super) fn attempt(lock: &str, ms: u64) -> Attempt {
    with(rig::attempt(lock), |it| it.terms.set_ttl(ttl(ms)))
}

/// A new attempt with an idempotency key.
pub(super) fn keyed(lock: &str, ms: u64, key: IdempotencyHash) -> Attempt {
    under(key, attempt(lock, ms))
}

/// A new attempt for a shared lease without a limit.
pub(super) fn reader(lock: &str, ms: u64) -> Attempt {
    with(attempt(lock, ms), |it| it.terms.sharing = Some(share(None)))
}

/// A new attempt for a shared lease with a limit.
pub(super) fn one_of(limit: u64, lock: &str, ms: u64) -> Attempt {
    with(attempt(lock, ms), |it| {
        it.terms.sharing = Some(share(Some(limit)));
    })
}

/// The attempt with this owner.
pub(super) fn owned(owner: &str, attempt: Attempt) -> Attempt {
    with(attempt, |it| {
        it.terms.said.owner = Some(Owner::new(owner).unwrap());
    })
}

/// The attempt with an idempotency key.
pub(super) fn under(key: IdempotencyHash, attempt: Attempt) -> Attempt {
    under_key(key, attempt)
}

/// The attempt with a wait that is longer than any test takes.
pub(super) fn patient(attempt: Attempt) -> Attempt {
    let waiting = Waiting {
        max_wait: Duration::from_secs(50),
        longest_queue: 100,
        supersedes: None,
    };
    with(attempt, |it| it.wait = Some(waiting))
}

/// A new attempt for a lease with a hold limit.
pub(super) fn limited(lock: &str, ms: u64, limit_ms: u64) -> Attempt {
    let limit = HoldLimit::from_millis(limit_ms, ttl(ms)).unwrap();
    with(attempt(lock, ms), |it| it.terms.set_hold_limit(limit))
}

/// A fresh idempotency key.
pub(super) fn key() -> IdempotencyHash {
    IdempotencyHash::from_bytes(*token().as_bytes())
}

/// Acquires a lock, which must be granted.
pub(super) async fn granted(store: &AnyStore, attempt: &Attempt) -> HeldLease {
    store.must_grant(attempt).await
}

/// The store, and a new attempt that was granted its lock.
pub(super) async fn holding(fixture: &dyn Fixture, attempt: Attempt) -> (AnyStore, Attempt) {
    let store = fixture.store();
    store.must_grant(&attempt).await;
    (store, attempt)
}

/// Acquires a lock, which must be held.
pub(super) async fn refused(store: &AnyStore, attempt: &Attempt) {
    store.must_refuse(attempt).await;
}

/// Releases a lease, which must live.
pub(super) async fn released(store: &AnyStore, attempt: &Attempt) {
    store.must_release(attempt).await;
}

/// Renews a lease, which must live, with a TTL in milliseconds.
pub(super) async fn renewed(store: &AnyStore, attempt: &Attempt, ms: u64) -> HeldLease {
    store.must_renew(attempt, Some(ttl(ms))).await
}

/// The shared leases of a lock, which must have some.
pub(super) async fn sharers(store: &AnyStore, lock: &str) -> SharedHolders {
    store.must_be_shared(&name(lock)).await
}

/// The number of leases that hold the lock.
pub(super) async fn holders(store: &AnyStore, lock: &str) -> u64 {
    let shown = store.inspect(&name(lock)).await.unwrap();
    shown.holder.map_or(0, |holder| holder.count())
}

/// Whether the lock has no holder.
pub(super) async fn is_free(store: &AnyStore, lock: &str) -> bool {
    store.inspect(&name(lock)).await.unwrap().holder.is_none()
}

/// Waits until `lock` has this number of holders.
pub(super) async fn until_holders(store: &AnyStore, count: u64) {
    let is_so = async || holders(store, "lock").await == count;
    until("so many hold it", is_so).await;
}
