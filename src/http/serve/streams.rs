//! The requests of one connection over HTTP/2, and what they wait for.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit},
    time::{Instant, sleep_until},
};

use super::pace::Burden;

/// The requests of one connection.
#[derive(Debug)]
pub(super) struct Streams {
    state: Mutex<State>,
    /// Told when too many were given up.
    abandoned: Notify,
}

#[derive(Debug)]
struct State {
    /// The number of the next request.
    next: u32,
    open: BTreeMap<u32, Open>,
    /// When the last of them had ended.
    idle_since: Instant,
    /// How many were given up since then.
    abandoned: (u32, Instant),
}

#[derive(Debug, Default)]
struct Open {
    has_arrived: bool,
    /// Since when its client has taken nothing of an answer that is ready.
    unread_since: Option<Instant>,
}

/// One request, from its head to the last byte of its answer that was handed on.
#[derive(Debug)]
pub(super) struct Stream {
    streams: Arc<Streams>,
    pub(super) number: u32,
    is_answered: AtomicBool,
    /// Its room among all requests of this kind, if it has to have some.
    _room: Option<OwnedSemaphorePermit>,
}

/// Why a connection is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// Nothing has been asked for too long.
    Idle,
    /// Its client takes nothing of an answer.
    Unread,
    /// Its client asks and does not wait for answers.
    Abandoned,
}

/// How many requests a client may give up in [`WINDOW`] before they are answered. More are no
/// change of mind: each costs the store two commands, and its sender next to nothing.
const MOST_ABANDONED: u32 = 256;
const WINDOW: Duration = Duration::from_secs(10);
/// How often it is looked at least whether a connection is to end.
const LOOK: Duration = Duration::from_secs(1);

// === impl Streams ===

