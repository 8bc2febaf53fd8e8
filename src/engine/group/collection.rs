//! The leases of a group that have been taken so far.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::{
    engine::{AcquireError, Delivery, Granted, reaper::GivenBack, start::EngineShared},
    lock::{HeldLease, KeeperId, Lease, LockName, TokenHash, Ttl},
    store::{
        Store, StoreError, Uncertainty,
        contract::{Renewal, Renewer},
    },
};

use super::request::GroupAcquireError;

/// The leases of a group that have been taken so far. Dropped, they are given back at once: whoever asked for
/// them has not heard of any. The one with the idempotency key decides about all of them.
pub(super) struct Collection {
    engine: Arc<EngineShared>,
    token: TokenHash,
    leases: Vec<CollectedLease>,
    /// Watches over all of them.
    delivery: Option<Delivery>,
    given_back: GivenBack,
}

struct CollectedLease {
    lease: Lease,
    /// Its keeper, if it is the lease that has the idempotency key.
    decides_as: Option<KeeperId>,
    renew_at: Instant,
}

/// Why a round came to nothing. What it had taken is given back.
pub(super) enum RoundEnd {
    /// A lock that was taken is lost.
    Lost,
    /// A lock is not free, and the round waits for none.
    Contended,
    /// The caller has gone.
    HungUp,
    /// The request is decided.
    Failed(GroupAcquireError),
}

/// How soon a renewal that failed is tried again, at most.
const RETRY: Duration = Duration::from_millis(500);

// === impl RoundEnd ===

impl RoundEnd {
    /// What the caller is told if this ends the last round.
    pub(super) fn into_error(self) -> GroupAcquireError {
        match self {
            Self::Failed(error) => error,
            Self::Lost | Self::Contended => StoreError::from(Uncertainty::TimedOut).into(),
            // Nobody hears it.
            Self::HungUp => StoreError::from(Uncertainty::Interrupted).into(),
        }
    }
}

// === impl Collection ===

impl Collection {
    /// Whoever has the other end of `given_back` waits until the leases are given back.
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

    /// Takes in a lease that was granted with the token of the group.
    pub(super) fn push(&mut self, granted: Granted) {
        let Granted {
            lease,
            delivery,
            keeper,
            ..
        } = granted;
        let decides_as = delivery.decides().then_some(keeper);
        self.watch(delivery);
        let renew_at = renew_at(&lease.held);
        self.leases.push(CollectedLease {
            lease,
            decides_as,
            renew_at,
        });
    }

    /// Takes in what has the token of the group, or may have been granted with it.
    pub(super) fn watch(&mut self, delivery: Delivery) {
        match &mut self.delivery {
            None => self.delivery = Some(delivery),
            Some(all) => all.join(delivery),
        }
        if let Some(all) = &mut self.delivery {
            all.await_with(&self.given_back);
        }
    }

    /// Takes in what others may have taken with the token, or go on to.
    pub(super) fn watch_names(&mut self, names: impl IntoIterator<Item = LockName>) {
        if let Some(delivery) = &mut self.delivery {
            delivery.join_names(names);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.delivery.is_none()
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
            let renewals = due.map(|it| it.renew(&self.engine, &self.token, Renewer::Bearer, None));
            // Nothing is known of a lease that has not been renewed until its end.
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

    /// Whether the time of a lease is over.
    fn has_ended(&self) -> bool {
        let now = Instant::now();
        let mut leases = self.leases.iter();
        leases.any(|it| it.lease.held.left_at(now).is_zero())
    }

    /// Renews all leases for as long as was asked for.
    pub(super) async fn extend(&mut self, ttl: Ttl) -> Result<(), RoundEnd> {
        // Last the one that decides: once it lasts longer, the group is finished. Its keeper alone can do that, so that
        // there is nobody else who goes on with the group or gives it back.
        let leases = self.leases.iter_mut();
        let (last, rest): (Vec<_>, Vec<_>) = leases.partition(|it| it.decides_as.is_some());
        for leases in [rest, last] {
            let renewals = leases.into_iter().map(|it| {
                let renewer = it.decides_as.map_or(Renewer::Bearer, Renewer::Keeper);
                it.renew(&self.engine, &self.token, renewer, Some(ttl))
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
            let events = &self.engine.events;
            events.renewed(&lease.name, &self.token, &lease.held);
        }
        Ok(())
    }

    /// The leases in the order of their names, and what watches over them.
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
                let error = GroupAcquireError::of(name, AcquireError::Superseded);
                Err(RoundEnd::Failed(error))
            }
            Ok(Renewal::Lost(_)) => Err(RoundEnd::Lost),
            Err(error) => {
                let pause = RETRY.min(self.lease.held.ttl.duration() / 10);
                self.renew_at = Instant::now() + pause;
                Err(RoundEnd::Failed(GroupAcquireError::of(name, error.into())))
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
