//! A history, written by hand, in milliseconds.

use crate::history::{
    Ask, Event, History, Invariant, Line, Mode, RecordedAnswer, Report, Resource, Seen, Stage,
    Terms, Violation, check,
};

/// A history in the making. All is about one lock, but for what names another one.
#[derive(Default)]
pub(super) struct Story {
    lines: Vec<Line>,
    ops: u64,
}

/// The lock that it is all about.
pub(super) const LOCK: &str = "lock";
/// The terms of hand-written histories.
pub(super) const TERMS: Terms = Terms {
    grants_per_second: 0.0,
    slack: 1,
    grace_ms: 1_000,
    order_within_gateways: false,
    shares: false,
    cooperates: false,
};

// === impl Story ===

impl Story {
    /// A request without an answer so far.
    pub(super) fn asks(&mut self, at: u64, errand: &str, ask: Ask) -> u64 {
        self.asks_of(0, at, errand, ask)
    }

    /// The same of this gateway.
    pub(super) fn asks_of(&mut self, to: usize, at: u64, errand: &str, ask: Ask) -> u64 {
        self.asks_about((LOCK, to), at, errand, ask, None)
    }

    /// A request for the lock and another one as one, without an answer so far.
    pub(super) fn asks_for_both(
        &mut self,
        at: u64,
        errand: &str,
        other: &str,
        ask: &Ask,
    ) -> [u64; 2] {
        let group = self.ops + 1;
        [LOCK, other].map(|lock| self.asks_about((lock, 0), at, errand, ask.clone(), Some(group)))
    }

    /// A request about another lock, and its answer.
    pub(super) fn op_about(
        &mut self,
        lock: &str,
        (from, to): (u64, u64),
        errand: &str,
        ask: Ask,
        answer: RecordedAnswer,
    ) {
        let op = self.asks_about((lock, 0), from, errand, ask, None);
        self.hears(to, op, answer);
    }

    fn asks_about(
        &mut self,
        (lock, to): (&str, usize),
        at: u64,
        errand: &str,
        ask: Ask,
        group: Option<u64>,
    ) -> u64 {
        self.ops += 1;
        let event = Event::Asks {
            op: self.ops,
            errand: errand.to_owned(),
            lock: lock.to_owned(),
            to,
            ask,
            group,
        };
        self.line(at, event);
        self.ops
    }

    pub(super) fn hears(&mut self, at: u64, op: u64, answer: RecordedAnswer) {
        self.line(at, Event::Hears { op, answer });
    }

    pub(super) fn hangs_up(&mut self, at: u64, op: u64) {
        self.line(at, Event::HangsUp { op, early: true });
    }

    /// A request and its answer.
    pub(super) fn op(
        &mut self,
        (from, to): (u64, u64),
        errand: &str,
        ask: Ask,
        answer: RecordedAnswer,
    ) {
        let op = self.asks(from, errand, ask);
        self.hears(to, op, answer);
    }

    /// A grant for ten seconds.
    pub(super) fn granted(&mut self, span: (u64, u64), errand: &str, fence: u64) {
        self.op(span, errand, acquire(0), granted(fence));
    }

    /// A grant for ten seconds that shares the lock: with a limit, and then a slot, or without.
    pub(super) fn shared(
        &mut self,
        span: (u64, u64),
        errand: &str,
        fence: u64,
        slot: Option<(u64, u64)>,
    ) {
        let (limit, slot) = slot.unzip();
        self.op(span, errand, share(limit, 0), granted_slot(fence, slot));
    }

    /// Somebody looks, and sees several who share it, with their slots.
    pub(super) fn shown_shared(
        &mut self,
        span: (u64, u64),
        holders: &[(u64, &str, Option<u64>)],
        waits: &[&str],
    ) {
        let holders = holders
            .iter()
            .map(|&(fence, owner, slot)| seen(fence, owner, true, slot));
        self.looks(span, holders.collect(), waits);
    }

    /// Somebody looks, and sees these.
    pub(super) fn looks(&mut self, span: (u64, u64), holders: Vec<Seen>, waits: &[&str]) {
        let waiters = waits.iter().map(|&owner| owner.to_owned()).collect();
        let answer = RecordedAnswer::Shown { holders, waiters };
        self.op(span, "looks", Ask::Inspect, answer);
    }

    /// A release that is answered as one.
    pub(super) fn released(&mut self, span: (u64, u64), errand: &str, fence: u64) {
        self.releases(span, errand, fence, RecordedAnswer::Released);
    }

    /// A release that is answered in this way.
    pub(super) fn releases(
        &mut self,
        span: (u64, u64),
        errand: &str,
        fence: u64,
        answer: RecordedAnswer,
    ) {
        self.op(span, errand, Ask::Release { fence }, answer);
    }

    /// Somebody looks, and sees a holder.
    pub(super) fn shown(&mut self, span: (u64, u64), holder: Option<(u64, &str)>, waits: &[&str]) {
        let holder = holder.map(|(fence, owner)| seen(fence, owner, false, None));
        self.looks(span, holder.into_iter().collect(), waits);
    }

