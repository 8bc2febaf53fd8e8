//! Makes facts from the answers of the store, and tells each to metrics, events and history.

use std::sync::Arc;

use tokio::{sync::Semaphore, time::Instant};

use crate::{
    engine::{
        Actor, LossReason,
        events::Bus,
        history::Recorder,
        leases::{LeaseRegistry, LeaseTag},
    },
    lifecycle::Lifecycle,
    lock::{LockName, ReleaseRequest, TokenHash},
    store::{
        AnyStore,
        contract::{Holder, Loss},
        history::EndedLease,
    },
    telemetry::metrics::{LeaseOutcome, Metrics, SeenBy},
};

use super::fact::{Fact, ReleasedBy};

/// Tells each fact to metrics, events and history.
///
/// An operation that learns what has become of a lease calls the method for it, which changes the registry of leases and
/// makes the fact; or it calls `tell`, if the registry stays as it is.
pub(in crate::engine) struct Facts {
    pub(in crate::engine) leases: Arc<LeaseRegistry>,
    pub(in crate::engine) metrics: Metrics,
    pub(in crate::engine) events: Bus,
    pub(in crate::engine) history: Arc<Recorder>,
    pub(in crate::engine) store: AnyStore,
    pub(in crate::engine) lifecycle: Lifecycle,
    /// Permits for messages to other gateways about leases that are gone.
    pub(in crate::engine) hints: Arc<Semaphore>,
}

/// The largest number of messages about leases that are gone that are being sent at the same time.
pub(in crate::engine) const HINTS: usize = 16;

// === impl Facts ===

impl Facts {
    /// Tells that a release with the token has ended the lease. `ended`: which lease, if the store said so.
    pub(in crate::engine) fn released(
        &self,
        name: &LockName,
        token: &TokenHash,
        ended: Option<EndedLease>,
        by: ReleasedBy<'_>,
    ) {
        // Removed before the event is published: the publisher removes the lease too, and would not tell its stream.
        let lease = self.leases.remove(name, token);
        let fact = Fact::Released(lease.as_ref(), ended, by);
        self.tell(name, Some(token.into()), fact);
        if let Some(lease) = lease {
            lease.released();
        }
    }

    /// Tells that a renewal or a release with the token has found that the lease had ended before. Nothing is told of a
    /// lease that this gateway did not know: its token may be a guess.
    pub(in crate::engine) fn gone(
        &self,
        name: &LockName,
        token: &TokenHash,
        loss: Loss,
        seen_by: Option<SeenBy>,
    ) {
        self.leases.rest(name, token, None);
        let is_gone = matches!(loss, Loss::HeldByAnother | Loss::Free);
        let was_gone = self.leases.was_gone(name, token);
        if is_gone && seen_by.is_some() && !self.leases.is_granted_here(name, token) {
            self.tell_gateways(name, token);
        }
        if was_gone == Some(false)
            && let Some(lease) = self.leases.lose(name, token, is_gone)
        {
            let fact = Fact::Gone(Box::new(lease), loss, seen_by);
            self.tell(name, Some(token.into()), fact);
        }
    }

    /// Tells all gateways that a lease is gone, because the gateway that has granted it may not know that.
    fn tell_gateways(&self, name: &LockName, token: &TokenHash) {
        // A caller that sends many wrong tokens must not make many messages.
        let Ok(permit) = Arc::clone(&self.hints).try_acquire_owned() else {
            return;
        };
        let (store, name, token) = (self.store.clone(), name.clone(), *token);
        self.lifecycle.spawn_background(async move {
            if let Some(relay) = store.relay() {
                drop(relay.tell_lost(&name, &token).await);
            }
            drop(permit);
        });
    }

    /// Tells that another gateway has ended the lease, if this gateway knew it.
    pub(in crate::engine) fn ended_elsewhere(&self, name: &LockName, lease: impl Into<LeaseTag>) {
        if let Some(lease) = self.leases.remove(name, lease) {
            self.tell(name, None, Fact::EndedElsewhere(&lease));
        }
    }

    /// Tells that a break has ended the leases of this holder.
    pub(in crate::engine) fn broken(
        &self,
        name: &LockName,
        holder: &Holder,
        reason: &str,
        by: Option<&Actor>,
    ) {
        if let Holder::Lease(lease) = holder
            && lease.is_reserved_by(by.and_then(Actor::mark))
        {
            // The end of one's own reservation is a release, for which no token is kept.
            return self.tell(name, None, Fact::Unreserved(lease, by, reason));
        }
        // An answer about many shared leases does not show all of them.
        self.metrics.lock_broken(holder.holders());
        let is_foreign = matches!(holder, Holder::Foreign { .. });
        let leases = holder.leases().iter().map(Some);
        for lease in leases.chain(is_foreign.then_some(None)) {
            self.tell(name, None, Fact::Broken(lease, by, reason));
        }
    }

