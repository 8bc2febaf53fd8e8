//! Takes the locks of a group one after the other.
//!
//! The locks are taken in the order of their names, so that groups cannot wait for each other in a circle. While one
//! is waited for, those before it are held, for a short time each and renewed. A part that is lost meanwhile means to
//! begin again: its lock may be held by a group that waits for a later one. Everything is then given back, and the next
//! round has a token of its own, because an attempt that was given back is never granted under its token.
//!
//! The last lock has the idempotency key, and its lease decides about the whole group. While a group is collected that
//! lease has a TTL that it has not afterwards. It is renewed for as long as was asked for when all others have been, by
//! its keeper alone, and then the group is finished and answered. So whoever asks under the key is told by that lease:
//!
//! - It is finished: the whole group is answered again. If another part has been lost since, the group has ended.
//! - It is not: nobody was answered the group, and nobody else can finish it now, because who asks is the keeper
//!   from then on. So whoever asks goes on with the group, or gives it back without using the key.
//!
//! Whatever is given back of a group begins with that lease, and if another request goes on with it the rest stays.
//!
//! A request with a key asks for the last lock first, and for the others if it gets that, backwards and without waiting for
//! any: this finds the group that lives under the key. If they are not all free it begins anew, in order.

use std::{convert::Infallible, sync::Arc, time::Duration};

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
        reaper::GivenBack,
        start::EngineShared,
    },
    lock::{GroupNames, Lease, Ttl},
    store::{
        Store, StoreError, Uncertainty,
        contract::{GiveBack, Renewal, RenewalTtl, Renewer},
    },
};

use super::{
    collection::{Collection, RoundEnd},
    request::{GrantedGroup, GroupAcquireError, GroupRequest},
};

/// A request for a group, until it is answered.
pub(super) struct Collector {
    engine: Arc<EngineShared>,
    names: GroupNames,
    /// In the order of the names.
    parts: Vec<AcquireRequest>,
    /// The slots of the leases among those of the API key, in the order of the names.
    slots: Vec<Option<LeaseSlot>>,
    /// For how long the leases are granted when all are taken.
    ttl: Ttl,
    began: Instant,
    wait: Duration,
    hung_up: CallerGone,
    /// Told once, when the request waits.
    queued: Option<oneshot::Sender<()>>,
    /// Every lease that was taken has a copy of it until the store was asked to end it.
    given_back: GivenBack,
    all_given_back: mpsc::Receiver<Infallible>,
}

/// For how long a lock is held at most while others are waited for, in ms: what a killed gateway leaves behind.
const COLLECTING: u64 = 10_000;
/// How long a caller waits at most until what was taken is given back: as long as a command of Redis may take by default.
const GIVE_BACK: Duration = Duration::from_secs(5);

// === impl Engine ===

impl Engine {
    /// Acquires several locks, all or none, and waits for them if the request says so. `queued` is called when it is
    /// known that there is a wait.
    ///
    /// If the caller drops this future while the locks are taken, a task of its own gives back what it has. Once all
    /// are taken they are given back as a lease of one lock is: with an idempotency key after the reconnect grace.
    pub fn acquire_group<Q: FnOnce() + Send>(
        &self,
        request: GroupRequest,
        queued: Q,
    ) -> impl Future<Output = Result<GrantedGroup, GroupAcquireError>> + Send + use<Q> {
        let first = request.keyed();
        let begun = self.may_begin(first);
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
        let (ttl, wait) = (first.ttl, first.wait);
        let group = names.group();
        for part in &mut parts {
            part.ttl = collecting(ttl);
            part.metadata = part.metadata.of_group(&group);
        }
        let (given_back, all_given_back) = mpsc::channel(1);
        Self {
            engine,
            names,
            parts,
            slots,
            ttl,
            began: Instant::now(),
            wait,
            hung_up,
            queued: Some(queued),
            given_back,
            all_given_back,
        }
    }

    /// A caller that is refused hears it when what was taken has been given back: it may ask for these locks next, or for
    /// others, and nobody should find them held by it.
    pub(super) async fn run(mut self) -> Result<GrantedGroup, GroupAcquireError> {
        let outcome = self.collect().await;
        let Self {
            given_back,
            mut all_given_back,
            ..
        } = self;
        drop(given_back);
        if outcome.is_err() {
            // What is left goes on without the caller.
            drop(timeout(GIVE_BACK, all_given_back.recv()).await);
        }
        outcome
    }

