//! One attempt to acquire, from its token to its outcome.

use std::{future::Future, ops::ControlFlow, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};
use tracing::warn;

use crate::{
    auth::Authorization,
    lock::{CallerId, FencingToken, Fingerprint, IdempotencyKey, Salt, Token, TokenHash},
    store::{
        Store,
        contract::{Attempt, Confirmation, Idempotency, Leaving, QueuePosition, Waiting},
        parking::{News, Parked},
    },
    telemetry::trace::{self, SpanKind},
};

use super::{AcquireError, AcquireRequest, Granted, metric_outcomes, start::EngineShared};

/// One attempt, with what is needed to tell its caller about it and to give it back.
pub(super) struct AcquireAttempt {
    pub(super) engine: Arc<EngineShared>,
    /// The fencing token that the name had reached when the attempt began.
    pub(super) fence_before: Option<FencingToken>,
    pub(super) attempt: Attempt,
    pub(super) token: Token,
    /// The key under which the attempt may be repeated, and whose it is.
    pub(super) repeatable: Option<(CallerId, IdempotencyKey)>,
    /// How long the caller wants to stand in the queue.
    pub(super) wait: Duration,
    authorization: Authorization,
    pub(super) started: Instant,
    /// Told once, when the attempt has been queued; none if it does not wait.
    queued_sender: Option<oneshot::Sender<QueuePosition>>,
    /// Whether it has been queued once: it may be so still, or hold the lock.
    pub(super) was_queued: bool,
}

/// What ends a stretch of standing in the queue.
enum Interruption {
    News(News),
    End(WaitEnd),
}

/// Why an attempt stops standing in the queue without having been granted the lock.
enum WaitEnd {
    /// Its wait ran out.
    WaitOver,
    /// Its caller has gone, and nobody hears the answer.
    HungUp,
    /// The gateway drains.
    Draining,
    /// Its caller may not have the lock any more.
    Revoked,
}

pub(super) type AcquireResult = Result<Granted, AcquireError>;

// === impl AcquireAttempt ===

