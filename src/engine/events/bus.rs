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

use super::{super::leases::LeaseRegistry, audience::Audience, line::News, teller::Teller};

/// Takes what operations tell to those who listen. Cheap to clone.
///
/// While nobody listens, here or at another gateway on the store, telling costs one look at a flag.
#[derive(Clone)]
pub(in crate::engine) struct Bus(pub(super) Arc<Shared>);

/// What operations, listeners and the teller have in common.
pub(super) struct Shared {
    /// Whether anybody listens anywhere.
    pub(super) wanted: AtomicBool,
    news: mpsc::Sender<News>,
    /// Set when more was told than the teller could take in.
    pub(super) overflowed: AtomicBool,
    pub(super) audience: Mutex<Audience>,
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
    /// Starts the teller. It sleeps until somebody listens.
    pub(in crate::engine) fn start(
        store: AnyStore,
        leases: Arc<LeaseRegistry>,
        lifecycle: &Lifecycle,
        clock: Arc<dyn Clock>,
        most_listeners: usize,
    ) -> Self {
        let (news, told) = mpsc::channel(BACKLOG);
        // Without randomness two runs may share a name: a reader may then miss a gap.
        let instance = format!("{:016x}", getrandom::u64().unwrap_or_default());
        let shared = Arc::new(Shared {
            wanted: AtomicBool::new(false),
            news,
            overflowed: AtomicBool::new(false),
            audience: Mutex::new(Audience::new()),
            written: watch::Sender::new(1),
            changed: Notify::new(),
            instance: instance.into(),
            most_listeners,
            clock,
            lifecycle: lifecycle.clone(),
        });
        let teller = Teller::new(Arc::clone(&shared), told, store, leases);
        let stopped = lifecycle.stopped();
        lifecycle.spawn_background(async move { teller.run(stopped).await });
        Self(shared)
    }

    /// The name of this run of the gateway.
    pub(in crate::engine) fn instance(&self) -> &str {
        &self.0.instance
    }

    /// How many listen here.
    pub(in crate::engine) fn listeners(&self) -> usize {
        self.0.audience().listeners()
    }

    /// Tells what `news` makes, if anybody wants to know.
    pub(super) fn tell(&self, news: impl FnOnce(SystemTime) -> News) {
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

// === impl Shared ===

impl Shared {
    pub(super) fn audience(&self) -> MutexGuard<'_, Audience> {
        self.audience
            .lock()
            .expect("no code panics while it holds the audience")
    }
}
