//! Collects a group: acquires its locks one after the other.
//!
//! The locks are acquired in the order of their names, so that groups cannot wait for each other in a circle. While
//! the group waits for a lock, the locks before it are held with a short TTL and renewed. If one of these leases is
//! lost, the group begins again: the lost lock may be held by a group that waits for a later lock. All leases are
//! then released, and the next round has a new token, because an attempt that was released is never granted under its
//! token.
//!
//! The last lock has the idempotency key, and its lease decides about the whole group. While a group is collected
//! that lease has a TTL that it does not have afterwards. When all other leases have been renewed for the TTL that
//! the caller asked for, the recipient of the deciding lease renews that lease, too; then the group is complete and is
//! answered. So the deciding lease tells a request under the same key about the group:
//!
//! - The group is complete: the whole group is answered again. If another lease of it was lost since, the group has
//!   ended.
//! - The group is not complete: no caller was answered the group, and no other request can complete it now, because
//!   the new request is the recipient from then on. The new request continues with the group, or releases it without
//!   using up the key.
//!
//! The release of a group begins with the deciding lease. If another request continues with that lease, the others
//! stay.
//!
//! A request with a key asks for the last lock first, and then for the others, backwards and without waiting for any:
//! this finds the group that lives under the key. If the locks are not all free, the request begins again, in order.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};

use crate::{
    auth::LeaseSlot,
    engine::{
        AcquireError, AcquireRequest, Engine, Granted,
        acquire::{AcquireAttempt, AttemptIdentity, failure_outcome},
        detach_on_drop::{CallerGone, DetachOnDrop},
        facts::ReleasedBy,
        reaper::GivenBack,
        start::EngineShared,
    },
    lock::{GroupNames, Lease, LockName, Ttl},
    store::{
        StoreError, Uncertainty,
        contract::{GiveBack, Renewal, RenewalTtl, Renewer},
    },
};

use super::{
    collection::{Collection, RoundEnd},
    request::{GrantedGroup, GroupAcquireError, GroupRequest},
};

/// The state of a group request until it is answered.
pub(super) struct Collector {
    engine: Arc<EngineShared>,
    names: GroupNames,
    /// The requests for the single locks, in the order of the names.
    parts: Vec<AcquireRequest>,
    /// The slots of the leases among the leases of the API key, in the order of the names.
    slots: Vec<Option<LeaseSlot>>,
    /// The TTL of each lease once all locks are acquired. The declarations of the locks may bound the TTL that the
    /// caller asked for.
    ttls: BTreeMap<LockName, Ttl>,
    began: Instant,
    wait: Duration,
    hung_up: CallerGone,
    /// Tells the caller once that the request waits.
    queued: Option<oneshot::Sender<()>>,
    /// A sender of which each acquired lease has a copy until the store was asked to end the lease: when all copies
    /// are dropped, all releases have been tried.
    given_back: GivenBack,
    all_given_back: mpsc::Receiver<Infallible>,
}

/// How long a refused caller waits at most for the release of acquired leases: as long as a command of Redis may take
/// by default.
const GIVE_BACK: Duration = Duration::from_secs(5);

// === impl Engine ===

impl Engine {
    /// Acquires several locks, all or none, and waits for them if the request says so. `queued` is called when it is
    /// certain that the request waits.
    ///
    /// If the caller drops this future while the locks are acquired, a separate task releases the acquired leases.
    /// Once all locks are acquired, undelivered leases are released like the lease of a single lock: with an
    /// idempotency key after the reconnect grace.
    pub fn acquire_group<Q: FnOnce() + Send>(
        &self,
        request: GroupRequest,
        queued: Q,
    ) -> impl Future<Output = Result<GrantedGroup, GroupAcquireError>> + Send + use<Q> {
        let begun = request.parts().iter().try_for_each(|it| self.may_begin(it));
        let begun = begun.inspect_err(|error| self.metrics().acquired(failure_outcome(error)));
        let slots = begun.and_then(|()| Ok(request.lease_slots()?));
        let (queued_sender, was_queued) = oneshot::channel();
        let collected = slots.map(|slots| {
            let engine = self.0.clone();
            DetachOnDrop::waiting(&self.0.lifecycle, move |hung_up| {
                Collector::new(engine, request, slots, hung_up, queued_sender).run()
            })
        });
        async move {
            let mut collected =
                collected.map_err(|error| GroupAcquireError { name: None, error })?;
            tokio::select! {
                biased;
                outcome = &mut collected => return outcome,
                Ok(()) = was_queued => queued(),
            }
            collected.await
        }
    }
}

