//! The task that takes in what operations tell, and passes it on to those who listen.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};

use crate::store::{AnyStore, Store, StoreError};

use super::{
    super::leases::LeaseRegistry,
    bus::Shared,
    check::{Found, look},
    ear::{Ear, Sound},
    event::Event,
    line::{LeaseId, News},
    outbox::Outbox,
    take_in::{Knowledge, Origin},
    tracker::{LeaseKey, Tracked},
};

/// The task that takes in what operations tell, and passes it on to those who listen.
///
/// While nobody listens it sleeps, without a timer.
pub(super) struct Teller {
    shared: Arc<Shared>,
    told: mpsc::Receiver<News>,
    store: AnyStore,
    leases: Arc<LeaseRegistry>,
    known: Knowledge,
    outbox: Outbox,
    ear: Ear,
    /// Whether it takes part: somebody listens somewhere.
    awake: bool,
    /// Until when somebody listens at another gateway, as far as is known.
    asked_until: Option<Instant>,
    /// When the other gateways are asked again for their news.
    ask_at: Option<Instant>,
    checks: FuturesUnordered<BoxFuture<'static, (LeaseKey, Found)>>,
    /// One at a time, so that batches arrive in order.
    sending: Option<BoxFuture<'static, Result<(), StoreError>>>,
    asking: Option<BoxFuture<'static, Result<(), StoreError>>>,
}

/// How many events are taken in before anything else is looked at.
const AT_ONCE: usize = 256;
/// How many leases are looked after at once.
const CHECKS: usize = 16;
/// How soon a lease is looked after again when the store did not answer.
const AGAIN: Duration = Duration::from_secs(1);
/// How often other gateways are asked for their news, and for how long each time: two messages may
/// get lost.
const ASK: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(10));
/// How soon they are asked again if they cannot be reached.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How long the last batch may take at the end.
const LAST: Duration = Duration::from_millis(500);

// === impl Teller ===

impl Teller {
    pub(super) fn new(
        shared: Arc<Shared>,
        told: mpsc::Receiver<News>,
        store: AnyStore,
        leases: Arc<LeaseRegistry>,
    ) -> Self {
        Self {
            shared,
            told,
            ear: Ear::new(store.clone()),
            store,
            leases,
            known: Knowledge::default(),
            outbox: Outbox::default(),
            awake: false,
            asked_until: None,
            ask_at: None,
            checks: FuturesUnordered::new(),
            sending: None,
            asking: None,
        }
    }

