//! What the clients of a rotation have in common.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use tokio::task::JoinSet;

use super::{
    super::certified::Certified,
    clients::{acquire, hold, renew},
};
use crate::support::{HttpRequest, Tally, eventually};

/// What the clients have in common.
pub(super) struct Load {
    pub(super) certified: Certified,
    pub(super) tally: Tally,
    over: AtomicBool,
    /// What they show: the value of `Authorization`, if they need one.
    key: Mutex<Option<String>>,
}

/// How many clients there are of each kind, half of each over either version.
const ACQUIRERS: u16 = 26;
const RENEWERS: u16 = 14;
pub(super) const HOLDERS: u16 = 10;

// === impl Load ===

impl Load {
    pub(super) fn new(certified: Certified, key: Option<String>) -> Arc<Self> {
        Arc::new(Self {
            certified,
            tally: Tally::default(),
            over: AtomicBool::new(false),
            key: Mutex::new(key),
        })
    }

    /// Starts all clients.
    pub(super) fn start(self: &Arc<Self>) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        for number in 0..ACQUIRERS {
            clients.spawn(acquire(Arc::clone(self), number));
        }
        for number in 0..RENEWERS {
            clients.spawn(renew(Arc::clone(self), number));
        }
        for number in 0..HOLDERS {
            clients.spawn(hold(Arc::clone(self), number));
        }
        clients
    }

    /// From now on every client ends as soon as it can.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// From now on every request shows this.
    pub(super) fn show(&self, key: &str) {
        *self.key.lock().unwrap() = Some(key.to_owned());
    }

    /// What is shown now.
    pub(super) fn key(&self) -> Option<String> {
        self.key.lock().unwrap().clone()
    }

    /// A request with what is shown now.
    pub(super) fn asks(&self, method: &'static str, path: &str) -> HttpRequest {
        let asked = HttpRequest::new(method, path.to_owned());
        match self.key() {
            Some(key) => asked.with("authorization", &key),
            None => asked,
        }
    }

    /// Waits until clients of each kind have gone on.
    pub(super) async fn goes_on(&self) {
        let progress = [
            ("turns", 2 * ACQUIRERS),
            ("renewals", 2 * RENEWERS),
            ("renewals by streams", HOLDERS),
        ];
        let before = progress.map(|(what, _)| self.tally.of(what));
        eventually("all go on", async || {
            let mut each = before.into_iter().zip(progress);
            let all =
                each.all(|(before, (what, more))| self.tally.of(what) >= before + u64::from(more));
            all.then_some(())
        })
        .await;
    }
}