    async fn collect(&mut self) -> Result<GrantedGroup, GroupAcquireError> {
        let last = self.parts.len() - 1;
        let order: Vec<_> = (0..=last).collect();
        if self.parts[last].idempotency_key.is_some() {
            // All requests with a key do that, so one of several that overlap gets its locks.
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

    /// No finished group lives under the key, and the next round asks for leases of its own: until they are granted the slots
    /// count as taken.
    fn ask_again(&self) {
        for slot in self.slots.iter().flatten() {
            slot.ask_again();
        }
    }

    /// Takes all locks in this order.
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
                    // Goes on where another request under the key has not come to an end.
                    is_adopted = true;
                    identity.token = granted.lease.token.clone();
                    collected = Collection::new(&self.engine, granted.hash, &self.given_back);
                    break granted;
                }
                // The other request cannot have the locks that are held here.
                self.end_unfinished(granted).await?;
            };
            collected.push(granted);
            if is_adopted {
                // What the other request has taken, or is about to take.
                collected.watch_names(self.names.iter().cloned());
            }
        }
        self.finish(collected).await
    }

    /// Gives back what another round under the key has taken and not answered, so that this one can take it.
    async fn end_unfinished(&self, granted: Granted) -> Result<(), RoundEnd> {
        let (store, name) = (&self.engine.store, &granted.lease.name);
        let given_back = store.give_back_unanswered(name, &granted.hash, granted.keeper);
        let outcome = given_back.await.map_err(|error| {
            let error = GroupAcquireError::of(name, error.into());
            RoundEnd::Failed(error)
        })?;
        let listed = self.engine.leases.remove(name, &granted.hash);
        if outcome == GiveBack::GivenBack {
            self.engine.metrics.given_back();
            if listed.is_some() {
                self.engine.events.given_back(name, &granted.hash, None);
            }
        }
        granted.delivery.delivered();
        Ok(())
    }

    /// A token for one round, and what the store keeps of the idempotency key.
    fn identity(&self) -> AttemptIdentity {
        let keyed = self.parts.last().expect("a group has at least 2 names");
        let mut identity = AttemptIdentity::of(keyed);
        if let Some(idempotency) = &mut identity.idempotency {
            idempotency.fingerprint = idempotency.fingerprint.of_group(&self.names);
        }
        identity
    }

    /// Takes one lock, while those that were taken before are kept.
    async fn take(
        &mut self,
        at: usize,
        identity: &AttemptIdentity,
        waits: bool,
        collected: &mut Collection,
    ) -> Result<Granted, RoundEnd> {
        let wait = if waits { self.left() } else { Duration::ZERO };
        let request = AcquireRequest {
            wait,
            ..self.parts[at].clone()
        };
        let name = request.name.clone();
        let failed = |error| RoundEnd::Failed(GroupAcquireError::of(&name, error));
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
                        // Nobody listens: the caller has gone.
                        let _gone = queued.send(());
                    }
                    continue;
                }
                () = collected.until_lost(), if stay.is_some() => RoundEnd::Lost,
            };
            // The attempt leaves the queue, and says what it was granted in that instant.
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
            (Err(error @ AcquireError::Superseded), _) => Err(failed(error)),
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

    /// All locks are taken: makes the leases last as long as was asked for.
    async fn finish(&self, mut collected: Collection) -> Result<GrantedGroup, RoundEnd> {
        collected.extend(self.ttl).await?;
        // It may have been revoked for a lock that was taken long ago.
        let revoked = self.parts.iter().find(|it| !it.authorization.is_valid());
        if let Some(part) = revoked {
            let error = GroupAcquireError::of(&part.name, AcquireError::Revoked);
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

    /// The last lock is held by the lease that was granted under the idempotency key, so all others must be.
    async fn replayed(&self, granted: Granted) -> Result<GrantedGroup, RoundEnd> {
        let Granted {
            lease,
            hash,
            mut delivery,
            ..
        } = granted;
        let others = self.names.iter().zip(&self.slots);
        let others: Vec<_> = others.filter(|(name, _)| **name != lease.name).collect();
        // Whatever comes of it, nobody else may be left who watches over them.
        delivery.join_names(others.iter().map(|&(name, _)| name.clone()));
        let renewals = others.iter().map(|(name, _)| {
            let store = &self.engine.store;
            store.renew_as(Renewer::Bearer, name, &hash, RenewalTtl::default())
        });
        let renewed = join_all(renewals).await;
        let mut leases = vec![lease.clone()];
        for ((name, slot), renewal) in others.into_iter().zip(renewed) {
            let failed = |error| RoundEnd::Failed(GroupAcquireError::of(name, error));
            match renewal {
                Ok(Renewal::Renewed(held, _)) if !held.left_at(Instant::now()).is_zero() => {
                    self.engine.leases.insert(hash, name, &held);
                    self.engine.leases.answered(name, &hash);
                    self.engine.leases.charge(name, &hash, slot.clone());
                    let name = name.clone();
                    leases.push(Lease {
                        name,
                        held,
                        ..lease.clone()
                    });
                }
                Ok(Renewal::Renewed(..) | Renewal::Adopted | Renewal::Lost(_)) => {
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

    /// What is left of the wait.
    fn left(&self) -> Duration {
        self.wait.saturating_sub(self.began.elapsed())
    }

    /// How long the caller has waited; nothing if it did not ask to.
    fn waited(&self) -> Duration {
        if self.wait.is_zero() {
            Duration::ZERO
        } else {
            self.began.elapsed()
        }
    }
}

/// The TTL of the locks of a group that is not finished: one that no finished group of the same request has.
fn collecting(ttl: Ttl) -> Ttl {
    let brief = |ms| Ttl::from_millis(ms).ok();
    let ms = ttl.as_millis().min(COLLECTING);
    let unlike = brief(ms - 1).or_else(|| brief(ms + 1));
    unlike.expect("a millisecond more than the shortest TTL is one")
}
