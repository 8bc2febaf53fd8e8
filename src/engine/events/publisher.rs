//! The task that receives the events of operations, and passes them on to listeners.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use futures_util::{
    StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    lifecycle::Lifecycle,
    store::{
        AnyStore, StoreError,
        contract::{FenceCheck, FenceQuery},
    },
};

use super::{
    super::{
        facts::{Fact, Facts},
        leases::RunOutLease,
    },
    event::{Event, EventKind, EventMessage},
    known_leases::KnownLeases,
    relay::{Outbox, SubscriptionEvent, subscribe},
    subscribers::BusShared,
};

/// The task that receives the events of operations, and passes them on to listeners. Also asks the store what became of
/// leases that have run out, for listeners and for the history.
///
/// Without any listener and without a history the task sleeps, without a timer.
pub(in crate::engine) struct Publisher {
    shared: Arc<BusShared>,
    inbox: mpsc::Receiver<EventMessage>,
    store: AnyStore,
    facts: Arc<Facts>,
    /// Whether the task publishes: there is a listener here or at another gateway.
    active: bool,
    /// Until when another gateway has a listener, as far as this gateway knows.
    interest_until: Option<Instant>,
    /// When the other gateways are next asked to send their events; `None` without a listener here.
    request_at: Option<Instant>,
    /// The batch that is being sent. Only one is sent at a time, so that batches arrive in order.
    sending: Option<BoxFuture<'static, Result<(), StoreError>>>,
    asking: Option<BoxFuture<'static, Result<(), StoreError>>>,
    /// When the leases of this gateway are next looked through.
    look_at: Option<Instant>,
    /// The answers of the store about the leases that have run out.
    checks: Option<BoxStream<'static, (RunOutLease, Result<FenceCheck, StoreError>)>>,
    /// How many of the checks have failed.
    failed: usize,
    state: ActiveState,
}

/// The state that the publisher has only while there is a listener at any gateway.
#[derive(Default)]
struct ActiveState {
    known: KnownLeases,
    outbox: Outbox,
    /// The subscription to the events of other gateways; `None` if the store has no other gateways.
    subscription: Option<BoxStream<'static, SubscriptionEvent>>,
    is_subscribed: bool,
    /// Whether events of other gateways were missed because the connection to the store was lost.
    missed_events: bool,
    /// Since when this gateway hears of the ends of leases at all gateways; `None` while it may miss some.
    hears_ends_since: Option<Instant>,
}

/// Whether an event happened at this gateway or at another gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventOrigin {
    Here,
    Elsewhere,
}

/// How many events the publisher processes before it does other work.
const AT_ONCE: usize = 256;
/// How often the leases of this gateway are looked through, for leases whose TTL has run out and for new ones.
const LOOK_PERIOD: Duration = Duration::from_millis(500);
/// How long after a lease's end the store is asked about it: later than an event of its release that is on its way.
const GRACE: Duration = Duration::from_millis(250);
/// About how many leases the store is asked at once. After as many failures, the other questions would most likely fail
/// too, each after a while, so they are asked again at the next look.
const CHECKS: usize = 16;
/// How often other gateways are asked to send their events, and how long each request is valid: two of these messages
/// may get lost.
const ASK: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(10));
/// How soon other gateways are asked again if they cannot be reached.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How long the last questions to the store may take when the gateway stops, and then sending the last batch: together
/// less than the time that background tasks have at a stop whose other time is used up.
const LAST: (Duration, Duration) = (Duration::from_millis(300), Duration::from_millis(400));

// === impl Publisher ===

impl Publisher {
    /// Starts the publisher, which sleeps until there is a listener, unless there is a history.
    pub(in crate::engine) fn start(
        inbox: mpsc::Receiver<EventMessage>,
        store: AnyStore,
        facts: Arc<Facts>,
        lifecycle: &Lifecycle,
    ) {
        let publisher = Self {
            shared: Arc::clone(&facts.events.0),
            inbox,
            store,
            look_at: facts.leases.is_recorded().then(Instant::now),
            facts,
            active: false,
            interest_until: None,
            request_at: None,
            sending: None,
            asking: None,
            checks: None,
            failed: 0,
            state: ActiveState::default(),
        };
        let stopped = lifecycle.stopped();
        lifecycle.spawn_background(async move { publisher.run(stopped).await });
    }

