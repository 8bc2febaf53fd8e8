//! One attempt to acquire, from its token to its outcome.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

use crate::{
    lifecycle::Lifecycle,
    lock::{FencingToken, Fingerprint, HeldLease, KeeperId, Lease, Salt, Token, TokenHash},
    store::{
        Store, StoreError, Unavailability, Uncertainty,
        contract::{
            Acquisition, Attempt, Confirmation, Contention, Idempotency, Leaving, Place, Waiting,
        },
        parking::{News, Parked},
    },
    telemetry::{
        metrics::Metrics,
        trace::{self, SpanKind},
    },
};

use super::{
    AcquireError, AcquireRequest, Delivery, Engine, Granted,
    events::Bus,
    fences::Fences,
    kept_places::KeptPlaces,
    owed::Owed,
    reaper::{Abandoned, Abandoner, Reaper},
};

/// One attempt, with what is needed to tell its caller about it and to give it back.
pub(super) struct Run {
    store: Arc<dyn Store>,
    reaper: Reaper,
    owed: Owed,
    events: Bus,
    metrics: Metrics,
    fences: Fences,
    /// The fencing token that the name had reached when the attempt began.
    fence_before: Option<FencingToken>,
    lifecycle: Lifecycle,
    reconnect_grace: Duration,
    kept_places: KeptPlaces,
    attempt: Attempt,
    token: Token,
    request: AcquireRequest,
    started: Instant,
    /// Told once, when the attempt has been queued.
    say_queued: Option<oneshot::Sender<Place>>,
    /// Whether it has been queued once: it may be so still, or hold the lock.
    was_queued: bool,
}

/// Why an attempt stops standing in the queue without having been granted the lock.
enum End {
    /// Its wait ran out, or its caller has gone and nobody hears the answer.
    WaitOver,
    /// The gateway drains.
    Draining,
    /// Its caller may not have the lock any more.
    Revoked,
}

type Outcome = Result<Granted, AcquireError>;

// === impl Run ===

impl Run {
    pub(super) fn new(
        engine: &Engine,
        request: AcquireRequest,
        say_queued: oneshot::Sender<Place>,
    ) -> Self {
        let salt = Salt::random();
        let (token, idempotency) = match &request.idempotency_key {
            None => (Token::random(), None),
            Some(key) => {
                let fingerprint = Fingerprint::of(
                    request.stated.ttl,
                    request.stated.hold_limit,
                    request.owner.as_ref(),
                    &request.metadata,
                );
                let hash = key.hash(&request.caller, &request.name);
                let token = key.derive_token(&request.caller, &request.name, &salt);
                (
                    token,
                    Some(Idempotency {
                        hash,
                        fingerprint,
                        salt,
                    }),
                )
            }
        };
        let waiting = Waiting {
            patience: request.wait,
            longest_queue: engine.most_waiters_per_name,
        };
        let attempt = Attempt {
            name: request.name.clone(),
            token: token.hash(),
            ttl: request.ttl,
            hold_limit: request.hold_limit,
            owner: request.owner.clone(),
            metadata: request.metadata.clone(),
            idempotency,
            wait: (!request.wait.is_zero()).then_some(waiting),
        };
        Self {
            store: Arc::clone(&engine.store),
            reaper: engine.reaper.clone(),
            owed: engine.owed.clone(),
            events: engine.events.clone(),
            metrics: engine.metrics.clone(),
            fences: engine.fences.clone(),
            fence_before: engine.fences.last(&request.name),
            lifecycle: engine.lifecycle.clone(),
            reconnect_grace: engine.reconnect_grace,
            kept_places: engine.kept_places.clone(),
            attempt,
            token,
            request,
            started: Instant::now(),
            say_queued: Some(say_queued),
            was_queued: false,
        }
    }

    /// What the store knows the attempt by.
    pub(super) fn token(&self) -> TokenHash {
        self.attempt.token
    }

