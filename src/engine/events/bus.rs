//! The handle through which operations publish events.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};

use crate::{
    clock::Clock,
    engine::{StoreChange, facts::Fact, leases::LeaseTag},
    lifecycle::Lifecycle,
    lock::LockName,
};

use super::{
    event::{Event, EventMessage},
    subscribers::{BusShared, Subscribers},
};

/// Publishes the events of operations to listeners. Cheap to clone.
///
/// Without listeners, here or at another gateway on the store, publishing costs one read of an atomic flag.
#[derive(Clone)]
pub(in crate::engine) struct Bus(pub(super) Arc<BusShared>);

/// How many events may wait for the publisher. Events beyond that are dropped, and listeners are told of a gap.
const BACKLOG: usize = 16_384;

// === impl Bus ===

impl Bus {
    /// Makes the handle, and the inbox of the publisher.
    pub(in crate::engine) fn new(
        lifecycle: &Lifecycle,
        clock: Arc<dyn Clock>,
        most_listeners: usize,
    ) -> (Self, mpsc::Receiver<EventMessage>) {
        let (news, inbox) = mpsc::channel(BACKLOG);
        // If the machine has no random bytes, two runs of the gateway may have the same name, and then a listener
        // that resumes may miss a gap.
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
        (Self(shared), inbox)
    }

    /// The name of this run of the gateway.
    pub(in crate::engine) fn instance(&self) -> &str {
        &self.0.instance
    }

    /// The number of listeners at this gateway.
    pub(in crate::engine) fn listeners(&self) -> usize {
        self.0.subscribers.lock().listeners
    }

    /// Publishes the event of a fact about a lock, if the fact has an event. `lease`: the lease that the fact is about.
    pub(in crate::engine) fn hear(
        &self,
        name: &LockName,
        lease: Option<LeaseTag>,
        fact: &Fact<'_>,
    ) {
        self.send(|at| {
            let event = Event::from_fact(name, fact, at)?;
            Some(EventMessage { event, lease })
        });
    }

    /// The time by the clock of the events. For display only.
    pub(in crate::engine) fn now(&self) -> SystemTime {
        self.0.clock.wall()
    }

    /// Publishes a change of the store to the listeners at this gateway.
    pub(in crate::engine) fn store_changed(&self, change: &Arc<StoreChange>) {
        self.send(|_| Some(Event::of_store(change).into()));
    }

    /// Sends an event to the publisher, if there is a listener anywhere; `news` makes the event only then.
    pub(super) fn send(&self, news: impl FnOnce(SystemTime) -> Option<EventMessage>) {
        if !self.0.wanted.load(Ordering::Relaxed) {
            return;
        }
        if let Some(news) = news(self.0.clock.wall())
            && self.0.news.try_send(news).is_err()
        {
            self.0.overflowed.store(true, Ordering::Relaxed);
        }
    }
}
