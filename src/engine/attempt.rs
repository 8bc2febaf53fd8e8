//! One attempt to acquire, from its token to its outcome.

use std::{future::Future, ops::ControlFlow, pin::Pin, time::Duration};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};
use tracing::warn;

use crate::{
    auth::Warrant,
    lifecycle::Lifecycle,
    lock::{CallerId, FencingToken, Fingerprint, IdempotencyKey, Salt, Token, TokenHash},
    mutants::{self, Mutant},
    store::{
        AnyStore, Store,
        contract::{Attempt, Confirmation, Idempotency, Leaving, Place, Waiting},
        parking::{News, Parked},
    },
    telemetry::{
        metrics::Metrics,
        trace::{self, SpanKind},
    },
};

use super::{
    AcquireError, AcquireRequest, Engine, Granted, events::Bus, fences::Fences,
    kept_places::KeptPlaces, owed::Owed, reaper::Reaper, unheard::Unheard,
};

/// One attempt, with what is needed to tell its caller about it and to give it back.
pub(super) struct Run {
    pub(super) store: AnyStore,
    pub(super) reaper: Reaper,
    pub(super) unheard: Unheard,
    pub(super) owed: Owed,
    pub(super) events: Bus,
    pub(super) metrics: Metrics,
    pub(super) fences: Fences,
    /// The fencing token that the name had reached when the attempt began.
    pub(super) fence_before: Option<FencingToken>,
    lifecycle: Lifecycle,
    reconnect_grace: Duration,
    kept_places: KeptPlaces,
    pub(super) attempt: Attempt,
    pub(super) token: Token,
    /// The key under which the attempt may be repeated, and whose it is.
    pub(super) repeatable: Option<(CallerId, IdempotencyKey)>,
    /// How long the caller wants to stand in the queue.
    pub(super) wait: Duration,
    warrant: Warrant,
    pub(super) started: Instant,
    /// Told once, when the attempt has been queued.
    say_queued: Option<oneshot::Sender<Place>>,
    /// Whether it has been queued once: it may be so still, or hold the lock.
    pub(super) was_queued: bool,
}

/// What ends a stretch of standing in the queue.
enum Heard {
    News(News),
    End(End),
}

/// Why an attempt stops standing in the queue without having been granted the lock.
enum End {
    /// Its wait ran out.
    WaitOver,
    /// Its caller has gone, and nobody hears the answer.
    HungUp,
    /// The gateway drains.
    Draining,
    /// Its caller may not have the lock any more.
    Revoked,
}

pub(super) type Outcome = Result<Granted, AcquireError>;

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
        let fence_before = engine.fences.last(&request.name);
        let attempt = Attempt {
            name: request.name,
            token: token.hash(),
            ttl: request.ttl,
            hold_limit: request.hold_limit,
            owner: request.owner,
            metadata: request.metadata,
            idempotency,
            wait: (!request.wait.is_zero()).then_some(waiting),
        };
        Self {
            store: engine.store.clone(),
            reaper: engine.reaper.clone(),
            unheard: engine.unheard.clone(),
            owed: engine.owed.clone(),
            events: engine.events.clone(),
            metrics: engine.metrics.clone(),
            fences: engine.fences.clone(),
            fence_before,
            lifecycle: engine.lifecycle.clone(),
            reconnect_grace: engine.reconnect_grace,
            kept_places: engine.kept_places.clone(),
            attempt,
            token,
            repeatable: request.idempotency_key.map(|key| (request.caller, key)),
            wait: request.wait,
            warrant: request.warrant,
            started: Instant::now(),
            say_queued: Some(say_queued),
            was_queued: false,
        }
    }

    /// What the store knows the attempt by.
    pub(super) fn token(&self) -> TokenHash {
        self.attempt.token
    }

    /// Whether its caller may still have the lock.
    pub(super) fn is_warranted(&self) -> bool {
        self.warrant.stands()
    }

    /// Sees the attempt through. `hung_up` ends when nobody waits for the outcome any more.
    ///
    /// Of those who wait there may be many: nothing that is done with is kept over the wait.
    pub(super) async fn finish(&mut self, hung_up: impl Future<Output = ()>) -> Outcome {
        let mut hung_up = std::pin::pin!(hung_up);
        // Before the attempt is sent: news may overtake its answer.
        let mut parked = self.attempt.wait.map(|_| {
            self.store
                .parking()
                .park(self.attempt.name.clone(), self.attempt.token)
        });
        loop {
            let answer = self.store.acquire(&self.attempt).await;
            let place = match self.decided(answer) {
                ControlFlow::Break(outcome) => return outcome,
                ControlFlow::Continue(place) => place,
            };
            let Some(place_of_ours) = &mut parked else {
                return Err(self.held(place.contention));
            };
            self.queued(place);
            let heard = self.stand_in_queue(place_of_ours, hung_up.as_mut()).await;
            let Some(outcome) = self.act_on(heard, place_of_ours).await else {
                continue;
            };
            self.metrics.waited(self.started.elapsed(), outcome.is_ok());
            if let Some(parked) = parked {
                self.keep_place(&outcome, parked);
            }
            return outcome;
        }
    }

    fn queued(&mut self, place: Place) {
        self.was_queued = true;
        if let Some(say_queued) = self.say_queued.take() {
            let (name, owner) = (&self.attempt.name, self.attempt.owner.as_ref());
            self.events.queued(name, owner, &place);
            // Only a hold listens to it.
            drop(say_queued.send(place));
        }
    }

    async fn stand_in_queue(
        &mut self,
        parked: &mut Parked,
        hung_up: Pin<&mut impl Future<Output = ()>>,
    ) -> Heard {
        let _waited = trace::child("wait in the queue", SpanKind::Internal);
        Heard::End(tokio::select! {
            news = parked.news() => return Heard::News(news),
            () = sleep_until(self.over()) => End::WaitOver,
            () = hung_up, if !mutants::is(Mutant::NoCompensation) => {
                self.metrics.wait_abandoned();
                End::HungUp
            }
            () = self.lifecycle.drained() => End::Draining,
            () = self.warrant.ended() => End::Revoked,
        })
    }

    /// `None`: the queue has forgotten the attempt, which must be sent again.
    async fn act_on(&mut self, heard: Heard, parked: &mut Parked) -> Option<Outcome> {
        match heard {
            Heard::News(News::Granted(held)) => {
                self.metrics.handed_over(false);
                Some(Ok(self.granted(held)))
            }
            Heard::News(News::Superseded) => Some(Err(AcquireError::Superseded)),
            Heard::News(News::GrantedProvisionally) => match self.confirm().await {
                Some(outcome) => Some(outcome),
                None => self.ask_again(parked).await,
            },
            Heard::News(News::Forgotten) => self.ask_again(parked).await,
            Heard::End(end) => Some(self.leave(&end, parked).await),
        }
    }

    /// When its wait is over.
    fn over(&self) -> Instant {
        self.started + self.wait
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

    async fn ask_again(&mut self, parked: &mut Parked) -> Option<Outcome> {
        let left = self.over().saturating_duration_since(Instant::now());
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
                End::WaitOver | End::HungUp => Err(self.held(contention)),
                End::Draining => Err(AcquireError::Draining),
                End::Revoked => Err(AcquireError::Revoked),
            },
            Err(error) => {
                if matches!(end, End::HungUp) {
                    // There is no answer with which it would be logged.
                    let name = &self.attempt.name;
                    warn!(%name, %error, "a caller that hung up could not be taken out of the queue yet");
                }
                Err(self.failed(error))
            }
        }
    }
}
