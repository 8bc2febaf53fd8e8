//! The handle through which operations tell events, and through which somebody begins to listen.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    clock::Clock,
    lifecycle::Lifecycle,
    store::{AnyStore, Store, StoreError},
};

use super::{
    super::leases::{LeaseRegistry, RunOutLease},
    check::{LeaseCheck, check_lease},
    event::{Event, EventKind},
    ingest::EventIngest,
    line::EventMessage,
    outbox::Outbox,
    subscribers::Subscribers,
    subscription::{RelaySubscription, SubscriptionEvent},
    withheld::WithheldGrants,
};

/// Publishes the events of operations to listeners. Cheap to clone.
///
/// Without listeners, here or at another gateway on the store, publishing costs one load of a flag.
#[derive(Clone)]
pub(in crate::engine) struct Bus(pub(super) Arc<BusShared>);

/// What operations, listeners and the publisher have in common.
pub(super) struct BusShared {
    /// Whether anybody listens anywhere.
    pub(super) wanted: AtomicBool,
    news: mpsc::Sender<EventMessage>,
    /// Set when the queue of the publisher was full and an event was dropped.
    pub(super) overflowed: AtomicBool,
    pub(super) subscribers: Mutex<Subscribers>,
    /// The number of the next event, for those who wait for it.
    pub(super) written: watch::Sender<u64>,
    /// Notified when a listener joins, or the last one has left.
    pub(super) changed: Notify,
    /// The name of this run of the gateway.
    pub(super) instance: Box<str>,
    pub(super) most_listeners: usize,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) lifecycle: Lifecycle,
}

/// How many events may wait for the publisher. Beyond that there is a gap.
const BACKLOG: usize = 16_384;

// === impl Bus ===

impl Bus {
    /// Starts the publisher. It sleeps until somebody listens.
    pub(in crate::engine) fn start(
        store: AnyStore,
        leases: Arc<LeaseRegistry>,
        lifecycle: &Lifecycle,
        clock: Arc<dyn Clock>,
        most_listeners: usize,
    ) -> Self {
        let (news, inbox) = mpsc::channel(BACKLOG);
        // Without randomness two runs may share a name: a reader may then miss a gap.
        let instance = format!("{:016x}", getrandom::u64().unwrap_or_default());
        let shared = Arc::new(BusShared {
            wanted: AtomicBool::new(false),
            news,
            overflowed: AtomicBool::new(false),
            subscribers: Mutex::new(Subscribers::new()),
            written: watch::Sender::new(1),
            changed: Notify::new(),
            instance: instance.into(),
            most_listeners,
            clock,
            lifecycle: lifecycle.clone(),
        });
        let publisher = Publisher::new(Arc::clone(&shared), inbox, store, leases);
        let stopped = lifecycle.stopped();
        lifecycle.spawn_background(async move { publisher.run(stopped).await });
        Self(shared)
    }

    /// The name of this run of the gateway.
    pub(in crate::engine) fn instance(&self) -> &str {
        &self.0.instance
    }

    /// How many listen here.
    pub(in crate::engine) fn listeners(&self) -> usize {
        self.0.subscribers.lock().listeners()
    }

