//! What a connection is waiting for.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use http::HeaderMap;

use super::{framing::is_beyond_doubt, streams::Streams};

/// What a connection is waiting for. Only its own task changes it.
#[derive(Debug)]
pub(super) struct Pace {
    /// The lower two bits are the phase; the others count the changes, so that two idle times are
    /// not taken for one.
    state: AtomicU64,
    /// Whether the request that is handled has come to its end.
    arrived: AtomicBool,
    /// Whether something of the request after it has come.
    early: AtomicBool,
    /// How many lines that say `Content-Length` have come without having shown up as a header.
    unexplained_lengths: AtomicU32,
    /// Over HTTP/2, what is asked. The rest tells nothing then.
    streams: OnceLock<Arc<Streams>>,
}

/// What a connection is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// A request. Nothing of it has come, and all answers have left.
    Idle,
    /// The rest of the headers of a request. All answers have left.
    Head,
    /// The answer to a request. Its body has a time-out of its own.
    Busy,
    /// A client that is to take the rest of an answer.
    Leaving,
}

/// What would be missed if a connection were closed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Burden {
    /// It has never asked for anything.
    Never,
    /// It asks for nothing, or its request has not come whole.
    Silent,
    /// It has an answer that its client does not take.
    Unread,
    /// Something is done for it.
    Needed,
}

/// One phase of one connection: equal only to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch(u64);

const PHASE: u64 = 3;

// === impl Pace ===

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            state: AtomicU64::new(Phase::Idle as u64),
            arrived: AtomicBool::new(false),
            early: AtomicBool::new(false),
            unexplained_lengths: AtomicU32::new(0),
            streams: OnceLock::new(),
        }
    }

    /// The connection has several requests at once from now on.
    pub(super) fn has_streams(&self, streams: Arc<Streams>) {
        // A connection comes to HTTP/2 once.
        let _: Result<_, _> = self.streams.set(streams);
    }

    /// The head of a request has come.
    pub(super) fn busy(&self) {
        self.arrived.store(false, Ordering::Relaxed);
        self.early.store(false, Ordering::Relaxed);
        self.change(Phase::Busy);
    }

    /// Lines that say `Content-Length` have come.
    pub(super) fn lengths_came(&self, lines: u32) {
        if lines > 0 {
            self.unexplained_lengths.fetch_add(lines, Ordering::Relaxed);
        }
    }

    /// Whether it is beyond doubt where the request ends that has these headers.
    pub(super) fn ends_beyond_doubt(&self, headers: &HeaderMap) -> bool {
        let mut unexplained = self.unexplained_lengths.load(Ordering::Relaxed);
        let beyond_doubt = is_beyond_doubt(headers, &mut unexplained);
        self.unexplained_lengths
            .store(unexplained, Ordering::Relaxed);
        beyond_doubt
    }

    /// Whether something of a request may still come that has been answered already.
    pub(super) fn is_cut_short(&self) -> bool {
        !self.stretch().is_before_any_request() && !self.arrived.load(Ordering::Relaxed)
    }

    /// The request that is handled has come whole.
    pub(super) fn arrived(&self) {
        self.arrived.store(true, Ordering::Relaxed);
    }

    /// The answer is complete. Not all of it has left.
    pub(super) fn leaving(&self) {
        if self.phase() == Phase::Busy {
            self.change(Phase::Leaving);
        }
    }

    /// Something has come.
    pub(super) fn came(&self) {
        match self.phase() {
            Phase::Idle => self.change(Phase::Head),
            Phase::Head => {}
            // What comes before the end of a request may be its body. Bytes of the next request
            // that came in one piece with that end are not noticed: such a connection counts as
            // idle, which is what it could have been as well.
            Phase::Busy if !self.arrived.load(Ordering::Relaxed) => {}
            Phase::Busy | Phase::Leaving => self.early.store(true, Ordering::Relaxed),
        }
    }

    /// The client has taken something.
    pub(super) fn took(&self) {
        if self.phase() == Phase::Leaving {
            self.change(Phase::Leaving);
        }
    }

    /// Everything that was to be sent has been. Says whether that was the end of an answer.
    pub(super) fn left(&self) -> bool {
        let ended = self.phase() == Phase::Leaving;
        if ended {
            let early = self.early.swap(false, Ordering::Relaxed);
            self.change(if early { Phase::Head } else { Phase::Idle });
        }
        ended
    }

    pub(super) fn phase(&self) -> Phase {
        self.stretch().phase()
    }

    /// What would be missed if the connection were closed now.
    pub(super) fn burden(&self) -> Burden {
        if let Some(streams) = self.streams.get() {
            return streams.burden();
        }
        let now = self.stretch();
        match now.phase() {
            Phase::Idle | Phase::Head if now.is_before_any_request() => Burden::Never,
            Phase::Idle | Phase::Head => Burden::Silent,
            Phase::Busy if !self.arrived.load(Ordering::Relaxed) => Burden::Silent,
            Phase::Busy => Burden::Needed,
            Phase::Leaving => Burden::Unread,
        }
    }

    pub(super) fn stretch(&self) -> Stretch {
        Stretch(self.state.load(Ordering::Relaxed))
    }

    fn change(&self, phase: Phase) {
        let next = (self.stretch().0 | PHASE).wrapping_add(1) | phase as u64;
        self.state.store(next, Ordering::Relaxed);
    }
}

// === impl Stretch ===

impl Stretch {
    /// Whether it is one of the two that there are before the first request: nothing has come, and
    /// something has.
    fn is_before_any_request(self) -> bool {
        self.0 <= (PHASE + 1) | Phase::Head as u64
    }

    pub(super) fn phase(self) -> Phase {
        match self.0 & PHASE {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Busy,
            _ => Phase::Leaving,
        }
    }
}