    /// Sees the attempt through. `hung_up` ends when nobody waits for the outcome any more.
    pub(super) async fn finish(mut self, hung_up: impl Future<Output = ()>) -> Outcome {
        let mut hung_up = std::pin::pin!(hung_up);
        // Before the attempt is sent: news may overtake its answer.
        let mut parked = self.attempt.wait.map(|_| {
            self.store
                .parking()
                .park(self.attempt.name.clone(), self.attempt.token)
        });
        loop {
            let contention = match (self.store.acquire(&self.attempt).await, &mut parked) {
                (Ok(Acquisition::Queued(place)), Some(place_of_ours)) => {
                    let stood = self.stand_in_queue(place_of_ours, place, hung_up.as_mut());
                    let Some(outcome) = stood.await else {
                        continue;
                    };
                    self.metrics.waited(self.started.elapsed(), outcome.is_ok());
                    if let Some(parked) = parked {
                        self.keep_place(&outcome, parked);
                    }
                    return outcome;
                }
                (Ok(Acquisition::Queued(place)), None) => place.contention,
                (Ok(Acquisition::Held(contention)), _) => contention,
                (Ok(Acquisition::Granted(held)), _) => return Ok(self.granted(held)),
                (Ok(Acquisition::Replayed(held, salt)), _) => return Ok(self.replayed(held, &salt)),
                (Ok(Acquisition::Collected(held, salt)), _) => {
                    let collected = self.replayed(held, &salt);
                    self.events.acquired(&collected.lease);
                    return Ok(collected);
                }
                (Ok(Acquisition::QueueFull), _) => return Err(AcquireError::TooManyWaiters),
                (Ok(Acquisition::Superseded), _) => return Err(AcquireError::Superseded),
                (Ok(Acquisition::IdempotencyMismatch), _) => {
                    return Err(AcquireError::IdempotencyMismatch);
                }
                (Ok(Acquisition::IdempotencyExpired), _) => {
                    return Err(AcquireError::IdempotencyExpired);
                }
                (Err(error), _) => return Err(self.failed(error)),
            };
            return Err(self.held(contention));
        }
    }

    /// Waits for the queue's news. `None`: the queue has forgotten the attempt, which must be sent
    /// again.
    async fn stand_in_queue(
        &mut self,
        parked: &mut Parked,
        place: Place,
        hung_up: Pin<&mut impl Future<Output = ()>>,
    ) -> Option<Outcome> {
        let over = self.started + self.request.wait;
        self.was_queued = true;
        if let Some(say_queued) = self.say_queued.take() {
            let (name, owner) = (&self.attempt.name, self.attempt.owner.as_ref());
            self.events.queued(name, owner, &place);
            // Only a hold listens to it.
            drop(say_queued.send(place));
        }
        let waited = trace::child("wait in the queue", SpanKind::Internal);
        let end = tokio::select! {
            news = parked.news() => match news {
                News::Granted(held) => {
                    self.metrics.handed_over(false);
                    return Some(Ok(self.granted(held)));
                }
                News::Superseded => return Some(Err(AcquireError::Superseded)),
                News::GrantedProvisionally => match self.confirm().await {
                    Some(outcome) => return Some(outcome),
                    None => return self.ask_again(parked, over).await,
                },
                News::Forgotten => return self.ask_again(parked, over).await,
            },
            () = sleep_until(over) => End::WaitOver,
            () = hung_up => {
                self.metrics.wait_abandoned();
                End::WaitOver
            }
            () = self.lifecycle.drained() => End::Draining,
            () = self.request.warrant.ended() => End::Revoked,
        };
        drop(waited);
        Some(self.leave(&end, parked).await)
    }

    /// If the store could not be told that the place is to be kept, keeps it all the same: whoever
    /// comes back for it within the grace finds it, or what it was granted, which nobody gives back
    /// until then.
    fn keep_place(&self, outcome: &Outcome, parked: Parked) {
        let (Err(AcquireError::Store(_)), Some(idempotency)) = (outcome, &self.attempt.idempotency)
        else {
            return;
        };
        let over = Instant::now() + self.reconnect_grace;
        self.kept_places.park(idempotency.hash, over, parked);
        let (stopped, kept_places) = (self.lifecycle.stopped(), self.kept_places.clone());
        self.lifecycle.spawn_background(async move {
            tokio::select! {
                () = sleep_until(over) => kept_places.let_go(),
                () = stopped => {}
            }
        });
    }

    /// Makes a provisional grant our own; `None` if it came too late.
    async fn confirm(&self) -> Option<Outcome> {
        match self
            .store
            .confirm(&self.attempt.name, &self.attempt.token)
            .await
        {
            Ok(Confirmation::Confirmed(held)) => {
                self.metrics.handed_over(true);
                Some(Ok(self.granted(held)))
            }
            Ok(Confirmation::Lost) => None,
            Ok(Confirmation::Superseded) => Some(Err(AcquireError::Superseded)),
            Err(error) => Some(Err(self.failed(error))),
        }
    }

