//! Methods that send a command about an attempt to a store and assert the kind of its answer.

use std::{fmt::Debug, time::Duration};

use latchgate::{
    lock::{BreakTarget, FencingToken, HeldLease, LockName, Salt, Ttl},
    store::{
        Store, StoreError, Unavailability,
        contract::{
            Acquisition, Attempt, Breaking, Confirmation, Contention, FenceCheck, FenceQuery,
            GiveBack, Health, Holder, Inspection, Leaving, ListQuery, Loss, Page, QueuePosition,
            Release, Renewal, RenewalTtl, Renewer, SharedHolders,
        },
        cursor::Cursor,
        list_filter::ListFilter,
        parking::Parked,
    },
};

use super::{eventually, until};

/// Commands to a store about an attempt. Each method panics if the answer is not of the kind that its name says.
pub(crate) trait Ask: Store {
    /// Acquires a lock, which must be granted.
    async fn must_grant(&self, asked: &Attempt) -> HeldLease {
        match self.acquire(asked).await {
            Ok(Acquisition::Granted(held)) => held,
            other => panic!("{} is not granted: {other:?}", asked.name),
        }
    }

    /// Repeats an acquire until it is granted.
    async fn until_granted(&self, asked: &Attempt) -> HeldLease {
        eventually("it is granted", async || match self.acquire(asked).await {
            Ok(Acquisition::Granted(lease)) => Some(lease),
            _ => None,
        })
        .await
    }

    /// Acquires a lock, which must be granted; answers the attempt for later use.
    async fn must_hold(&self, asked: Attempt) -> Attempt {
        self.must_grant(&asked).await;
        asked
    }