impl AcquireAttempt {
    pub(super) fn new(
        engine: &Arc<EngineShared>,
        request: AcquireRequest,
        queued_sender: Option<oneshot::Sender<QueuePosition>>,
    ) -> Self {
        let (token, idempotency) = match &request.idempotency_key {
            None => (Token::random(), None),
            Some(key) => {
                let salt = Salt::random();
                let fingerprint = Fingerprint::of(
                    request.explicit.ttl,
                    request.explicit.hold_limit,
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
            max_wait: request.wait,
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
            engine: Arc::clone(engine),
            fence_before,
            attempt,
            token,
            repeatable: request.idempotency_key.map(|key| (request.caller, key)),
            wait: request.wait,
            authorization: request.authorization,
            started: Instant::now(),
            queued_sender,
            was_queued: false,
        }
    }

    /// What the store knows the attempt by.
    pub(super) fn token(&self) -> TokenHash {
        self.attempt.token
    }

    /// The outcome of an attempt that does not wait.
    pub(super) async fn run_without_wait(&self) -> AcquireResult {
        let answer = self.engine.store.acquire(&self.attempt).await;
        let outcome = match self.decided(answer) {
            ControlFlow::Break(outcome) => outcome,
            ControlFlow::Continue(place) => Err(self.held(place.contention)),
        };
        self.record_outcome(outcome)
    }

    /// The outcome of an attempt that waits. `hung_up` ends when nobody waits for it any more.
    ///
    /// Of those who wait there may be many: nothing that is done with is kept over the wait, so the commands
    /// of the store are in boxes.
    pub(super) async fn run_queued(&mut self, hung_up: impl Future<Output = ()>) -> AcquireResult {
        let mut hung_up = std::pin::pin!(hung_up);
        // Before the attempt is sent: news may overtake its answer.
        let (name, token) = (self.attempt.name.clone(), self.attempt.token);
        let mut parked = self.engine.store.parking().park(name, token);
        loop {
            let answer = Box::pin(self.engine.store.acquire(&self.attempt)).await;
            let place = match self.decided(answer) {
                ControlFlow::Break(outcome) => return self.record_outcome(outcome),
                ControlFlow::Continue(place) => place,
            };
            self.queued(place);
            let interruption = self.wait_in_queue(&mut parked, hung_up.as_mut()).await;
            let Some(outcome) = self.handle_interruption(interruption, &mut parked).await else {
                continue;
            };
            let waited = self.started.elapsed();
            self.engine.metrics.waited(waited, outcome.is_ok());
            self.reserve_position(&outcome, parked);
            return self.record_outcome(outcome);
        }
    }

    /// What the caller is told, and what is counted.
    fn record_outcome(&self, outcome: AcquireResult) -> AcquireResult {
        let outcome = outcome.and_then(|granted| {
            if self.authorization.is_valid() {
                Ok(granted)
            } else {
                // Dropped, it is given back.
                Err(AcquireError::Revoked)
            }
        });
        self.engine
            .metrics
            .acquired(metric_outcomes::acquire_outcome(&outcome));
        outcome
    }

    fn queued(&mut self, place: QueuePosition) {
        self.was_queued = true;
        if let Some(queued_sender) = self.queued_sender.take() {
            let (name, owner) = (&self.attempt.name, self.attempt.owner.as_ref());
            self.engine.events.queued(name, owner, &place);
            // Only a hold listens to it.
            drop(queued_sender.send(place));
        }
    }

    async fn wait_in_queue(
        &mut self,
        parked: &mut Parked,
        hung_up: Pin<&mut impl Future<Output = ()>>,
    ) -> Interruption {
        let _waited = trace::child("wait in the queue", SpanKind::Internal);
        Interruption::End(tokio::select! {
            news = parked.news() => return Interruption::News(news),
            () = sleep_until(self.wait_deadline()) => WaitEnd::WaitOver,
            () = hung_up => {
                self.engine.metrics.wait_abandoned();
                WaitEnd::HungUp
            }
            () = self.engine.lifecycle.drained() => WaitEnd::Draining,
            () = self.authorization.revoked() => WaitEnd::Revoked,
        })
    }

    /// `None`: the queue has forgotten the attempt, which must be sent again.
    async fn handle_interruption(
        &mut self,
        interruption: Interruption,
        parked: &mut Parked,
    ) -> Option<AcquireResult> {
        match interruption {
            Interruption::News(News::Granted(held)) => {
                self.engine.metrics.handed_over(false);
                Some(Ok(self.granted(held)))
            }
            Interruption::News(News::Superseded) => Some(Err(AcquireError::Superseded)),
            Interruption::News(News::GrantedProvisionally) => match self.confirm().await {
                Some(outcome) => Some(outcome),
                None => self.resend(parked).await,
            },
            Interruption::News(News::Forgotten) => self.resend(parked).await,
            Interruption::End(end) => Some(self.leave(&end, parked).await),
        }
    }

    /// When its wait is over.
    fn wait_deadline(&self) -> Instant {
        self.started + self.wait
    }

    /// If the store could not be told that the place is to be kept, keeps it all the same: whoever
    /// comes back for it within the grace finds it, or what it was granted, which nobody gives back
    /// until then.
    fn reserve_position(&self, outcome: &AcquireResult, parked: Parked) {
        let (Err(AcquireError::Store(_)), Some(idempotency)) = (outcome, &self.attempt.idempotency)
        else {
            return;
        };
        let over = Instant::now() + self.engine.reconnect_grace;
        self.engine
            .reserved_positions
            .park(idempotency.hash, over, parked);
        let (stopped, engine) = (self.engine.lifecycle.stopped(), Arc::clone(&self.engine));
        self.engine.lifecycle.spawn_background(async move {
            tokio::select! {
                () = sleep_until(over) => engine.reserved_positions.remove_expired(),
                () = stopped => {}
            }
        });
    }

    /// Makes a provisional grant our own; `None` if it came too late.
    async fn confirm(&self) -> Option<AcquireResult> {
        let Attempt { name, token, .. } = &self.attempt;
        match Box::pin(self.engine.store.confirm(name, token)).await {
            Ok(Confirmation::Confirmed(held)) => {
                self.engine.metrics.handed_over(true);
                Some(Ok(self.granted(held)))
            }
            Ok(Confirmation::Lost) => None,
            Ok(Confirmation::Superseded) => Some(Err(AcquireError::Superseded)),
            Err(error) => Some(Err(self.failed(error))),
        }
    }

    async fn resend(&mut self, parked: &mut Parked) -> Option<AcquireResult> {
        let left = self
            .wait_deadline()
            .saturating_duration_since(Instant::now());
        match &mut self.attempt.wait {
            Some(waiting) if !left.is_zero() => {
                waiting.max_wait = left;
                parked.rearm();
                None
            }
            // The store knows how things stand now, and whether it is queued after all.
            _ => Some(self.leave(&WaitEnd::WaitOver, parked).await),
        }
    }

    async fn leave(&self, end: &WaitEnd, parked: &mut Parked) -> AcquireResult {
        let keep_for = self
            .attempt
            .idempotency
            .as_ref()
            .filter(|_| !matches!(end, WaitEnd::Revoked))
            .map(|_| self.engine.reconnect_grace);
        let Attempt { name, token, .. } = &self.attempt;
        match Box::pin(self.engine.store.leave(name, token, keep_for)).await {
            // In time after all. If the caller has gone, the delivery gives it back.
            Ok(Leaving::Granted(held)) => Ok(self.granted(held)),
            Ok(Leaving::Superseded) => Err(AcquireError::Superseded),
            // In the same instant a newer request took its place, which may be gone by now.
            Ok(Leaving::Left(_)) if parked.try_news() == Some(News::Superseded) => {
                Err(AcquireError::Superseded)
            }
            Ok(Leaving::Left(contention)) => match end {
                WaitEnd::WaitOver | WaitEnd::HungUp => Err(self.held(contention)),
                WaitEnd::Draining => Err(AcquireError::Draining),
                WaitEnd::Revoked => Err(AcquireError::Revoked),
            },
            Err(error) => {
                if matches!(end, WaitEnd::HungUp) {
                    // There is no answer with which it would be logged.
                    warn!(%name, %error, "a caller that hung up could not be taken out of the queue yet");
                }
                Err(self.failed(error))
            }
        }
    }
}