    async fn ask_again(&mut self, parked: &mut Parked, over: Instant) -> Option<Outcome> {
        let left = over.saturating_duration_since(Instant::now());
        match &mut self.attempt.wait {
            Some(waiting) if !left.is_zero() => {
                waiting.patience = left;
                parked.wait_again();
                None
            }
            // The store knows how things stand now, and whether it is queued after all.
            _ => Some(self.leave(&End::WaitOver, parked).await),
        }
    }

    async fn leave(&self, end: &End, parked: &mut Parked) -> Outcome {
        let keep_for = self
            .attempt
            .idempotency
            .as_ref()
            .filter(|_| !matches!(end, End::Revoked))
            .map(|_| self.reconnect_grace);
        match self
            .store
            .leave(&self.attempt.name, &self.attempt.token, keep_for)
            .await
        {
            // In time after all. If the caller has gone, the delivery gives it back.
            Ok(Leaving::Granted(held)) => Ok(self.granted(held)),
            Ok(Leaving::Superseded) => Err(AcquireError::Superseded),
            // In the same instant a newer request took its place, which may be gone by now.
            Ok(Leaving::Left(_)) if parked.news_so_far() == Some(News::Superseded) => {
                Err(AcquireError::Superseded)
            }
            Ok(Leaving::Left(contention)) => match end {
                End::WaitOver => Err(self.held(contention)),
                End::Draining => Err(AcquireError::Draining),
                End::Revoked => Err(AcquireError::Revoked),
            },
            Err(error) => Err(self.failed(error)),
        }
    }

    fn held(&self, contention: Contention) -> AcquireError {
        AcquireError::Held {
            contention,
            waited: self.waited(),
        }
    }

    /// What is known when the store has not answered a command of the attempt.
    fn failed(&self, error: StoreError) -> AcquireError {
        if self.was_queued || matches!(error, StoreError::Indeterminate(_)) {
            // It may hold the lock, or may yet come to hold it, and nobody knows its token.
            self.reaper.submit(self.abandoned());
        }
        AcquireError::Store(match error {
            // Known of the command, but not of the attempt: it may stand in the queue still.
            StoreError::Unavailable(
                why @ (Unavailability::Withdrawn | Unavailability::TooFewReplicas { .. }),
            ) => why.into(),
            StoreError::Unavailable(why) if self.was_queued => Uncertainty::LeftQueued(why).into(),
            error => error,
        })
    }

    fn granted(&self, held: HeldLease) -> Granted {
        let delivery = Delivery::of(self.reaper.clone(), self.abandoned());
        let granted = self.answer(self.token.clone(), held, delivery);
        let lease = &granted.lease;
        self.fences
            .granted(&lease.name, lease.held.fence, self.fence_before);
        self.events.acquired(lease);
        granted
    }

    fn replayed(&self, held: HeldLease, salt: &Salt) -> Granted {
        let key = self.request.idempotency_key.as_ref();
        let key = key.expect("only an attempt with a key is answered with a replay");
        let token = key.derive_token(&self.request.caller, &self.request.name, salt);
        // Its caller may have heard of it before: not ours to give back.
        self.answer(token, held, Delivery::of_replay())
    }

    fn answer(&self, token: Token, held: HeldLease, delivery: Delivery) -> Granted {
        let name = self.request.name.clone();
        self.owed.owe(token.hash(), &name, &held);
        Granted {
            lease: Lease {
                name,
                token,
                held,
                waited: self.waited(),
            },
            delivery,
            keeper: KeeperId::of_attempt(&self.attempt.token),
        }
    }

    /// How long the caller has waited; nothing if it did not ask to.
    fn waited(&self) -> Duration {
        if self.request.wait.is_zero() {
            Duration::ZERO
        } else {
            self.started.elapsed()
        }
    }

    fn abandoned(&self) -> Abandoned {
        Abandoned {
            name: self.attempt.name.clone(),
            token: self.attempt.token,
            by: match self.attempt.idempotency {
                Some(_) => Abandoner::KeyedAttempt,
                None => Abandoner::Attempt,
            },
        }
    }
}

impl Drop for Run {
    /// A panic may have come after the grant, and nobody knows the token any more.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.reaper.submit(self.abandoned());
        }
    }
}