    /// Acquires a lock for each of these attempts, one after the other. Each must be granted.
    async fn must_grant_each<'a>(
        &self,
        asked: impl IntoIterator<Item = &'a Attempt>,
    ) -> Vec<HeldLease> {
        let mut leases = Vec::new();
        for asked in asked {
            leases.push(self.must_grant(asked).await);
        }
        leases
    }

    /// Repeats an acquire whose lease lives. Answers the lease, its salt, and its recipient before.
    async fn must_replay(&self, asked: &Attempt) -> (HeldLease, Salt) {
        match self.acquire(asked).await {
            Ok(Acquisition::Replayed(held, salt)) => (held, salt),
            other => panic!("{} is not replayed: {other:?}", asked.name),
        }
    }

    /// Acquires a lock. The answer must be `expected`.
    async fn must_answer(&self, asked: &Attempt, expected: Acquisition) {
        let answer = self.acquire(asked).await;
        assert_eq!(answer, Ok(expected), "{}", asked.name);
    }

    /// Acquires a lock with an idempotency key whose lease has ended.
    async fn must_expire(&self, asked: &Attempt) {
        let expired = Acquisition::IdempotencyExpired;
        self.must_answer(asked, expired).await;
    }

    /// Acquires a lock with an idempotency key that was used for another request.
    async fn must_mismatch(&self, asked: &Attempt) {
        let mismatch = Acquisition::IdempotencyMismatch;
        self.must_answer(asked, mismatch).await;
    }

    /// Renews a lease, which must live.
    async fn must_renew(&self, asked: &Attempt, ttl: Option<Ttl>) -> HeldLease {
        match self.renew(&asked.name, &asked.token, ttl).await {
            Ok(Renewal::Renewed(held, _)) => held,
            other => panic!("{} is not renewed: {other:?}", asked.name),
        }
    }

    /// Renews a lease, which must live, as this renewer.
    async fn must_renew_as(&self, renewer: Renewer, asked: &Attempt) -> HeldLease {
        let (name, token, ttl) = (&asked.name, &asked.token, RenewalTtl::default());
        match self.renew_as(renewer, name, token, ttl).await {
            Ok(Renewal::Renewed(held, _)) => held,
            other => panic!("{name} is not renewed: {other:?}"),
        }
    }

    /// Breaks a lock, which the target must hold.
    async fn must_break(&self, lock: &LockName, target: Option<BreakTarget>) -> Holder {
        match self.break_lock(lock, target).await {
            Ok(Breaking::Broken(holder)) => holder,
            other => panic!("{lock} is not broken: {other:?}"),
        }
    }

    /// Confirms a provisional grant, which must live.
    async fn must_confirm(&self, asked: &Attempt) -> HeldLease {
        match self.confirm(&asked.name, &asked.token).await {
            Ok(Confirmation::Confirmed(held)) => held,
            other => panic!("{} is not confirmed: {other:?}", asked.name),
        }
    }

    /// Confirms a grant. The answer must be `expected`.
    async fn must_not_confirm(&self, asked: &Attempt, expected: Confirmation) {
        let answer = self.confirm(&asked.name, &asked.token).await;
        assert_eq!(answer, Ok(expected), "{}", asked.name);
    }

    /// Takes an attempt out of the queue, in which it must wait.
    async fn must_leave(&self, asked: &Attempt, grace: Option<Duration>) -> Contention {
        match self.leave(&asked.name, &asked.token, grace).await {
            Ok(Leaving::Left(contention)) => contention,
            other => panic!("{} does not leave: {other:?}", asked.name),
        }
    }

    /// Takes an attempt out of the queue, which must have been granted the lock meanwhile.
    async fn must_leave_granted(&self, asked: &Attempt) -> HeldLease {
        match self.leave(&asked.name, &asked.token, None).await {
            Ok(Leaving::Granted(held)) => held,
            other => panic!("{} holds nothing: {other:?}", asked.name),
        }
    }

    /// Takes an attempt out of the queue, although a newer attempt must have its position.
    async fn must_be_replaced(&self, asked: &Attempt, grace: Option<Duration>) {
        let left = self.leave(&asked.name, &asked.token, grace).await;
        assert_eq!(left, Ok(Leaving::Replaced), "{}", asked.name);
    }

    /// Renews a lease, which must be lost.
    async fn must_lose(&self, asked: &Attempt, loss: Loss) {
        let renewal = self.renew(&asked.name, &asked.token, None).await;
        assert_eq!(renewal, Ok(Renewal::Lost(loss)), "{}", asked.name);
    }

    /// Releases a lease, which must live.
    async fn must_release(&self, asked: &Attempt) {
        let release = self.release(&asked.name, &asked.token).await;
        assert!(
            matches!(release, Ok(Release::Released(_))),
            "{}: {release:?}",
            asked.name
        );
    }

    /// Releases each of these leases, which must live.
    async fn must_release_each<'a>(&self, asked: impl IntoIterator<Item = &'a Attempt>) {
        for asked in asked {
            self.must_release(asked).await;
        }
    }

    /// Renews and releases a lease, which must be lost.
    async fn must_have_lost(&self, asked: &Attempt, loss: Loss) {
        self.must_lose(asked, loss).await;
        self.must_not_release(asked, loss).await;
    }

    /// Releases a lease, which must be lost.
    async fn must_not_release(&self, asked: &Attempt, loss: Loss) {
        let release = self.release(&asked.name, &asked.token).await;
        assert_eq!(release, Ok(Release::Lost(loss)), "{}", asked.name);
    }

    /// Releases the undelivered lease of an attempt. The outcome must be `expected`.
    async fn must_give_back(&self, asked: &Attempt, expected: GiveBack) {
        let outcome = self.give_back(&asked.name, &asked.token, None).await;
        assert_eq!(outcome, Ok(expected), "{}", asked.name);
    }

    /// Acquires a lock, which another caller must hold.
    async fn must_refuse(&self, asked: &Attempt) -> Contention {
        match self.acquire(asked).await {
            Ok(Acquisition::Held(contention)) => contention,
            other => panic!("{} is not held by another: {other:?}", asked.name),
        }
    }

    /// Acquires a lock for an attempt that must have been withdrawn, because its undelivered lease was released.
    async fn must_withdraw(&self, asked: &Attempt) {
        let answer = self.acquire(asked).await;
        let withdrawn = Err(Unavailability::Withdrawn.into());
        assert_eq!(answer, withdrawn, "{}", asked.name);
    }

    /// Acquires a lock. The attempt must enter the queue.
    async fn must_queue(&self, asked: &Attempt) -> QueuePosition {
        match self.acquire(asked).await {
            Ok(Acquisition::Queued(position)) => position,
            other => panic!("{} is not queued for: {other:?}", asked.name),
        }
    }

    /// Parks an attempt at this gateway.
    fn park(&self, asked: &Attempt) -> Parked {
        self.parking().park(asked.name.clone(), asked.token)
    }

    /// Parks an attempt and makes it enter the queue.
    async fn stand(&self, asked: &Attempt) -> Parked {
        let parked = self.park(asked);
        self.must_queue(asked).await;
        parked
    }

    /// Inspects a lock, which must have neither holders nor waiters.
    async fn must_be_free(&self, lock: &LockName) {
        let free = Inspection {
            holder: None,
            queue: Vec::new(),
            waiters: 0,
            granted_order: None,
        };
        assert_eq!(self.inspect(lock).await, Ok(free), "{lock}");
    }

    /// Inspects a lock, which an exclusive lease must hold.
    async fn must_be_held(&self, lock: &LockName) -> HeldLease {
        match self.inspect(lock).await.unwrap().holder {
            Some(Holder::Lease(held)) => held,
            other => panic!("{lock} is not held by a lease: {other:?}"),
        }
    }

    /// Inspects a lock, which shared leases must hold.
    async fn must_be_shared(&self, lock: &LockName) -> SharedHolders {
        match self.inspect(lock).await.unwrap().holder {
            Some(Holder::Shared(holders)) => holders,
            other => panic!("{lock} is not shared: {other:?}"),
        }
    }

    /// Checks a fencing token, whose lease must hold the lock. Answers how long the lease lasts from now.
    async fn must_pass(&self, lock: &str, fence: FencingToken) -> Duration {
        match self.check_fence(&fence_query(lock, fence)).await {
            Ok(FenceCheck::Held { left, as_of }) => left.saturating_sub(as_of.elapsed()),
            other => panic!("{fence} does not pass for {lock}: {other:?}"),
        }
    }

    /// Checks a fencing token, whose lease must not hold the lock. Answers whether a larger one holds the lock.
    async fn must_be_stale(&self, lock: &str, fence: FencingToken) -> bool {
        match self.check_fence(&fence_query(lock, fence)).await {
            Ok(FenceCheck::Stale { is_outrun }) => is_outrun,
            other => panic!("{fence} is not stale for {lock}: {other:?}"),
        }
    }

    /// Reads all pages of a list from a cursor on, with `limit` locks on each.
    async fn pages(&self, limit: usize, mut cursor: Option<Cursor>) -> Vec<Page> {
        let mut pages = Vec::new();
        loop {
            let page = self.list(&list_query(limit, cursor)).await.unwrap();
            // A Redis server may put a few more locks on a page than the limit says.
            let together = match page.next {
                Some(Cursor::Embedded { .. }) => 0,
                _ => 16,
            };
            let found = page.locks.len();
            assert!(found <= limit.max(together), "{found} of {limit}");
            cursor = page.next;
            pages.push(page);
            if cursor.is_none() {
                return pages;
            }
        }
    }

    /// Waits until a lock has no holder.
    async fn until_free(&self, lock: &str) {
        let name = LockName::new(lock).unwrap();
        until(&format!("the lease of {lock} ends"), async || {
            self.inspect(&name).await.unwrap().holder.is_none()
        })
        .await;
    }
}