    /// A fault that was seen once.
    pub(super) fn fault(&mut self, span: (u64, u64), kind: &str, forgets: bool) {
        self.strike("redis", span, kind, forgets);
    }

    /// A fault of a process that forgets nothing.
    pub(super) fn fault_of(&mut self, target: &str, span: (u64, u64), kind: &str) {
        self.strike(target, span, kind, false);
    }

    fn strike(&mut self, target: &str, (from, to): (u64, u64), kind: &str, forgets: bool) {
        for (at, stage) in [
            (from, Stage::Begins),
            (from, Stage::Seen(1)),
            (to, Stage::Heals),
        ] {
            let event = Event::Fault {
                fault: from,
                kind: kind.to_owned(),
                target: target.to_owned(),
                forgets,
                stage,
            };
            self.line(at, event);
        }
    }

    /// A write by one who has read `base`.
    pub(super) fn writes(&mut self, at: u64, resource: Resource, fence: u64, base: u64, was: u64) {
        self.writes_in(None, at, resource, fence, (base, was));
    }

    /// The same in a slot.
    pub(super) fn writes_in(
        &mut self,
        slot: Option<u64>,
        at: u64,
        resource: Resource,
        fence: u64,
        (base, was): (u64, u64),
    ) {
        let event = Event::Writes {
            resource,
            lock: LOCK.to_owned(),
            fence,
            base,
            taken: true,
            was,
            slot,
        };
        self.line(at, event);
    }

    pub(super) fn line(&mut self, at: u64, event: Event) {
        self.lines.push(Line {
            at: at * 1_000_000,
            by: "client".to_owned(),
            event,
        });
    }

    /// What the checker says of it, after a way through the file.
    pub(super) fn told(&self, terms: &Terms) -> Report {
        let reread = self.lines.iter().map(|line| {
            let text = serde_json::to_string(line).unwrap();
            serde_json::from_str(&text).unwrap()
        });
        check(&History::read(reread), terms)
    }

    /// The promises that it breaks, each once.
    pub(super) fn breaks(&self) -> Vec<String> {
        let report = self.told(&TERMS);
        let which = |violation: &Violation| violation.invariant;
        let mut broken: Vec<Invariant> = report.violations.iter().map(which).collect();
        broken.sort();
        broken.dedup();
        broken.iter().map(ToString::to_string).collect()
    }

    /// This promise is broken, others may be.
    pub(super) fn finds(&self, invariant: &str) {
        let found = self.breaks();
        assert!(found.iter().any(|it| it == invariant), "{found:?}");
    }
}

/// One who is seen to hold it.
pub(super) fn seen(fence: u64, owner: &str, shares: bool, slot: Option<u64>) -> Seen {
    let owner = owner.to_owned();
    Seen {
        fence,
        owner,
        shares,
        slot,
    }
}

/// Asks for ten seconds.
pub(super) fn acquire(wait_ms: u64) -> Ask {
    ask(wait_ms, false, Mode::Exclusive)
}

/// The same with an idempotency key.
pub(super) fn keyed() -> Ask {
    ask(0, true, Mode::Exclusive)
}

fn ask(wait_ms: u64, keyed: bool, mode: Mode) -> Ask {
    Ask::Acquire {
        ttl_ms: 10_000,
        wait_ms,
        keyed,
        mode,
    }
}

/// A new lease of ten seconds.
pub(super) fn granted(fence: u64) -> RecordedAnswer {
    granted_slot(fence, None)
}

/// The same with a slot.
pub(super) fn granted_slot(fence: u64, slot: Option<u64>) -> RecordedAnswer {
    RecordedAnswer::Granted {
        fence,
        left_ms: 10_000,
        again: false,
        slot,
    }
}

/// Asks for ten seconds, to share the lock.
pub(super) fn share(limit: Option<u64>, wait_ms: u64) -> Ask {
    ask(wait_ms, false, Mode::Shared { limit })
}

/// Renews a lease for ten seconds.
pub(super) fn renew(fence: u64) -> Ask {
    Ask::Renew {
        fence,
        ttl_ms: 10_000,
    }
}

/// Says that a lease lasts for ten seconds from now.
pub(super) fn renewed(fence: u64) -> RecordedAnswer {
    renewed_slot(fence, None)
}

/// The same with a slot.
pub(super) fn renewed_slot(fence: u64, slot: Option<u64>) -> RecordedAnswer {
    RecordedAnswer::Renewed {
        fence,
        left_ms: 10_000,
        slot,
        asked_for: false,
    }
}

/// A refusal with this code.
pub(super) fn refused(code: &str) -> RecordedAnswer {
    let code = code.to_owned();
    RecordedAnswer::Refused { code }
}

/// Breaks a lease at once.
pub(super) fn break_of(fence: u64) -> Ask {
    Ask::Break {
        fence,
        grace_ms: None,
    }
}