    /// Publishes the event that `news` makes, if there are listeners anywhere.
    pub(super) fn publish(&self, news: impl FnOnce(SystemTime) -> EventMessage) {
        if !self.0.wanted.load(Ordering::Relaxed) {
            return;
        }
        if self.0.news.try_send(news(self.0.clock.wall())).is_err() {
            self.0.overflowed.store(true, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").finish_non_exhaustive()
    }
}

// === Publisher ===
//
// The task that takes in what operations tell, and passes it on to those who listen.

/// The task that takes in what operations tell, and passes it on to those who listen.
///
/// While nobody listens it sleeps, without a timer.
struct Publisher {
    shared: Arc<BusShared>,
    inbox: mpsc::Receiver<EventMessage>,
    store: AnyStore,
    leases: Arc<LeaseRegistry>,
    ingest: EventIngest,
    withheld: WithheldGrants,
    outbox: Outbox,
    subscription: RelaySubscription,
    /// Whether it publishes: there is a listener here or at another gateway.
    active: bool,
    /// Until when somebody listens at another gateway, as far as is known.
    interest_until: Option<Instant>,
    /// When the other gateways are asked again for their news.
    request_at: Option<Instant>,
    /// Since when the ends of leases at all gateways are heard; `None` while some may be missed.
    hears_ends_since: Option<Instant>,
    /// When the leases of this gateway are looked through next for those that have run out.
    look_at: Instant,
    /// Leases that have run out and that the store is to be asked about.
    run_out: VecDeque<RunOut>,
    checks: FuturesUnordered<BoxFuture<'static, (RunOut, LeaseCheck)>>,
    /// One at a time, so that batches arrive in order.
    sending: Option<BoxFuture<'static, Result<(), StoreError>>>,
    asking: Option<BoxFuture<'static, Result<(), StoreError>>>,
}

/// A lease of this gateway that has run out.
struct RunOut {
    lease: RunOutLease,
    /// Not before then the store is asked about it.
    due: Instant,
    /// Whether it was not among those that were shown.
    missed: bool,
}

/// Where an event has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventOrigin {
    Here,
    Elsewhere,
}

/// How many events are taken in before anything else is looked at.
const AT_ONCE: usize = 256;
/// How often leases are looked through for those that have run out.
const LOOK_PERIOD: Duration = Duration::from_millis(500);
/// How long after its time the store is asked about a lease: later than the news of its release that is on its way.
const GRACE: Duration = Duration::from_millis(250);
/// About how many leases the store is asked at once, and how many wait for that. The ends of others are told by nobody.
const CHECKS: (usize, usize) = (16, 131_072);
/// How soon the store is asked about a lease again when it did not answer.
const AGAIN: Duration = Duration::from_secs(1);
/// How often other gateways are asked for their news, and for how long each time: two messages may
/// get lost.
const ASK: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(10));
/// How soon they are asked again if they cannot be reached.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How long the last batch may take at the end.
const LAST: Duration = Duration::from_millis(500);

// === impl Publisher ===

impl Publisher {
    fn new(
        shared: Arc<BusShared>,
        inbox: mpsc::Receiver<EventMessage>,
        store: AnyStore,
        leases: Arc<LeaseRegistry>,
    ) -> Self {
        Self {
            shared,
            inbox,
            subscription: RelaySubscription::new(store.clone()),
            store,
            leases,
            ingest: EventIngest::default(),
            withheld: WithheldGrants::default(),
            outbox: Outbox::default(),
            active: false,
            interest_until: None,
            request_at: None,
            hears_ends_since: None,
            look_at: Instant::now(),
            run_out: VecDeque::new(),
            checks: FuturesUnordered::new(),
            sending: None,
            asking: None,
        }
    }

