//! The handle through which operations tell events, and through which somebody begins to listen.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use tokio::sync::{Notify, mpsc, watch};

use crate::{clock::Clock, lifecycle::Lifecycle, store::AnyStore};

use super::{
    super::leases::LeaseRegistry, line::EventMessage, publisher::Publisher,
    subscribers::Subscribers,
};

/// Takes what operations tell to those who listen. Cheap to clone.
///
/// While nobody listens, here or at another gateway on the store, telling costs one look at a flag.
#[derive(Clone)]
pub(in crate::engine) struct Bus(pub(super) Arc<BusShared>);

/// What operations, listeners and the publisher have in common.
pub(super) struct BusShared {
    /// Whether anybody listens anywhere.
    pub(super) wanted: AtomicBool,
    news: mpsc::Sender<EventMessage>,
    /// Set when more was told than the publisher could take in.
    pub(super) overflowed: AtomicBool,
    pub(super) subscribers: Mutex<Subscribers>,
    /// The number of the next event, for those who wait for it.
    pub(super) written: watch::Sender<u64>,
    /// Told when somebody begins to listen, or the last one has left.
    pub(super) changed: Notify,
    /// The name of this run of the gateway.
    pub(super) instance: Box<str>,
    pub(super) most_listeners: usize,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) lifecycle: Lifecycle,
}

/// How much may be told and not taken in. Beyond it there is a gap.
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
        self.0.subscribers().listeners()
    }

    /// Tells what `news` makes, if anybody wants to know.
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

// === impl BusShared ===

impl BusShared {
    pub(super) fn subscribers(&self) -> MutexGuard<'_, Subscribers> {
        self.subscribers
            .lock()
            .expect("no code panics while it holds the subscribers")
    }
}
