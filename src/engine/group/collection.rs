//! The leases of a group that have been acquired so far.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::{
    engine::{
        AcquireError, Delivery, Granted, facts::Fact, reaper::GivenBack, start::EngineShared,
    },
    lock::{HeldLease, Lease, LockName, RecipientId, TokenHash, Ttl},
    store::{
        StoreError, Uncertainty,
        contract::{Renewal, Renewer},
    },
};

use super::request::GroupAcquireError;

/// The leases of a group that have been acquired so far. Dropping the collection releases them at once, because their
/// caller has not been told of any. The lease with the idempotency key decides about all of them.
pub(super) struct Collection {
    engine: Arc<EngineShared>,
    token: TokenHash,
    leases: Vec<CollectedLease>,
    /// The delivery guard of all collected leases; `None` before the first lease.
    delivery: Option<Delivery>,
    given_back: GivenBack,
}

struct CollectedLease {
    lease: Lease,
    /// The recipient of the lease, if this is the lease that has the idempotency key.
    decides_as: Option<RecipientId>,
    renew_at: Instant,
}

/// Why one try (a round) to acquire all locks of a group failed. The leases that the round had acquired are released.
pub(super) enum RoundEnd {
    /// A lease that the round had acquired is lost.
    Lost,
    /// A lock of the group is not free, and this round does not wait for locks.
    Contended,
    /// The caller has gone.
    HungUp,
    /// The request for the group has failed, and another round would not help.
    Failed(GroupAcquireError),
}

/// How soon a failed renewal is tried again, at most.
const RETRY: Duration = Duration::from_millis(500);

// === impl RoundEnd ===

impl RoundEnd {
    /// The error for the caller if the round with this end was the last round.
    pub(super) fn into_error(self) -> GroupAcquireError {
        match self {
            Self::Failed(error) => error,
            Self::Lost | Self::Contended => StoreError::from(Uncertainty::TimedOut).into(),
            // The caller has gone, so no client sees this error.
            Self::HungUp => StoreError::from(Uncertainty::Interrupted).into(),
        }
    }
}

// === impl Collection ===

impl Collection {
    /// Starts an empty collection. The receiver of `given_back` waits until the leases are released.
    pub(super) fn new(
        engine: &Arc<EngineShared>,
        token: TokenHash,
        given_back: &GivenBack,
    ) -> Self {
        Self {
            engine: Arc::clone(engine),
            token,
            leases: Vec::new(),
            delivery: None,
            given_back: given_back.clone(),
        }
    }

    pub(super) fn token(&self) -> TokenHash {
        self.token
    }

    /// Adds a lease that was granted with the token of the group.
    pub(super) fn push(&mut self, granted: Granted) {
        let Granted {
            lease,
            delivery,
            recipient,
            ..
        } = granted;
        let decides_as = delivery.decides().then_some(recipient);
        self.watch(delivery);
        let renew_at = renew_at(&lease.held);
        self.leases.push(CollectedLease {
            lease,
            decides_as,
            renew_at,
        });
    }

    /// Adds the guard of a lease that has the token of the group, or that may have been granted with it.
    pub(super) fn watch(&mut self, delivery: Delivery) {
        match &mut self.delivery {
            None => self.delivery = Some(delivery),
            Some(all) => all.join(delivery),
        }
        if let Some(all) = &mut self.delivery {
            all.await_with(&self.given_back);
        }
    }

