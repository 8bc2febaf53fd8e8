//! The task that receives the events of operations, and passes them on to listeners.

use std::{collections::VecDeque, sync::Arc, sync::atomic::Ordering, time::Duration};

use futures_util::{
    StreamExt,
    future::BoxFuture,
    stream::{BoxStream, FuturesUnordered},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};

use crate::store::{AnyStore, Store, StoreError};

use super::{
    super::leases::{LeaseCheck, LeaseRegistry, RunOutLease},
    event::{Event, EventKind, EventMessage},
    known_leases::KnownLeases,
    relay::{Outbox, SubscriptionEvent, subscribe},
    subscribers::BusShared,
};

/// The task that receives the events of operations, and passes them on to listeners.
///
/// Without any listener the task sleeps, without a timer.
pub(super) struct Publisher {
    shared: Arc<BusShared>,
    inbox: mpsc::Receiver<EventMessage>,
    store: AnyStore,
    leases: Arc<LeaseRegistry>,
    /// Whether the task publishes: there is a listener here or at another gateway.
    active: bool,
    /// Until when another gateway has a listener, as far as this gateway knows.
    interest_until: Option<Instant>,
    /// When the other gateways are next asked to send their events; `None` without a listener here.
    request_at: Option<Instant>,
    /// The batch that is being sent. Only one is sent at a time, so that batches arrive in order.
    sending: Option<BoxFuture<'static, Result<(), StoreError>>>,
    asking: Option<BoxFuture<'static, Result<(), StoreError>>>,
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
    /// When the leases of this gateway are next checked for leases that have run out.
    look_at: Option<Instant>,
    /// The leases that have run out and that the store must be asked about.
    run_out: VecDeque<RunOut>,
    checks: FuturesUnordered<BoxFuture<'static, (RunOut, LeaseCheck)>>,
}

/// A lease of this gateway that has run out.
struct RunOut {
    lease: RunOutLease,
    /// The store is asked about the lease at this time or later.
    due: Instant,
    /// Whether the lock has so many holders that the store's last answer did not show this lease.
    missed: bool,
}

/// Whether an event happened at this gateway or at another gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventOrigin {
    Here,
    Elsewhere,
}

/// How many events the publisher processes before it does other work.
const AT_ONCE: usize = 256;
/// How often the leases of this gateway are searched for leases whose TTL has run out.
const LOOK_PERIOD: Duration = Duration::from_millis(500);
/// How long after a lease's end the store is asked about it: later than an event of its release that is on its way.
const GRACE: Duration = Duration::from_millis(250);
/// About how many leases the store is asked at once, and how many may wait for that. The ends of more leases are not
/// reported.
const CHECKS: (usize, usize) = (16, 131_072);
/// How soon the store is asked about a lease again, if it did not answer.
const AGAIN: Duration = Duration::from_secs(1);
/// How often other gateways are asked to send their events, and how long each request is valid: two of these messages
/// may get lost.
const ASK: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(10));
/// How soon other gateways are asked again if they cannot be reached.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How long sending the last batch may take when the gateway stops.
const LAST: Duration = Duration::from_millis(500);

// === impl Publisher ===

impl Publisher {
    pub(super) fn new(
        shared: Arc<BusShared>,
        inbox: mpsc::Receiver<EventMessage>,
        store: AnyStore,
        leases: Arc<LeaseRegistry>,
    ) -> Self {
        Self {
            shared,
            inbox,
            store,
            leases,
            active: false,
            interest_until: None,
            request_at: None,
            sending: None,
            asking: None,
            state: ActiveState::default(),
        }
    }