// === impl Collector ===

impl Collector {
    pub(super) fn new(
        engine: Arc<EngineShared>,
        request: GroupRequest,
        slots: Vec<Option<LeaseSlot>>,
        hung_up: CallerGone,
        queued: oneshot::Sender<()>,
    ) -> Self {
        let GroupRequest { names, mut parts } = request;
        let first = parts.first().expect("a group has at least 2 names");
        let wait = first.wait;
        let whole = |part: &AcquireRequest| (part.name.clone(), part.terms.ttl());
        let ttls = parts.iter().map(whole).collect();
        for part in &mut parts {
            part.terms.set_ttl(part.terms.ttl().while_collected());
        }
        let (given_back, all_given_back) = mpsc::channel(1);
        Self {
            engine,
            names,
            parts,
            slots,
            ttls,
            began: Instant::now(),
            wait,
            hung_up,
            queued: Some(queued),
            given_back,
            all_given_back,
        }
    }

    /// Collects the group and answers. A refusal is answered only when the acquired leases have been released: the
    /// caller may ask for these locks next, or for others, and no later request should find them held for this
    /// refused request.
    pub(super) async fn run(mut self) -> Result<GrantedGroup, GroupAcquireError> {
        let outcome = self.collect().await;
        let Self {
            given_back,
            mut all_given_back,
            ..
        } = self;
        drop(given_back);
        if outcome.is_err() {
            // The remaining releases continue without the caller.
            drop(timeout(GIVE_BACK, all_given_back.recv()).await);
        }
        outcome
    }

    async fn collect(&mut self) -> Result<GrantedGroup, GroupAcquireError> {
        let last = self.parts.len() - 1;
        let order: Vec<_> = (0..=last).collect();
        if self.parts[last].idempotency_key.is_some() {
            // All requests with a key begin like this, so at least one of several overlapping requests gets its
            // locks.
            let last_first: Vec<_> = (0..=last).rev().collect();
            match self.round(&last_first, false).await {
                Err(RoundEnd::Lost | RoundEnd::Contended) => self.ask_again(),
                outcome => return outcome.map_err(RoundEnd::into_error),
            }
        }
        loop {
            match self.round(&order, true).await {
                Err(RoundEnd::Lost | RoundEnd::Contended) if !self.left().is_zero() => {
                    self.ask_again();
                }
                outcome => return outcome.map_err(RoundEnd::into_error),
            }
        }
    }

    /// Makes the slots count as taken until new leases are granted: no complete group lives under the key, and the
    /// next round asks for new leases.
    fn ask_again(&self) {
        for slot in self.slots.iter().flatten() {
            slot.ask_again();
        }
    }

    /// Tries once (one round) to acquire all locks of the group, in the given order.
    async fn round(&mut self, order: &[usize], waits: bool) -> Result<GrantedGroup, RoundEnd> {
        let mut identity = self.identity();
        let mut collected = Collection::new(&self.engine, identity.token.hash(), &self.given_back);
        let mut is_adopted = false;
        for &at in order {
            let granted = loop {
                let taken = self.take(at, &identity, waits, &mut collected).await;
                let granted = taken.map_err(|end| match end {
                    RoundEnd::Failed(failed) if is_adopted && failed.is_withdrawn() => {
                        RoundEnd::Lost
                    }
                    end => end,
                })?;
                if granted.hash == identity.token.hash() {
                    break granted;
                }
                if granted.delivery.is_replay() {
                    drop(collected);
                    return self.replayed(granted).await;
                }
                if collected.is_empty() {
                    // The round adopts a group that another request under the same idempotency key has not completed,
                    // and acquires the rest of it.
                    is_adopted = true;
                    identity.token = granted.lease.token.clone();
                    collected = Collection::new(&self.engine, granted.hash, &self.given_back);
                    break granted;
                }
                // The lease belongs to another round under the same idempotency key, which cannot complete its group
                // because this round holds some of the locks.
                self.end_unfinished(granted).await?;
            };
            collected.push(granted);
            if is_adopted {
                // The other request may have acquired these locks, or be about to, with the same token: they must be
                // released too if this group is not delivered.
                collected.watch_names(self.names.iter().cloned());
            }
        }
        self.finish(collected).await
    }