    /// Adds lock names to the delivery guard: another request may have acquired these locks with the same token, or
    /// may yet, so a group that is not delivered releases them, too.
    pub(super) fn watch_names(&mut self, names: impl IntoIterator<Item = LockName>) {
        if let Some(delivery) = &mut self.delivery {
            delivery.join_names(names);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.delivery.is_none()
    }

    /// Renews the leases while the group waits for another lock. Ends when one of the leases is lost. The future may
    /// be dropped and the method called again.
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
            let renewals = due.map(|it| it.renew(&self.engine, &self.token, Renewer::Bearer, None));
            // A lease that was not renewed before its end may be lost.
            let Ok(renewed) = timeout_at(first_end, join_all(renewals)).await else {
                return;
            };
            for renewal in renewed {
                match renewal {
                    Ok(()) => {}
                    Err(RoundEnd::Failed(error)) if error.is_of_store() => {
                        let name = error.name.as_ref().map(LockName::as_str);
                        tracing::debug!(name, %error, "a lock of a group is renewed again soon");
                    }
                    Err(_) => return,
                }
            }
            if self.has_ended() {
                return;
            }
        }
    }

    /// Whether one of the collected leases has expired.
    fn has_ended(&self) -> bool {
        let now = Instant::now();
        let mut leases = self.leases.iter();
        leases.any(|it| it.lease.held.left_at(now).is_zero())
    }

    /// Renews each collected lease for its whole TTL.
    pub(super) async fn extend(&mut self, ttls: &BTreeMap<LockName, Ttl>) -> Result<(), RoundEnd> {
        // The deciding lease comes last: once it has its whole TTL, the group is complete. Only the recipient of that
        // lease can renew it here, so no other request continues with the group or releases it.
        let leases = self.leases.iter_mut();
        let (last, rest): (Vec<_>, Vec<_>) = leases.partition(|it| it.decides_as.is_some());
        for leases in [rest, last] {
            let renewals = leases.into_iter().map(|it| {
                let renewer = it.decides_as.map_or(Renewer::Bearer, Renewer::Recipient);
                let ttl = ttls.get(&it.lease.name).copied();
                it.renew(&self.engine, &self.token, renewer, ttl)
            });
            let mut failed = Ok(());
            for renewal in join_all(renewals).await {
                match renewal {
                    Err(RoundEnd::Failed(error)) if error.is_of_store() => {
                        failed = Err(RoundEnd::Failed(error));
                    }
                    renewed => renewed?,
                }
            }
            failed?;
        }
        if self.has_ended() {
            return Err(RoundEnd::Lost);
        }
        for CollectedLease { lease, .. } in &self.leases {
            let (facts, fact) = (&self.engine.facts, Fact::Renewed(&lease.held));
            facts.tell(&lease.name, Some((&self.token).into()), fact);
        }
        Ok(())
    }

    /// Returns the collected leases in the order of their lock names, and their delivery guard.
    pub(super) fn finish(mut self) -> Option<(Vec<Lease>, Delivery)> {
        let mut delivery = self.delivery.take()?;
        delivery.finished();
        let leases = std::mem::take(&mut self.leases).into_iter();
        let mut leases: Vec<_> = leases.map(|it| it.lease).collect();
        leases.sort_by(|a, b| a.name.cmp(&b.name));
        Some((leases, delivery))
    }
}

// === impl CollectedLease ===

impl CollectedLease {
    async fn renew(
        &mut self,
        engine: &EngineShared,
        token: &TokenHash,
        renewer: Renewer,
        ttl: Option<Ttl>,
    ) -> Result<(), RoundEnd> {
        let name = &self.lease.name;
        let renewal = engine.store.renew_as(renewer, name, token, ttl.into());
        match renewal.await {
            Ok(Renewal::Renewed(held, _)) => {
                engine.leases.insert(*token, name, &held);
                self.renew_at = renew_at(&held);
                self.lease.held = held;
                Ok(())
            }
            Ok(Renewal::Adopted) => {
                let error = GroupAcquireError::new(name, AcquireError::Replaced);
                Err(RoundEnd::Failed(error))
            }
            Ok(Renewal::Lost(_)) => Err(RoundEnd::Lost),
            Err(error) => {
                let pause = RETRY.min(self.lease.held.ttl.duration() / 10);
                self.renew_at = Instant::now() + pause;
                Err(RoundEnd::Failed(GroupAcquireError::new(name, error.into())))
            }
        }
    }
}

/// When to renew a lease. A lease that cannot be extended is checked at its end.
fn renew_at(held: &HeldLease) -> Instant {
    let now = Instant::now();
    let left = held.left_at(now);
    now + if held.is_at_limit() { left } else { left / 3 }
}
