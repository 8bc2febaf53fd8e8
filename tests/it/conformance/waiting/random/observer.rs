//! An observer of the clients that hold a lock, which asks no gateway.

use std::sync::MutexGuard;

use crate::conformance::prelude::*;

/// Records which client holds each lock, as the clients themselves report it.
pub(super) struct Observer {
    locks: Mutex<HashMap<String, Seen>>,
    how_to_repeat: String,
}

/// How a client got a lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Visit {
    /// When the client first asked.
    pub(super) asked: Instant,
    /// The time by which the client was certainly in the queue, and stayed there until it was granted the lock.
    pub(super) queued: Option<Instant>,
}

#[derive(Default)]
struct Seen {
    inside: Option<FencingToken>,
    /// The time from which the client inside does not trust its lease any more.
    trusted: Option<Instant>,
    visits: Vec<(FencingToken, Visit)>,
}

// === impl Observer ===

impl Observer {
    pub(super) fn new(how_to_repeat: String) -> Self {
        Self {
            locks: Mutex::default(),
            how_to_repeat,
        }
    }

    /// A client begins work that needs the lock. It stops when it does not trust its lease any more.
    pub(super) fn enter(
        &self,
        lock: &str,
        fence: FencingToken,
        visit: Visit,
        trusted: Option<Instant>,
    ) {
        let now = Instant::now();
        let mut locks = self.locks();
        let seen = locks.entry(lock.to_owned()).or_default();
        let alone = seen.inside.is_none() || seen.trusted.is_some_and(|until| until <= now);
        let (inside, last) = (seen.inside, seen.visits.last().map(|(fence, _)| *fence));
        seen.inside = Some(fence);
        seen.trusted = trusted;
        seen.visits.push((fence, visit));
        drop(locks);
        let repeat = &self.how_to_repeat;
        assert!(
            alone,
            "{inside:?} and {fence:?} are inside {lock}, {repeat}"
        );
        let expected = Some(fence) > last;
        assert!(expected, "{fence:?} came after {last:?}, {repeat}");
    }

    /// A client has stopped its work and is about to release.
    pub(super) fn leave(&self, lock: &str, fence: FencingToken) {
        let mut locks = self.locks();
        let seen = locks.entry(lock.to_owned()).or_default();
        let inside = seen.inside.take();
        drop(locks);
        assert_eq!(inside, Some(fence), "{}", self.how_to_repeat);
    }

    /// Asserts that a client that was queued before another asked was served before it.
    pub(super) fn check_order(&self) {
        for (lock, seen) in &*self.locks() {
            let mut compared = 0;
            for (i, (fence, early)) in seen.visits.iter().enumerate() {
                let Some(queued) = early.queued else { continue };
                for (passed, late) in &seen.visits[..i] {
                    compared += 1;
                    assert!(
                        late.asked <= queued,
                        "{passed:?} passed {fence:?} at {lock}, {}",
                        self.how_to_repeat
                    );
                }
            }
            assert!(compared > 0, "nobody was seen in the queue of {lock}");
        }
    }

    /// How often clients have held a lock.
    pub(super) fn visits(&self) -> usize {
        self.locks().values().map(|seen| seen.visits.len()).sum()
    }

    pub(super) fn how_to_repeat(&self) -> &str {
        &self.how_to_repeat
    }

    fn locks(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.locks
            .lock()
            .expect("nothing panics while it holds this")
    }
}