    /// Releases an unanswered lease that another round under the key has acquired, so that this round can acquire the
    /// lock.
    async fn end_unfinished(&self, granted: Granted) -> Result<(), RoundEnd> {
        let (store, name) = (&self.engine.store, &granted.lease.name);
        let given_back = store.give_back(name, &granted.hash, Some(granted.recipient));
        let outcome = given_back.await.map_err(|error| {
            let error = GroupAcquireError::new(name, error.into());
            RoundEnd::Failed(error)
        })?;
        let leases = &self.engine.leases;
        leases.rest(name, &granted.hash, None);
        if outcome == GiveBack::GivenBack {
            let by = ReleasedBy::Gateway(None);
            self.engine.facts.released(name, &granted.hash, None, by);
        } else {
            leases.remove(name, &granted.hash);
        }
        granted.delivery.delivered();
        Ok(())
    }

    /// Makes the token of one round, and the idempotency data for the store.
    fn identity(&self) -> AttemptIdentity {
        let keyed = self.parts.last().expect("a group has at least 2 names");
        let mut identity = AttemptIdentity::for_request(keyed);
        if let Some(idempotency) = &mut identity.idempotency {
            let locks = self.parts.iter().map(|part| {
                let order = part.terms.said.order.as_deref();
                (&part.name, part.terms.sharing_number(), order)
            });
            idempotency.fingerprint = idempotency.fingerprint.of_group(locks);
        }
        identity
    }

    /// Acquires one lock, and renews the leases that were acquired before.
    async fn take(
        &mut self,
        at: usize,
        identity: &AttemptIdentity,
        waits: bool,
        collected: &mut Collection,
    ) -> Result<Granted, RoundEnd> {
        let wait = if waits { self.left() } else { Duration::ZERO };
        let mut request = AcquireRequest {
            wait,
            ..self.parts[at].clone()
        };
        let name = request.name.clone();
        let group = self
            .names
            .marked(at, self.ttls[&name], &identity.token.hash());
        request.terms.said.group = Some(Box::new(group));
        let failed = |error| RoundEnd::Failed(GroupAcquireError::new(&name, error));
        if self.engine.lifecycle.is_draining() {
            return Err(failed(AcquireError::Draining));
        }
        if self.hung_up.has_gone() {
            return Err(RoundEnd::HungUp);
        }
        let idempotency = identity.idempotency.clone();
        let identity = AttemptIdentity {
            token: identity.token.clone(),
            idempotency: idempotency.filter(|_| request.idempotency_key.is_some()),
        };
        let (queued_sender, mut was_queued) = oneshot::channel();
        let (stay, gone) = oneshot::channel::<()>();
        let mut attempt =
            AcquireAttempt::identified(&self.engine, request, identity, Some(queued_sender));
        attempt.is_part = true;
        attempt.slot = self.slots[at].clone();
        let run = async {
            if wait.is_zero() {
                attempt.run_without_wait().await
            } else {
                attempt.run_queued(async { drop(gone.await) }).await
            }
        };
        let mut run = Box::pin(run);
        let (mut stay, mut interruption) = (Some(stay), None);
        let outcome = loop {
            let ended = tokio::select! {
                biased;
                () = &mut self.hung_up, if stay.is_some() => RoundEnd::HungUp,
                outcome = &mut run => break outcome,
                Ok(_place) = &mut was_queued, if self.queued.is_some() => {
                    if let Some(queued) = self.queued.take() {
                        // Sending fails if the caller has gone, and then no task needs to know that the request
                        // waits.
                        let _gone = queued.send(());
                    }
                    continue;
                }
                () = collected.until_lost(), if stay.is_some() => RoundEnd::Lost,
            };
            // Without `stay` the attempt leaves the queue. Its outcome may still be a lease that it was granted in
            // that instant.
            stay = None;
            interruption = Some(ended);
        };
        drop(run);
        if let Err(error) = &outcome
            && let Some(delivery) = attempt.in_doubt(error)
        {
            collected.watch(delivery);
        }
        match (outcome, interruption) {
            (Err(error @ AcquireError::Replaced), _) => Err(failed(error)),
            (outcome, Some(interruption)) => {
                if let Ok(mut granted) = outcome {
                    if granted.hash == attempt.token() {
                        collected.push(granted);
                    } else {
                        granted.delivery.join_names(self.names.iter().cloned());
                    }
                }
                Err(interruption)
            }
            (Ok(granted), None) => Ok(granted),
            (Err(AcquireError::Held { .. }), None) if !waits && !self.left().is_zero() => {
                Err(RoundEnd::Contended)
            }
            (
                Err(AcquireError::Held {
                    contention,
                    sharing,
                    ..
                }),
                None,
            ) => Err(failed(AcquireError::Held {
                contention,
                waited: self.waited(),
                sharing,
            })),
            (Err(error), None) => Err(failed(error)),
        }
    }