    /// Publishes events until `stopped` ends, which is when the gateway stops.
    async fn run(mut self, stopped: impl Future<Output = ()>) {
        let mut stopped = std::pin::pin!(stopped);
        let store = self.store.clone();
        let mut batch = Vec::new();
        loop {
            let due = self.next_due();
            let asked = async {
                match store.relay() {
                    Some(relay) => relay.asked().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.inbox.recv_many(&mut batch, AT_ONCE) => {}
                Some(event) = next_of(&mut self.state.subscription) => self.on_subscription_event(event),
                lasts = asked => self.interest_until = Some(Instant::now() + lasts),
                () = self.shared.changed.notified() => {}
                checked = next_of(&mut self.checks) => self.on_checked(checked),
                sent = finished(&mut self.sending) => {
                    // The batch of events is not sent again, because it may have arrived; the other gateways are told
                    // of a gap.
                    if sent.is_err() && self.interest_until.is_some() {
                        self.state.outbox.mark_gap();
                    }
                }
                asked = finished(&mut self.asking) => self.on_requested(&asked),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                () = &mut stopped => return self.finish(batch).await,
            }
            self.update_activity();
            for news in batch.drain(..) {
                self.handle(news, EventOrigin::Here);
            }
            if self.active {
                self.run_due();
            }
            self.look(GRACE);
        }
    }

    /// When the task must wake up even if no event comes.
    fn next_due(&self) -> Option<Instant> {
        let look_at = self.look_at.filter(|_| self.checks.is_none());
        if !self.active {
            return look_at;
        }
        let idle = self.sending.is_none();
        let times = [
            self.state.outbox.due().filter(|_| idle),
            look_at,
            self.request_at.filter(|_| self.asking.is_none()),
            self.interest_until,
            self.shared.subscribers.lock().cleared_at(),
        ];
        times.into_iter().flatten().min()
    }

    fn update_activity(&mut self) {
        let now = Instant::now();
        self.interest_until = self.interest_until.filter(|&until| until > now);
        let mut subscribers = self.shared.subscribers.lock();
        subscribers.clear_if_idle(now);
        let here = subscribers.is_recording;
        let wanted = here || self.interest_until.is_some();
        // The flag is set while the subscribers are locked, so that no listener is added in between.
        self.shared.wanted.store(wanted, Ordering::Relaxed);
        drop(subscribers);
        let has_others = self.store.relay().is_some();
        if here && has_others {
            self.request_at.get_or_insert(now);
        } else {
            self.request_at = None;
        }
        if wanted && !self.active {
            // The state begins empty: an event that came without a listener may have added a lease, which would then
            // be known twice.
            self.state = ActiveState {
                subscription: has_others.then(|| subscribe(self.store.clone())),
                hears_ends_since: (!has_others).then_some(now),
                ..ActiveState::default()
            };
            self.look_at.get_or_insert(now + LOOK_PERIOD);
            self.facts.leases.keep_run_out(true);
            // The leases of this gateway become known, although some may have ended at another gateway without an
            // event here.
            let known = &mut self.state.known;
            self.facts
                .leases
                .for_each_active(|(tag, name), lease| known.track(*tag, name, lease));
        }
        if !wanted && self.active {
            self.state = ActiveState::default();
            self.look_at = self.look_at.filter(|_| self.facts.leases.is_recorded());
            self.facts.leases.keep_run_out(false);
            self.shared.overflowed.store(false, Ordering::Relaxed);
        }
        self.active = wanted;
    }

    /// Does all work of the publisher that is due: asks other gateways for events, and sends them the events from here.
    fn run_due(&mut self) {
        let now = Instant::now();
        // A gap is reported only when no event is queued, so that a listener that inspects the locks at the gap has
        // seen all earlier events.
        if self.inbox.is_empty() && self.shared.overflowed.swap(false, Ordering::Relaxed) {
            let gap = Event::gap("too-many", self.shared.clock.wall());
            self.handle(gap.into(), EventOrigin::Here);
        }
        if self.request_at.is_some_and(|at| at <= now) && self.asking.is_none() {
            self.request_at = Some(now + ASK.0);
            let store = self.store.clone();
            self.asking = Some(Box::pin(async move {
                match store.relay() {
                    Some(relay) => relay.ask(ASK.1).await,
                    None => Ok(()),
                }
            }));
        }
        if self.state.outbox.due().is_some_and(|due| due <= now) && self.sending.is_none() {
            let batch = self.state.outbox.take(self.shared.clock.wall());
            self.sending = Some(Box::pin(send(self.store.clone(), batch)));
        }
    }

    /// Looks through the leases of this gateway, if that is due, and asks the store about leases that have run out or
    /// that the history will record, about a limited number at once. `grace`: for how long a lease must have run out.
    fn look(&mut self, grace: Duration) {
        let now = Instant::now();
        if self.checks.is_some() || self.look_at.is_none_or(|at| at > now) {
            return;
        }
        (self.look_at, self.failed) = (Some(now + LOOK_PERIOD), 0);
        let before = now.checked_sub(grace).unwrap_or(now);
        let run_out = self.facts.leases.look(before, self.state.hears_ends_since);
        if !run_out.is_empty() {
            let store = self.store.clone();
            let check = move |lease: RunOutLease| {
                let store = store.clone();
                async move {
                    let found = store.check_fence(&lease.query).await;
                    (lease, found)
                }
            };
            let checks = stream::iter(run_out).map(check);
            self.checks = Some(checks.buffer_unordered(CHECKS).boxed());
        }
    }

    /// Processes an event of this or another gateway, and passes it on to listeners.
    fn handle(&mut self, mut news: EventMessage, origin: EventOrigin) {
        // The event is sent as it was published, because each gateway completes it from its own data.
        let is_shared = news.event.kind != EventKind::StoreChanged;
        if origin == EventOrigin::Here && is_shared && self.interest_until.is_some() {
            self.state.outbox.put(&news);
        }
        let (name, kind) = (news.event.name.clone(), news.event.kind);
        if let (EventOrigin::Elsewhere, EventKind::Renewed, Some(name), Some(tag)) =
            (origin, kind, &name, news.lease)
        {
            self.facts.leases.renewed_elsewhere(name, tag);
        }
        if kind == EventKind::Gap {
            // Events were missed, so leases that were granted before now may have ended without an event here.
            self.state.hears_ends_since = self.state.hears_ends_since.map(|_| Instant::now());
        }
        let is_told = self.state.known.complete(&mut news);
        if let (true, Some(name), Some(ended)) = (news.event.ends_lease(), name, news.lease)
            // A lease that has expired here stays listed, for a holder that comes back late.
            && (origin == EventOrigin::Elsewhere || kind != EventKind::Expired)
        {
            match origin {
                EventOrigin::Elsewhere => self.facts.ended_elsewhere(&name, ended),
                EventOrigin::Here => drop(self.facts.leases.remove(&name, ended)),
            }
        }
        if is_told {
            // Adds the event to the journal for the listeners at this gateway.
            let mut subscribers = self.shared.subscribers.lock();
            subscribers.write(news.event);
            let next = subscribers.next();
            drop(subscribers);
            self.shared.written.send_replace(next);
        }
    }

    fn on_subscription_event(&mut self, event: SubscriptionEvent) {
        match event {
            SubscriptionEvent::Batch(lines) => {
                for news in lines.lines().filter_map(EventMessage::from_line) {
                    self.handle(news, EventOrigin::Elsewhere);
                }
            }
            SubscriptionEvent::Lost => {
                (self.state.is_subscribed, self.state.missed_events) = (false, true);
                self.state.hears_ends_since = None;
            }
            SubscriptionEvent::Opened => {
                self.state.is_subscribed = true;
                if std::mem::take(&mut self.state.missed_events) {
                    let gap = Event::gap("connection-lost", self.shared.clock.wall());
                    self.handle(gap.into(), EventOrigin::Elsewhere);
                }
                if self.request_at.is_some() {
                    // Events of other gateways arrive from now on, but those gateways may not have been asked to send
                    // them yet.
                    self.request_at = Some(Instant::now());
                } else {
                    // Another gateway has already asked all gateways to send their events.
                    self.state.hears_ends_since = Some(Instant::now());
                }
            }
        }
    }

    fn on_requested(&mut self, asked: &Result<(), StoreError>) {
        if asked.is_err() {
            let soon = Instant::now() + ASK_AGAIN;
            self.request_at = self.request_at.map(|at| at.min(soon));
        } else if self.state.is_subscribed {
            self.state.hears_ends_since.get_or_insert_with(Instant::now);
        }
    }

    fn on_checked(&mut self, checked: Option<(RunOutLease, Result<FenceCheck, StoreError>)>) {
        let Some((lease, found)) = checked else {
            self.checks = None;
            return;
        };
        let FenceQuery { name, fence, .. } = &lease.query;
        let facts = &self.facts;
        match found {
            Ok(FenceCheck::Held { left, as_of }) => {
                if let Some(lasting) = facts.leases.extend_run_out(&lease, as_of + left) {
                    let fact = Fact::Lasting(Box::new(lasting));
                    facts.tell(name, Some(lease.tag), fact);
                }
            }
            // The gateway that broke the lease records that.
            Ok(FenceCheck::Broken) => facts.ended_elsewhere(name, lease.tag),
            Ok(ended @ (FenceCheck::Stale { .. } | FenceCheck::Released(_))) => {
                let hears_since = self.state.hears_ends_since;
                let loses = self.store.relay().is_some();
                let ended = facts.leases.end_run_out(&lease, ended, loses, hears_since);
                let (recorded, reported) = ended;
                let fact = Fact::Expired(*fence, recorded.map(Box::new), reported);
                facts.tell(name, Some(lease.tag), fact);
            }
            Err(_) => {
                self.failed += 1;
                if self.failed >= CHECKS {
                    self.checks = None;
                }
            }
        }
    }

    /// Asks the store a last time when the gateway stops, and sends the last events to other gateways. The listeners here
    /// have ended before.
    async fn finish(mut self, mut batch: Vec<EventMessage>) {
        // A gateway drains until its last lease has run out, so nobody has asked yet how that lease ended.
        let is_recorded = self.facts.leases.is_recorded();
        let asking = async {
            loop {
                (self.checks, self.look_at) = (None, is_recorded.then(Instant::now));
                self.look(Duration::ZERO);
                while self.checks.is_some() {
                    let checked = next_of(&mut self.checks).await;
                    self.on_checked(checked);
                }
                // The store's clock ends a lease somewhat later than this gateway's.
                let soon = self.facts.leases.last_end_before(Instant::now() + GRACE);
                match soon.filter(|_| is_recorded) {
                    Some(until) => sleep_until(until).await,
                    None => return,
                }
            }
        };
        drop(timeout(LAST.0, asking).await);
        while let Ok(news) = self.inbox.try_recv() {
            batch.push(news);
        }
        for news in batch {
            self.handle(news, EventOrigin::Here);
        }
        let sending = async {
            if let Some(sending) = self.sending.take() {
                drop(sending.await);
            }
            let batch = self.state.outbox.take(self.shared.clock.wall());
            if !batch.is_empty() {
                drop(send(self.store.clone(), batch).await);
            }
        };
        // Events that could not be sent in time are lost: delivery is best effort.
        drop(timeout(LAST.1, sending).await);
    }
}

impl Drop for Publisher {
    /// Stops keeping leases listed that have run out, even if the task panics: no task asks the store about them any
    /// more.
    fn drop(&mut self) {
        self.facts.leases.keep_run_out(false);
    }
}

async fn send(store: AnyStore, batch: String) -> Result<(), StoreError> {
    match store.relay() {
        Some(relay) => relay.send(&batch).await,
        None => Ok(()),
    }
}

async fn next_of<T>(stream: &mut Option<BoxStream<'static, T>>) -> Option<T> {
    match stream {
        Some(stream) => stream.next().await,
        None => std::future::pending().await,
    }
}

/// Waits for the future in the slot and empties the slot; never ends if the slot is empty.
async fn finished<T>(slot: &mut Option<BoxFuture<'static, T>>) -> T {
    let Some(future) = slot else {
        return std::future::pending().await;
    };
    let outcome = future.await;
    *slot = None;
    outcome
}