    /// Goes on until `stopped`.
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
                _ = self.told.recv_many(&mut batch, AT_ONCE) => {}
                sound = self.ear.next() => self.hear(sound),
                lasts = asked => self.asked_until = Some(Instant::now() + lasts),
                () = self.shared.changed.notified() => {}
                Some((key, found)) = self.checks.next(), if !self.checks.is_empty() => {
                    self.found(&key, &found);
                }
                sent = finished(&mut self.sending) => self.sent(&sent),
                asked = finished(&mut self.asking) => self.asked(&asked),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                () = &mut stopped => return self.finish(batch).await,
            }
            self.wake_or_sleep();
            for news in batch.drain(..) {
                self.tell(news, Origin::Here);
            }
            self.catch_up();
        }
    }

    /// When something is to be done although nothing happens.
    fn next_due(&self) -> Option<Instant> {
        if !self.awake {
            return None;
        }
        let idle = self.sending.is_none();
        let checking = self.checks.len() < CHECKS;
        let times = [
            self.outbox.due().filter(|_| idle),
            self.known.tracker.next_due().filter(|_| checking),
            self.ask_at.filter(|_| self.asking.is_none()),
            self.asked_until,
            self.shared.audience().disperses_at(),
        ];
        times.into_iter().flatten().min()
    }

    fn wake_or_sleep(&mut self) {
        let now = Instant::now();
        self.asked_until = self.asked_until.filter(|&until| until > now);
        let mut audience = self.shared.audience();
        audience.disperse(now);
        let here = audience.is_attentive();
        let wanted = here || self.asked_until.is_some();
        // With the audience at hand: nobody begins to listen meanwhile.
        self.shared.wanted.store(wanted, Ordering::Relaxed);
        drop(audience);
        match (here && self.store.relay().is_some(), self.ask_at) {
            (true, None) => self.ask_at = Some(now),
            (false, Some(_)) => self.ask_at = None,
            _ => {}
        }
        if wanted && !self.awake {
            self.ear.open();
            if self.store.relay().is_some() {
                self.known.hears_nothing();
            }
            self.remember_leases();
        }
        if !wanted && self.awake {
            self.ear.close();
            self.known = Knowledge::default();
            self.outbox.clear();
            self.checks.clear();
            self.shared.overflowed.store(false, Ordering::Relaxed);
        }
        self.awake = wanted;
    }

    /// Remembers the leases that were granted here before anybody listened, for the owner and the fencing
    /// token that their ends are told with. They may have ended at another gateway.
    fn remember_leases(&mut self) {
        for lease in self.leases.living() {
            let key = LeaseKey {
                name: lease.name,
                fence: lease.fence,
            };
            let id = Some(LeaseId::of(&lease.token));
            let tracked = Tracked::new(id, lease.owner, lease.until, false);
            self.known.tracker.track(key, tracked);
        }
    }

    /// Does what is due.
    fn catch_up(&mut self) {
        if !self.awake {
            return;
        }
        let now = Instant::now();
        // Behind what was told before: whoever hears of it looks at the locks as they are then.
        if self.told.is_empty() && self.shared.overflowed.swap(false, Ordering::Relaxed) {
            let gap = Event::gap("too-many", self.shared.clock.wall());
            self.tell(gap.into(), Origin::Here);
        }
        while self.checks.len() < CHECKS
            && let Some(key) = self.known.tracker.take_due(now)
        {
            let store = self.store.clone();
            self.checks.push(Box::pin(look(store, key)));
        }
        if self.ask_at.is_some_and(|at| at <= now) && self.asking.is_none() {
            self.ask_at = Some(now + ASK.0);
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

    /// Passes on what has happened here.
    fn tell(&mut self, news: News, origin: Origin) {
        // A batch is passed on as it was told: each gateway makes of it what it can.
        let known_only = news.if_known && !self.known.knows(&news);
        if origin == Origin::Here && self.asked_until.is_some() && !known_only {
            self.outbox.put(&news);
        }
        let Some(event) = self.known.take_in(news, origin) else {
            return;
        };
        let mut audience = self.shared.audience();
        audience.write(event);
        let next = audience.journal.next();
        drop(audience);
        self.shared.written.send_replace(next);
    }

    fn hear(&mut self, sound: Sound) {
        match sound {
            Sound::Batch(lines) => {
                for news in lines.lines().filter_map(News::from_line) {
                    self.tell(news, Origin::Elsewhere);
                }
            }
            Sound::Opened => self.begin_to_hear(),
            Sound::Regained => {
                let gap = Event::gap("connection-lost", self.shared.clock.wall());
                self.tell(gap.into(), Origin::Elsewhere);
                self.begin_to_hear();
            }
        }
    }

    /// What other gateways send is heard from now on, but they may not know yet that they are listened
    /// to.
    fn begin_to_hear(&mut self) {
        if self.ask_at.is_some() {
            self.known.hears_nothing();
            self.ask_at = Some(Instant::now());
        } else {
            // Somebody else has asked all of them.
            self.known.hears();
        }
    }

    fn asked(&mut self, asked: &Result<(), StoreError>) {
        if asked.is_err() {
            let soon = Instant::now() + ASK_AGAIN;
            self.ask_at = self.ask_at.map(|at| at.min(soon));
        } else if self.ear.is_open() {
            self.known.hears();
        }
    }

    fn found(&mut self, key: &LeaseKey, found: &Found) {
        // Renewed meanwhile, or ended.
        if !self.known.tracker.is_looked_after(key) {
            return;
        }
        match found {
            Found::Living(left) => self.known.tracker.is_alive(key, Instant::now() + *left),
            Found::Unknown => self.known.tracker.put_off(key, Instant::now() + AGAIN),
            Found::Gone => {
                if let Some(expired) = self.known.gone(key, self.shared.clock.wall()) {
                    self.tell(expired, Origin::Here);
                }
            }
        }
    }

    fn sent(&mut self, sent: &Result<(), StoreError>) {
        // It is not sent again: it may have arrived.
        if sent.is_err() && self.asked_until.is_some() {
            self.outbox.leave_gap();
        }
    }

    /// Sends what is left. Whoever listens here has been told to go elsewhere.
    async fn finish(mut self, mut batch: Vec<News>) {
        while let Ok(news) = self.told.try_recv() {
            batch.push(news);
        }
        for news in batch {
            self.tell(news, Origin::Here);
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
        // What is not sent by now, nobody hears: events are sent as well as they can.
        drop(timeout(LAST, sending).await);
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
