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
    /// Told when it is to be looked again at what is to end.
    look: Notify,
}

#[derive(Debug)]
struct State {
    /// The number of the next request.
    next: u32,
    open: BTreeMap<u32, Open>,
    /// Ends the request that has begun and is not run yet.
    begun: Option<Arc<Notify>>,
    /// For how long the other end may be silent before each of these requests ends.
    limits: BTreeMap<u32, Duration>,
    /// When the other end was asked last for a sign of life.
    asked: Option<Instant>,
    /// The same, if nothing has come since.
    silent_since: Option<Instant>,
    /// When the last of them had ended.
    idle_since: Instant,
    /// How many were given up since then.
    abandoned: (u32, Instant),
}

#[derive(Debug)]
struct Open {
    has_arrived: bool,
    /// Since when its client has taken nothing of an answer that is ready.
    unread_since: Option<Instant>,
    /// Told when it is to end; `None` when it has been.
    end: Option<Arc<Notify>>,
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
    /// Its client asks and does not wait for answers.
    Abandoned,
}

/// How many requests a client may give up in [`WINDOW`] before they are answered. More are no
/// change of mind: each costs the store two commands, and its sender next to nothing.
const MOST_ABANDONED: u32 = 256;
const WINDOW: Duration = Duration::from_secs(10);
/// How often it is looked at least whether something is to end.
const LOOK: Duration = Duration::from_secs(1);
/// The least time for a sign of life: less would find out slow lines.
const LEAST_SILENCE: Duration = Duration::from_secs(1);
/// In which part of the time for it a sign of life is asked for again.
const ASKS: u32 = 3;

// === impl Streams ===

