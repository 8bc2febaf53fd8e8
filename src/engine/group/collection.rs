//! The leases of a group that have been taken so far.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::{
    engine::{Delivery, Granted, start::EngineShared},
    lock::{HeldLease, Lease, LockName, TokenHash, Ttl},
    store::{
        Store, StoreError,
        contract::{Renewal, Renewer},
    },
};

/// The leases of a group that have been taken so far. Dropped, they are given back at once: whoever asked for
/// them has not heard of any.
pub(super) struct Collection {
    engine: Arc<EngineShared>,
    token: TokenHash,
    leases: Vec<CollectedLease>,
    /// The lock that has the idempotency key, if there is one: it decides who has all.
    deciding: Option<LockName>,
    /// Watches over all of them.
    delivery: Option<Delivery>,
}

struct CollectedLease {
    lease: Lease,
    renew_at: Instant,
}

/// What came of the last renewal, which makes the leases last as long as was asked for.
pub(super) enum Extended {
    /// All of them last.
    All,
    /// One is lost.
    Lost,
    /// The store gave no answer for one.
    Failed(LockName, StoreError),
}

/// How soon a renewal that failed is tried again, at most.
const RETRY: Duration = Duration::from_millis(500);

// === impl Collection ===

impl Collection {
    pub(super) fn new(
        engine: &Arc<EngineShared>,
        token: TokenHash,
        deciding: Option<LockName>,
    ) -> Self {
        Self {
            engine: Arc::clone(engine),
            token,
            leases: Vec::new(),
            deciding,
            delivery: None,
        }
    }

    pub(super) fn token(&self) -> TokenHash {
        self.token
    }

    /// Takes in a lease that was granted with the token of the group.
    pub(super) fn push(&mut self, granted: Granted) {
        let Granted {
            lease, delivery, ..
        } = granted;
        match &mut self.delivery {
            None => self.delivery = Some(delivery),
            Some(all) => all.join(delivery),
        }
        let renew_at = renew_at(&lease.held);
        self.leases.push(CollectedLease { lease, renew_at });
    }

    /// Renews the leases while others are waited for. Ends when one of them is lost. Safe to drop and call
    /// again.
    pub(super) async fn until_lost(&mut self) {
        loop {
            let Some(due) = self.leases.iter().map(|it| it.renew_at).min() else {
                return std::future::pending().await;
            };
            sleep_until(due).await;
            let now = Instant::now();
            let ends = self
                .leases
                .iter()
                .map(|it| now + it.lease.held.left_at(now));
            let Some(first_end) = ends.min() else { return };
            let due = self.leases.iter_mut().filter(|it| it.renew_at <= now);
            let renewals = due.map(|it| it.renew(&self.engine, &self.token, None));
            // Nothing is known of a lease that has not been renewed until its end.
            let Ok(renewed) = timeout_at(first_end, join_all(renewals)).await else {
                return;
            };
            for renewal in renewed {
                match renewal {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err((name, error)) => {
                        tracing::debug!(%name, %error, "a lock of a group is renewed again soon");
                    }
                }
            }
            let now = Instant::now();
            if self
                .leases
                .iter()
                .any(|it| it.lease.held.left_at(now).is_zero())
            {
                return;
            }
        }
    }

    /// Renews all leases for as long as was asked for.
    pub(super) async fn extend(&mut self, ttl: Ttl) -> Extended {
        // First the one that decides: if it is lost, the others are left to the short TTL that they have.
        let is_first = |it: &CollectedLease| Some(&it.lease.name) == self.deciding.as_ref();
        let (first, rest): (Vec<_>, Vec<_>) = self.leases.iter_mut().partition(|it| is_first(it));
        let mut outcome = Extended::All;
        for leases in [first, rest] {
            let leases = leases.into_iter();
            let renewals = leases.map(|it| it.renew(&self.engine, &self.token, Some(ttl)));
            for renewal in join_all(renewals).await {
                match renewal {
                    Ok(true) => {}
                    Ok(false) => return Extended::Lost,
                    Err((name, error)) => outcome = Extended::Failed(name, error),
                }
            }
            if !matches!(outcome, Extended::All) {
                return outcome;
            }
        }
        let now = Instant::now();
        if self
            .leases
            .iter()
            .any(|it| it.lease.held.left_at(now).is_zero())
        {
            return Extended::Lost;
        }
        for CollectedLease { lease, .. } in &self.leases {
            let events = &self.engine.events;
            events.renewed(&lease.name, &self.token, &lease.held);
        }
        outcome
    }

    /// The leases in the order of their names, and what watches over them.
    pub(super) fn finish(mut self) -> Option<(Vec<Lease>, Delivery)> {
        let delivery = self.delivery.take()?;
        let leases = std::mem::take(&mut self.leases).into_iter();
        let mut leases: Vec<_> = leases.map(|it| it.lease).collect();
        leases.sort_by(|a, b| a.name.cmp(&b.name));
        Some((leases, delivery))
    }

    /// Leaves the leases to their TTL, which is short while a group is collected: a newer request under the same
    /// idempotency key may go on with them.
    pub(super) fn leave_behind(mut self) {
        if let Some(delivery) = self.delivery.take() {
            delivery.delivered();
        }
    }
}

impl Drop for Collection {
    fn drop(&mut self) {
        if let Some(delivery) = self.delivery.take() {
            delivery.give_back_now();
        }
    }
}

// === impl CollectedLease ===

impl CollectedLease {
    /// Whether it is still ours, and lasts longer now.
    async fn renew(
        &mut self,
        engine: &EngineShared,
        token: &TokenHash,
        ttl: Option<Ttl>,
    ) -> Result<bool, (LockName, StoreError)> {
        let name = &self.lease.name;
        let renewal = engine.store.renew_as(Renewer::Bearer, name, token, ttl);
        match renewal.await {
            Ok(Renewal::Renewed(held, _)) => {
                engine.leases.insert(*token, name, &held);
                self.renew_at = renew_at(&held);
                self.lease.held = held;
                Ok(true)
            }
            Ok(Renewal::Adopted | Renewal::Lost(_)) => Ok(false),
            Err(error) => {
                let pause = RETRY.min(self.lease.held.ttl.duration() / 10);
                self.renew_at = Instant::now() + pause;
                Err((name.clone(), error))
            }
        }
    }
}

/// A lease that cannot be made longer is looked after when it ends.
fn renew_at(held: &HeldLease) -> Instant {
    let now = Instant::now();
    let left = held.left_at(now);
    now + if held.is_at_limit() { left } else { left / 3 }
}