    /// Completes the group when all locks are acquired: renews each lease for its whole TTL.
    async fn finish(&self, mut collected: Collection) -> Result<GrantedGroup, RoundEnd> {
        collected.extend(&self.ttls).await?;
        // The authorization for a lock may have been revoked since that lock was acquired.
        let revoked = self.parts.iter().find(|it| !it.authorization.is_valid());
        if let Some(part) = revoked {
            let error = GroupAcquireError::new(&part.name, AcquireError::Revoked);
            return Err(RoundEnd::Failed(error));
        }
        let hash = collected.token();
        let Some((leases, delivery)) = collected.finish() else {
            let error = StoreError::from(Uncertainty::Interrupted);
            return Err(RoundEnd::Failed(error.into()));
        };
        Ok(GrantedGroup {
            leases,
            hash,
            waited: self.waited(),
            delivery,
        })
    }

    /// Answers the group again: the last lock is held by the lease granted under the idempotency key, so all others
    /// must be held, too.
    async fn replayed(&self, granted: Granted) -> Result<GrantedGroup, RoundEnd> {
        let Granted {
            lease,
            hash,
            mut delivery,
            recipient,
        } = granted;
        let others = self.names.iter().zip(&self.slots);
        let others: Vec<_> = others.filter(|(name, _)| **name != lease.name).collect();
        // From here on one guard watches all leases of the group, whatever the renewals show: a second guard could
        // release the other leases of an answered group.
        delivery.join_names(others.iter().map(|&(name, _)| name.clone()));
        // The request adopts every lease: a release of the group that is still under way ends none of them.
        let adopter = Renewer::Adopter(recipient);
        let renewals = others.iter().map(|(name, _)| {
            let ttl = RenewalTtl::default();
            self.engine.renew_complete(adopter, name, &hash, ttl)
        });
        let renewed = join_all(renewals).await;
        let mut leases = vec![lease.clone()];
        for ((name, slot), renewal) in others.into_iter().zip(renewed) {
            let failed = |error| RoundEnd::Failed(GroupAcquireError::new(name, error));
            match renewal {
                Ok(Renewal::Renewed(held, _)) if !held.left_at(Instant::now()).is_zero() => {
                    self.engine.leases.insert(hash, name, &held);
                    self.engine.leases.adopted_by(name, &hash, recipient);
                    self.engine.leases.charge(name, &hash, slot.clone());
                    let name = name.clone();
                    leases.push(Lease {
                        name,
                        held,
                        ..lease.clone()
                    });
                }
                Ok(Renewal::Adopted) => return Err(failed(AcquireError::Replaced)),
                Ok(Renewal::Renewed(..) | Renewal::Lost(_)) => {
                    return Err(failed(AcquireError::IdempotencyExpired));
                }
                Err(error) => return Err(failed(error.into())),
            }
        }
        leases.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(GrantedGroup {
            leases,
            hash,
            waited: self.waited(),
            delivery,
        })
    }

    /// How much of the time that the caller is willing to wait is left.
    fn left(&self) -> Duration {
        self.wait.saturating_sub(self.began.elapsed())
    }

    /// How long the caller has waited; zero if its request does not wait.
    fn waited(&self) -> Duration {
        if self.wait.is_zero() {
            Duration::ZERO
        } else {
            self.began.elapsed()
        }
    }
}