    /// Tells that a caller has sent a release request to these holders of the lock.
    pub(in crate::engine) fn release_requested(
        &self,
        name: &LockName,
        holder: &Holder,
        request: &ReleaseRequest,
        by: Option<&Actor>,
    ) {
        self.metrics.release_requested(holder.holders());
        // A rest has no holder who could be asked to release it.
        for lease in holder.leases().iter().filter(|lease| !lease.is_resting) {
            self.tell(name, None, Fact::ReleaseRequested(lease, request, by));
        }
    }

    /// Tells a fact about a lock to metrics, events and history. `lease`: the tag of the lease, if its token is known.
    pub(in crate::engine) fn tell(&self, name: &LockName, lease: Option<LeaseTag>, fact: Fact<'_>) {
        self.count(&fact);
        self.events.hear(name, lease, &fact);
        self.history.hear(name, fact);
    }

    fn count(&self, fact: &Fact<'_>) {
        let metrics = &self.metrics;
        match fact {
            Fact::Acquired(lease) if lease.held.mode.is_shared() => metrics.granted_shared(),
            Fact::Released(_, _, ReleasedBy::Gateway(_)) => metrics.given_back(),
            Fact::Released(lease, ..) => {
                let held = lease.map(|lease| lease.since.elapsed());
                metrics.released(LeaseOutcome::Done, held);
            }
            Fact::Unreserved(lease, ..) => {
                metrics.released(LeaseOutcome::Done, Some(lease.held_for));
            }
            // A lease whose time is not over at its release was most likely released at another gateway, whose answer
            // was lost.
            Fact::Gone(lease, Loss::HeldByAnother | Loss::Free, Some(seen_by))
                if *seen_by != SeenBy::Release || lease.until <= Instant::now() =>
            {
                metrics.expired_while_held(*seen_by);
            }
            Fact::StreamLost(_, LossReason::Expired) => {
                metrics.expired_while_held(SeenBy::Stream);
            }
            Fact::StaleWriteRefused(..) => metrics.stale_write_refused(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        engine::{
            events::ListenerItem,
            tests::scripted_store::{ScriptedStore, engine_on, granted, held, name, settle},
        },
        lock::{NamePrefix, Token},
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_release_is_told_with_its_reason_and_the_fencing_token_that_is_known() {
        let (_, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
        let mut listener = engine.listen(NamePrefix::default(), None).unwrap();
        settle().await;
        let fence = held().fence;
        let ended = Some(EndedLease {
            fence,
            held_for: None,
            may_rest: false,
        });
        let unread = Some(LossReason::Unread);
        let holder = ReleasedBy::Holder(None, None);
        // Whether the lease is listed, what the store says, who released it, and the event: whether it has a fencing
        // token, and its reason.
        let releases = [
            (true, None, holder, Some((true, None))),
            (false, ended, holder, Some((true, None))),
            (false, None, holder, Some((false, None))),
            (
                true,
                None,
                ReleasedBy::Holder(None, unread),
                Some((true, Some("unread"))),
            ),
            (
                true,
                None,
                ReleasedBy::Gateway(None),
                Some((true, Some("abandoned"))),
            ),
            (
                false,
                ended,
                ReleasedBy::Gateway(unread),
                Some((true, Some("unread"))),
            ),
            (false, None, ReleasedBy::Gateway(None), None),
        ];
        for (is_listed, ended, by, _) in releases {
            let token = Token::random().hash();
            if is_listed {
                engine.0.leases.insert(token, &name(), &held());
            }
            engine.0.facts.released(&name(), &token, ended, by);
            assert!(!engine.has_lease(&name(), &token));
        }
        let ListenerItem::Events(events) = listener.next().await else {
            panic!("the listener is told");
        };
        let told = events.iter().map(|(_, event)| {
            let fence = event.fence.inspect(|it| assert_eq!(*it, held().fence));
            (fence.is_some(), event.reason.as_deref())
        });
        let expected = releases.iter().filter_map(|(.., event)| *event);
        assert!(told.eq(expected), "{events:?}");
        let counted = engine.metrics().text(&engine.figures());
        for line in [
            "latchgate_releases_total{outcome=\"released\"} 4\n",
            "latchgate_given_back_grants_total 3\n",
        ] {
            assert!(counted.contains(line), "{line} {counted}");
        }
    }
}