impl Streams {
    pub(super) fn new() -> Arc<Self> {
        let now = Instant::now();
        let state = State {
            next: 1,
            open: BTreeMap::new(),
            idle_since: now,
            abandoned: (0, now),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            abandoned: Notify::new(),
        })
    }

    /// A request has come, with its head at least.
    pub(super) fn begin(self: &Arc<Self>, room: Option<OwnedSemaphorePermit>) -> Arc<Stream> {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.open.insert(number, Open::default());
        Arc::new(Stream {
            streams: Arc::clone(self),
            number,
            is_answered: AtomicBool::new(false),
            _room: room,
        })
    }

    /// What would be missed if the connection were closed now.
    pub(super) fn burden(&self) -> Burden {
        let state = self.lock();
        if state.next == 1 {
            return Burden::Never;
        }
        let mut burden = Burden::Silent;
        for open in state.open.values() {
            match open {
                Open {
                    unread_since: Some(_),
                    ..
                } => burden = Burden::Unread,
                Open {
                    has_arrived: true, ..
                } => return Burden::Needed,
                Open { .. } => {}
            }
        }
        burden
    }

    /// The client has been told that the connection ends: if it asks for nothing, its time to close
    /// begins now.
    pub(super) fn leave(&self) {
        self.lock().idle_since = Instant::now();
    }

    /// Ends when the connection is to end. `idle` is for how long nothing may be asked, `unread` for
    /// how long nothing may be taken.
    pub(super) async fn over(&self, idle: Duration, unread: Duration) -> Over {
        loop {
            let now = Instant::now();
            if let Some(over) = self.lock().over(now, idle, unread) {
                return over;
            }
            tokio::select! {
                () = self.abandoned.notified() => {}
                () = sleep_until(now + LOOK.min(idle).min(unread)) => {}
            }
        }
    }

    fn change(&self, number: u32, change: impl FnOnce(&mut Open)) {
        if let Some(open) = self.lock().open.get_mut(&number) {
            change(open);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn over(&mut self, now: Instant, idle: Duration, unread: Duration) -> Option<Over> {
        if self.abandoned.0 > MOST_ABANDONED {
            self.abandoned = (0, now);
            return Some(Over::Abandoned);
        }
        if self.open.is_empty() {
            return (self.idle_since + idle <= now).then_some(Over::Idle);
        }
        let mut unread_since = self.open.values().filter_map(|open| open.unread_since);
        let is_over = unread_since.any(|since| since + unread <= now);
        is_over.then_some(Over::Unread)
    }
}

// === impl Stream ===

impl Stream {
    /// The request has come whole.
    pub(super) fn arrived(&self) {
        self.streams
            .change(self.number, |open| open.has_arrived = true);
    }

    /// There is an answer, or more of it: its client is to take it.
    pub(super) fn is_for_the_client(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
        let now = Instant::now();
        self.streams
            .change(self.number, |open| open.unread_since = Some(now));
    }

    /// There is no more of the answer yet, and its client has taken what there was.
    pub(super) fn is_for_us(&self) {
        self.streams
            .change(self.number, |open| open.unread_since = None);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.streams.lock();
        let now = Instant::now();
        state.open.remove(&self.number);
        state.idle_since = now;
        if !self.is_answered.load(Ordering::Relaxed) {
            let (count, since) = state.abandoned;
            state.abandoned = if now - since > WINDOW {
                (1, now)
            } else {
                (count + 1, since)
            };
            if count >= MOST_ABANDONED {
                self.streams.abandoned.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(75);

    #[tokio::test(start_paused = true)]
    async fn a_connection_on_which_nothing_is_asked_is_over_and_one_that_waits_is_not() {
        let streams = Streams::new();
        let began = Instant::now();
        let waiting = streams.begin(None);
        waiting.arrived();
        let over = tokio::time::timeout(10 * IDLE, streams.over(IDLE, IDLE)).await;
        assert!(over.is_err());
        waiting.is_for_the_client();
        drop(waiting);
        assert_eq!(streams.over(IDLE, IDLE).await, Over::Idle);
        let elapsed = began.elapsed();
        assert!(elapsed >= 11 * IDLE && elapsed < 11 * IDLE + 2 * LOOK);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_taken_ends_the_connection_and_one_that_is_does_not() {
        let streams = Streams::new();
        let answered = streams.begin(None);
        for _ in 0..10 {
            answered.is_for_the_client();
            let over = tokio::time::timeout(IDLE / 2, streams.over(IDLE, IDLE)).await;
            assert!(over.is_err());
        }
        answered.is_for_us();
        let over = tokio::time::timeout(10 * IDLE, streams.over(IDLE, IDLE)).await;
        assert!(over.is_err());
        answered.is_for_the_client();
        assert_eq!(streams.over(IDLE, IDLE).await, Over::Unread);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_gives_up_one_request_after_the_other_is_not_heard_any_more() {
        let streams = Streams::new();
        for _ in 0..MOST_ABANDONED {
            drop(streams.begin(None));
            streams.begin(None).is_for_the_client();
        }
        let soon = Duration::from_secs(1);
        assert!(
            tokio::time::timeout(soon, streams.over(IDLE, IDLE))
                .await
                .is_err()
        );
        drop(streams.begin(None));
        let began = Instant::now();
        assert_eq!(streams.over(IDLE, IDLE).await, Over::Abandoned);
        assert_eq!(began.elapsed(), Duration::ZERO, "it is found out at once");
        // It is said once.
        assert!(
            tokio::time::timeout(soon, streams.over(IDLE, IDLE))
                .await
                .is_err()
        );

        let patient = Streams::new();
        for _ in 0..=MOST_ABANDONED {
            drop(patient.begin(None));
            tokio::time::advance(Duration::from_millis(50)).await;
        }
        assert!(
            tokio::time::timeout(soon, patient.over(IDLE, IDLE))
                .await
                .is_err()
        );
    }

    #[test]
    fn the_burden_is_that_of_the_request_that_would_be_missed_most() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        let streams = Streams::new();
        assert_eq!(streams.burden(), Burden::Never);
        let slow = streams.begin(None);
        assert_eq!(streams.burden(), Burden::Silent);
        let unread = streams.begin(None);
        unread.arrived();
        unread.is_for_the_client();
        assert_eq!(streams.burden(), Burden::Unread);
        slow.arrived();
        assert_eq!(streams.burden(), Burden::Needed);
        drop((slow, unread));
        assert_eq!(streams.burden(), Burden::Silent);
    }
}