impl<S: Store + ?Sized> Ask for S {}

/// The query of a check of a fencing token.
pub(crate) fn fence_query(lock: &str, fence: FencingToken) -> FenceQuery {
    let name = LockName::new(lock).unwrap();
    FenceQuery {
        name,
        fence,
        token: None,
    }
}

/// Waits until a check of a store passes.
pub(crate) async fn until_passing(store: &impl Store, check: &str) {
    until(&format!("{check} passes"), async || {
        let checks = store.check().await;
        let mut found = checks.iter().filter(|found| found.name == check);
        found.any(|found| found.health == Health::Passing)
    })
    .await;
}

/// The state of a check of a store, and whether it is of this kind with this text.
async fn says(
    store: &impl Store,
    check: &str,
    kind: fn(String) -> Health,
    text: &str,
) -> (bool, Option<Health>) {
    let checks = store.check().await;
    let found = checks.into_iter().find(|found| found.name == check);
    let health = found.map(|found| found.health);
    let is_so = match &health {
        Some(Health::Warning(why) | Health::Outage(why) | Health::Misconfigured(why)) => {
            health == Some(kind(why.clone())) && why.contains(text)
        }
        Some(Health::Passing) | None => false,
    };
    (is_so, health)
}

/// Asserts that a check of a store has this kind of finding, with this text.
pub(crate) async fn assert_health(
    store: &impl Store,
    check: &str,
    kind: fn(String) -> Health,
    text: &str,
) {
    let (is_so, health) = says(store, check, kind, text).await;
    assert!(is_so, "{check}: {health:?}");
}

/// Waits until a check of a store has this kind of finding, with this text.
pub(crate) async fn until_health(
    store: &impl Store,
    check: &str,
    kind: fn(String) -> Health,
    text: &str,
) {
    until(text, async || says(store, check, kind, text).await.0).await;
}

/// Waits until all checks of a store pass.
pub(crate) async fn until_all_pass(store: &impl Store) {
    until("all checks pass", async || {
        let checks = store.check().await;
        checks.iter().all(|check| check.health == Health::Passing)
    })
    .await;
}

/// Asserts that the outcome of a command is unknown.
#[track_caller]
pub(crate) fn assert_unknown<T: Debug>(answer: Result<T, StoreError>) {
    match answer {
        Err(StoreError::Indeterminate(_)) => {}
        other => panic!("it is not unknown: {other:?}"),
    }
}

/// Asserts that a command had no effect because the store is unavailable.
#[track_caller]
pub(crate) fn assert_unavailable<T: Debug>(answer: Result<T, StoreError>) {
    match answer {
        Err(StoreError::Unavailable(_)) => {}
        other => panic!("it is not unavailable: {other:?}"),
    }
}

/// Asserts that a command failed because of a mistake in the configuration, with this text.
#[track_caller]
pub(crate) fn assert_misconfigured<T: Debug>(answer: Result<T, StoreError>, text: &str) {
    match answer {
        Err(StoreError::Unavailable(Unavailability::Misconfigured(why))) => {
            assert!(why.contains(text), "{why}");
        }
        other => panic!("it is no mistake in the configuration: {other:?}"),
    }
}

/// A query for a page of `limit` locks, from a cursor on.
pub(crate) fn list_query(limit: usize, cursor: Option<Cursor>) -> ListQuery {
    ListQuery {
        filter: ListFilter::default(),
        limit,
        cursor,
    }
}

/// A value with a change applied.
pub(crate) fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}