impl Streams {
    pub(super) fn new() -> Arc<Self> {
        let now = Instant::now();
        let state = State {
            next: 1,
            open: BTreeMap::new(),
            begun: None,
            limits: BTreeMap::new(),
            asked: None,
            silent_since: None,
            idle_since: now,
            abandoned: (0, now),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            look: Notify::new(),
        })
    }

    /// A request has come, with its head at least.
    pub(super) fn begin(self: &Arc<Self>, room: Option<OwnedSemaphorePermit>) -> Arc<Stream> {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let end = Arc::new(Notify::new());
        state.begun = Some(Arc::clone(&end));
        let open = Open {
            has_arrived: false,
            unread_since: None,
            end: Some(end),
        };
        state.open.insert(number, open);
        Arc::new(Stream {
            streams: Arc::clone(self),
            number,
            is_answered: AtomicBool::new(false),
            _room: room,
        })
    }

    /// What ends the request that was begun last.
    pub(super) fn take_begun(&self) -> Arc<Notify> {
        // One that nobody tells anything lets the request go on.
        self.lock().begun.take().unwrap_or_default()
    }

    /// Ends a request when the other end of the connection has been silent for so long, although it was
    /// asked for a sign of life.
    pub(super) fn limit_silence(&self, number: u32, limit: Duration) {
        let limit = limit.max(LEAST_SILENCE);
        self.lock().limits.insert(number, limit);
    }

    /// Lets a request go on whether or not the other end is silent.
    pub(super) fn lift_limit(&self, number: u32) {
        self.lock().limits.remove(&number);
    }

    /// Whether the other end is to be asked for a sign of life, now that something is sent. Then it
    /// counts as asked.
    pub(super) fn asks(&self) -> bool {
        let asks = self.lock().asks();
        if asks {
            self.look.notify_one();
        }
        asks
    }

    /// Something has come from the other end.
    pub(super) fn heard(&self) {
        self.lock().silent_since = None;
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

    /// Ends when the connection is to end. `idle` is for how long nothing may be asked. Until then a
    /// request ends of whose answer nothing has been taken for as long as `unread`.
    pub(super) async fn over(&self, idle: Duration, unread: Duration) -> Over {
        loop {
            let now = Instant::now();
            let next = {
                let mut state = self.lock();
                state.end_unread(now, unread);
                state.end_unheard(now);
                if let Some(over) = state.over(now, idle) {
                    return over;
                }
                state.next_look(now).min(now + LOOK.min(idle).min(unread))
            };
            tokio::select! {
                () = self.look.notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    fn change(&self, number: u32, change: impl FnOnce(&mut Open)) {
        self.lock().change(number, change);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn over(&mut self, now: Instant, idle: Duration) -> Option<Over> {
        if self.abandoned.0 > MOST_ABANDONED {
            self.abandoned = (0, now);
            return Some(Over::Abandoned);
        }
        let is_idle = self.open.is_empty() && self.idle_since + idle <= now;
        is_idle.then_some(Over::Idle)
    }

    fn asks(&mut self) -> bool {
        let Some(least) = self.limits.values().min() else {
            return false;
        };
        let now = Instant::now();
        let is_asked = self.silent_since.is_some()
            || self.asked.is_some_and(|asked| now < asked + *least / ASKS);
        if !is_asked {
            (self.asked, self.silent_since) = (Some(now), Some(now));
        }
        !is_asked
    }

    /// Ends the requests whose client takes nothing of an answer.
    ///
    /// All on a connection share a window, so that one whose answer is not taken can keep back those of
    /// the others, who bear less of it. Before one of them ends, what was not taken for longer does.
    fn end_unread(&mut self, now: Instant, unread: Duration) {
        let waits = |(number, open): (&u32, &Open)| {
            open.end.as_ref()?;
            let limit = self.limits.get(number).map_or(unread, |it| unread.min(*it));
            let since = open.unread_since?;
            Some((since, *number, since + limit <= now))
        };
        let mut waiting: Vec<_> = self.open.iter().filter_map(waits).collect();
        waiting.sort_unstable();
        let mut waiting = waiting.into_iter();
        for (_, number, is_due) in waiting.by_ref() {
            if is_due {
                self.end(number);
                continue;
            }
            let kept_back: Vec<_> = waiting.filter(|(_, _, is_due)| *is_due).collect();
            if !kept_back.is_empty() {
                self.end(number);
            }
            for (_, number, _) in kept_back {
                self.change(number, |open| open.unread_since = Some(now));
            }
            return;
        }
    }

    /// Ends the requests that bear no longer that their client is silent.
    fn end_unheard(&mut self, now: Instant) {
        let Some(since) = self.silent_since else {
            return;
        };
        let over = |limit: Duration| since + limit <= now;
        let ends = self.limits.iter().filter(|(_, limit)| over(**limit));
        let ends: Vec<_> = ends.map(|(number, _)| *number).collect();
        for number in ends {
            self.end(number);
        }
    }

    fn end(&mut self, number: u32) {
        self.change(number, |open| {
            if let Some(end) = open.end.take() {
                end.notify_one();
            }
        });
    }

    fn change(&mut self, number: u32, change: impl FnOnce(&mut Open)) {
        if let Some(open) = self.open.get_mut(&number) {
            change(open);
        }
    }

    /// When the first request bears no longer that the other end is silent, if it is.
    fn next_look(&self, now: Instant) -> Instant {
        let ends = |number: &u32| self.open.get(number).is_some_and(|open| open.end.is_some());
        let limits = self.limits.iter().filter(|(number, _)| ends(number));
        let least = limits.map(|(_, limit)| *limit).min();
        let next = self.silent_since.zip(least);
        next.map_or(now + LOOK, |(since, limit)| since + limit)
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
        state.limits.remove(&self.number);
        state.idle_since = now;
        if !self.is_answered.load(Ordering::Relaxed) {
            let (count, since) = state.abandoned;
            state.abandoned = if now - since > WINDOW {
                (1, now)
            } else {
                (count + 1, since)
            };
            if count >= MOST_ABANDONED {
                self.streams.look.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests;