    /// Publishes events until `stopped` ends, which is when the gateway stops.
    pub(super) async fn run(mut self, stopped: impl Future<Output = ()>) {
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
                Some((run_out, found)) = self.state.checks.next(), if !self.state.checks.is_empty() => {
                    self.on_checked(run_out, &found);
                }
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
        }
    }

    /// When the task must wake up even if no event comes.
    fn next_due(&self) -> Option<Instant> {
        if !self.active {
            return None;
        }
        let idle = self.sending.is_none();
        let checks = self.state.checks.len() < CHECKS.0;
        let times = [
            self.state.outbox.due().filter(|_| idle),
            self.state.look_at,
            self.state
                .run_out
                .front()
                .map(|it| it.due)
                .filter(|_| checks),
            self.state.known.next_due(),
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
                look_at: Some(now + LOOK_PERIOD),
                ..ActiveState::default()
            };
            self.leases.keep_run_out(true);
            // The leases of this gateway become known, although some may have ended at another gateway without an
            // event here.
            let known = &mut self.state.known;
            self.leases
                .for_each_active(|(tag, name), lease| known.track(*tag, name, lease));
        }
        if !wanted && self.active {
            self.state = ActiveState::default();
            self.leases.keep_run_out(false);
            self.shared.overflowed.store(false, Ordering::Relaxed);
        }
        self.active = wanted;
    }

    /// Does all work of the publisher that is due: announces withheld grants, asks other gateways for events, and the
    /// like.
    fn run_due(&mut self) {
        let now = Instant::now();
        let mut told = Vec::new();
        self.state.known.tell_due(now, &mut told);
        self.tell(told);
        // A gap is reported only when no event is queued, so that a listener that inspects the locks at the gap has
        // seen all earlier events.
        if self.inbox.is_empty() && self.shared.overflowed.swap(false, Ordering::Relaxed) {
            let gap = Event::gap("too-many", self.shared.clock.wall());
            self.handle(gap.into(), EventOrigin::Here);
        }
        self.check_run_out(now);
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

    /// Asks the store about leases that have run out, about a limited number at once.
    fn check_run_out(&mut self, now: Instant) {
        if self.state.look_at.is_some_and(|at| at <= now) {
            self.state.look_at = Some(now + LOOK_PERIOD);
            let before = now.checked_sub(GRACE).unwrap_or(now);
            let run_out = self
                .leases
                .check_run_out(before, self.state.hears_ends_since);
            for lease in run_out {
                if self.state.run_out.len() < CHECKS.1 {
                    let (due, missed) = (now, false);
                    self.state.run_out.push_back(RunOut { lease, due, missed });
                } else {
                    self.leases.end_run_out(&lease, None);
                }
            }
        }
        while self.state.checks.len() < CHECKS.0
            && self.state.run_out.front().is_some_and(|it| it.due <= now)
            && let Some(run_out) = self.state.run_out.pop_front()
        {
            let store = self.store.clone();
            self.state.checks.push(Box::pin(async move {
                let found = run_out.lease.check(&store).await;
                (run_out, found)
            }));
        }
    }

    /// Processes an event of this or another gateway, and passes it on to listeners.
    fn handle(&mut self, news: EventMessage, origin: EventOrigin) {
        // The event is sent as it was published, because each gateway completes it from its own data.
        if origin == EventOrigin::Here && self.interest_until.is_some() {
            self.state.outbox.put(&news);
        }
        let (name, kind) = (news.event.name.clone(), news.event.kind);
        if let (EventOrigin::Elsewhere, EventKind::Renewed, Some(name), Some(tag)) =
            (origin, kind, &name, news.lease)
        {
            self.leases.renewed_elsewhere(name, tag);
        }
        if kind == EventKind::Gap {
            // Events were missed, so leases that were granted before now may have ended without an event here.
            self.state.hears_ends_since = self.state.hears_ends_since.map(|_| Instant::now());
        }
        let mut told = Vec::new();
        if let (Some(ended), Some(name)) = (self.state.known.process(news, &mut told), name)
            // A lease that has expired here stays listed, for a holder that comes back late.
            && (origin == EventOrigin::Elsewhere || kind != EventKind::Expired)
        {
            self.leases.remove(&name, ended);
        }
        self.tell(told);
    }

    /// Adds events to the journal for the listeners at this gateway.
    fn tell(&self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let mut subscribers = self.shared.subscribers.lock();
        for event in events {
            subscribers.write(event);
        }
        let next = subscribers.next();
        drop(subscribers);
        self.shared.written.send_replace(next);
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

    fn on_checked(&mut self, mut run_out: RunOut, found: &LeaseCheck) {
        run_out.due = Instant::now() + AGAIN;
        match found {
            LeaseCheck::Living(left) => {
                let until = Instant::now() + *left;
                self.leases.extend_run_out(&run_out.lease, until);
            }
            LeaseCheck::Unknown => self.state.run_out.push_back(run_out),
            LeaseCheck::NotShown if !run_out.missed => {
                run_out.missed = true;
                self.state.run_out.push_back(run_out);
            }
            LeaseCheck::NotShown | LeaseCheck::Gone => {
                let RunOutLease {
                    tag, name, fence, ..
                } = &run_out.lease;
                let ended = self
                    .leases
                    .end_run_out(&run_out.lease, self.state.hears_ends_since);
                if let Some((owner, mode)) = ended {
                    let event = Event {
                        fence: Some(*fence),
                        owner,
                        mode: Some(mode),
                        ..Event::for_lock(EventKind::Expired, name, self.shared.clock.wall())
                    };
                    let lease = Some(*tag);
                    self.handle(EventMessage { event, lease }, EventOrigin::Here);
                }
            }
        }
    }

    /// Sends the last events to other gateways when the gateway stops. The listeners here have ended before.
    async fn finish(mut self, mut batch: Vec<EventMessage>) {
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
        drop(timeout(LAST, sending).await);
    }
}

impl Drop for Publisher {
    /// Stops keeping leases listed that have run out, even if the task panics: no task asks the store about them any
    /// more.
    fn drop(&mut self) {
        self.leases.keep_run_out(false);
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