    /// Goes on until `stopped`.
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
                event = self.subscription.next() => self.on_subscription_event(event),
                lasts = asked => self.interest_until = Some(Instant::now() + lasts),
                () = self.shared.changed.notified() => {}
                Some((run_out, found)) = self.checks.next(), if !self.checks.is_empty() => {
                    self.on_checked(run_out, &found);
                }
                sent = finished(&mut self.sending) => self.on_sent(&sent),
                asked = finished(&mut self.asking) => self.on_requested(&asked),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                () = &mut stopped => return self.finish(batch).await,
            }
            self.update_activity();
            for news in batch.drain(..) {
                self.handle(news, EventOrigin::Here);
            }
            self.run_due();
        }
    }

    /// When something is to be done although nothing happens.
    fn next_due(&self) -> Option<Instant> {
        if !self.active {
            return None;
        }
        let idle = self.sending.is_none();
        let checks = self.checks.len() < CHECKS.0;
        let times = [
            self.outbox.due().filter(|_| idle),
            Some(self.look_at),
            self.run_out.front().map(|it| it.due).filter(|_| checks),
            self.withheld.next_due(),
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
        let here = subscribers.is_recording();
        let wanted = here || self.interest_until.is_some();
        // While the subscribers are locked, so that none is added in between.
        self.shared.wanted.store(wanted, Ordering::Relaxed);
        drop(subscribers);
        match (here && self.store.relay().is_some(), self.request_at) {
            (true, None) => self.request_at = Some(now),
            (false, Some(_)) => self.request_at = None,
            _ => {}
        }
        if wanted && !self.active {
            self.subscription.open();
            // Without a relay there is no other gateway.
            self.hears_ends_since = self.store.relay().is_none().then_some(now);
            self.leases.keep_run_out(true);
            self.look_at = now + LOOK_PERIOD;
            // They may have ended at another gateway.
            let ingest = &mut self.ingest;
            self.leases
                .for_each_active(|(tag, name), lease| ingest.track(*tag, name, lease));
        }
        if !wanted && self.active {
            self.subscription.close();
            self.ingest = EventIngest::default();
            self.withheld = WithheldGrants::default();
            self.outbox.clear();
            self.leases.keep_run_out(false);
            self.run_out.clear();
            self.checks.clear();
            self.shared.overflowed.store(false, Ordering::Relaxed);
        }
        self.active = wanted;
    }

    /// Does what is due.
    fn run_due(&mut self) {
        if !self.active {
            return;
        }
        let now = Instant::now();
        for grant in self.withheld.take_due(now) {
            self.write(grant.news);
        }
        // After the events that are queued, so that a listener that reads the locks at the gap has seen those
        // events.
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
        if self.outbox.due().is_some_and(|due| due <= now) && self.sending.is_none() {
            let (store, batch) = (
                self.store.clone(),
                self.outbox.take(self.shared.clock.wall()),
            );
            self.sending = Some(Box::pin(async move {
                match store.relay() {
                    Some(relay) => relay.send(&batch).await,
                    None => Ok(()),
                }
            }));
        }
    }

    /// Asks the store about leases that have run out, about some at once.
    fn check_run_out(&mut self, now: Instant) {
        if self.look_at <= now {
            self.look_at = now + LOOK_PERIOD;
            let before = now.checked_sub(GRACE).unwrap_or(now);
            let room = CHECKS.1.saturating_sub(self.run_out.len());
            let run_out = self.leases.check_run_out(before, self.hears_ends_since);
            for (nth, lease) in run_out.into_iter().enumerate() {
                if nth < room {
                    let (due, missed) = (now, false);
                    self.run_out.push_back(RunOut { lease, due, missed });
                } else {
                    self.leases.end_run_out(&lease, None);
                }
            }
        }
        while self.checks.len() < CHECKS.0
            && self.run_out.front().is_some_and(|it| it.due <= now)
            && let Some(run_out) = self.run_out.pop_front()
        {
            let (name, fence) = (run_out.lease.name.clone(), run_out.lease.fence);
            let check = check_lease(self.store.clone(), name, fence);
            self.checks
                .push(Box::pin(async move { (run_out, check.await) }));
        }
    }

    /// Passes on what has happened here or elsewhere.
    fn handle(&mut self, news: EventMessage, origin: EventOrigin) {
        for grant in self.withheld.take_same_lease(&news) {
            self.write(grant.news);
        }
        if origin == EventOrigin::Elsewhere
            && let (Some(tag), Some(name)) = (news.lease, &news.event.name)
        {
            if news.event.kind.ends_lease() {
                self.leases.remove(name, tag);
            } else if news.event.kind == EventKind::Renewed {
                self.leases.renewed_elsewhere(name, tag);
            }
        }
        // The event is sent as it was published, because each gateway completes it from what it knows.
        let known_only = news.if_known && !self.ingest.is_known(&news);
        if origin == EventOrigin::Here && self.interest_until.is_some() && !known_only {
            self.outbox.put(&news);
        }
        let name = news.event.name.clone();
        if let Some(name) = name.clone().filter(|_| self.ingest.is_before_end(&news)) {
            self.withheld.put(name, news);
            return;
        }
        let name = name.filter(|_| news.event.kind.ends_lease());
        self.write(news);
        let Some(name) = name else { return };
        for grant in self.withheld.take_same_lock(&name) {
            if self.ingest.is_before_end(&grant.news) {
                self.withheld.put_back(name.clone(), grant);
            } else {
                self.write(grant.news);
            }
        }
    }

    /// Shows an event to those who listen here.
    fn write(&mut self, news: EventMessage) {
        let Some(event) = self.ingest.process(news) else {
            return;
        };
        if event.kind == EventKind::Gap {
            // Leases that were granted before may have ended unheard.
            self.hears_ends_since = self.hears_ends_since.map(|_| Instant::now());
        }
        let mut subscribers = self.shared.subscribers.lock();
        subscribers.write(event);
        let next = subscribers.journal.next();
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
            SubscriptionEvent::Opened => self.on_subscribed(),
            SubscriptionEvent::Reopened => {
                let gap = Event::gap("connection-lost", self.shared.clock.wall());
                self.handle(gap.into(), EventOrigin::Elsewhere);
                self.on_subscribed();
            }
        }
    }

    /// Events of other gateways arrive from now on, but those gateways may not have been asked to send them
    /// yet.
    fn on_subscribed(&mut self) {
        if self.request_at.is_some() {
            self.hears_ends_since = None;
            self.request_at = Some(Instant::now());
        } else {
            // Another gateway has asked all of them already.
            self.hears_ends_since.get_or_insert_with(Instant::now);
        }
    }

    fn on_requested(&mut self, asked: &Result<(), StoreError>) {
        if asked.is_err() {
            let soon = Instant::now() + ASK_AGAIN;
            self.request_at = self.request_at.map(|at| at.min(soon));
        } else if self.subscription.is_open() {
            self.hears_ends_since.get_or_insert_with(Instant::now);
        }
    }

    fn on_checked(&mut self, mut run_out: RunOut, found: &LeaseCheck) {
        run_out.due = Instant::now() + AGAIN;
        match found {
            LeaseCheck::Living(left) => {
                let until = Instant::now() + *left;
                self.leases.extend_run_out(&run_out.lease, until);
            }
            LeaseCheck::Unknown => self.run_out.push_back(run_out),
            LeaseCheck::NotShown if !run_out.missed => {
                run_out.missed = true;
                self.run_out.push_back(run_out);
            }
            LeaseCheck::NotShown | LeaseCheck::Gone => {
                let RunOutLease { tag, name, fence } = &run_out.lease;
                let ended = self
                    .leases
                    .end_run_out(&run_out.lease, self.hears_ends_since);
                if let Some((owner, mode)) = ended {
                    let event = Event {
                        fence: Some(*fence),
                        owner,
                        mode: Some(mode),
                        ..Event::of(EventKind::Expired, name, self.shared.clock.wall())
                    };
                    let expired = EventMessage {
                        event,
                        lease: Some(*tag),
                        if_known: false,
                    };
                    self.handle(expired, EventOrigin::Here);
                }
            }
        }
    }

    fn on_sent(&mut self, sent: &Result<(), StoreError>) {
        // It is not sent again: it may have arrived.
        if sent.is_err() && self.interest_until.is_some() {
            self.outbox.mark_gap();
        }
    }

    /// Sends what is left. Listeners here were sent to other gateways before.
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
            let batch = self.outbox.take(self.shared.clock.wall());
            if let (false, Some(relay)) = (batch.is_empty(), self.store.relay()) {
                drop(relay.send(&batch).await);
            }
        };
        // Events that could not be sent in time are lost: delivery is best effort.
        drop(timeout(LAST, sending).await);
    }
}

impl Drop for Publisher {
    /// Also if the task panics: from now on nobody asks about leases that have run out.
    fn drop(&mut self) {
        self.leases.keep_run_out(false);
    }
}

/// Ends when there is a future and it has ended, which takes it away.
async fn finished<T>(slot: &mut Option<BoxFuture<'static, T>>) -> T {
    let Some(future) = slot else {
        return std::future::pending().await;
    };
    let outcome = future.await;
    *slot = None;
    outcome
}
