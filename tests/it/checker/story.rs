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
        let holders = holders.iter().map(|&(fence, owner, slot)| Seen {
            fence,
            owner: owner.to_owned(),
            shares: true,
            slot,
        });
        let answer = RecordedAnswer::Shown {
            holders: holders.collect(),
            waiters: waits.iter().map(|&owner| owner.to_owned()).collect(),
        };
        self.op(span, "looks", Ask::Inspect, answer);
    }

    /// A release that is answered as one.
    pub(super) fn released(&mut self, span: (u64, u64), errand: &str, fence: u64) {
        self.op(
            span,
            errand,
            Ask::Release { fence },
            RecordedAnswer::Released,
        );
    }

    /// Somebody looks, and sees a holder.
    pub(super) fn shown(&mut self, span: (u64, u64), holder: Option<(u64, &str)>, waits: &[&str]) {
        let answer = RecordedAnswer::Shown {
            holders: holder
                .into_iter()
                .map(|(fence, owner)| Seen {
                    fence,
                    owner: owner.to_owned(),
                    shares: false,
                    slot: None,
                })
                .collect(),
            waiters: waits.iter().map(|&owner| owner.to_owned()).collect(),
        };
        self.op(span, "looks", Ask::Inspect, answer);
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
            self.line(
                at,
                Event::Fault {
                    fault: from,
                    kind: kind.to_owned(),
                    target: target.to_owned(),
                    forgets,
                    stage,
                },
            );
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
        self.line(
            at,
            Event::Writes {
                resource,
                lock: LOCK.to_owned(),
                fence,
                base,
                taken: true,
                was,
                slot,
            },
        );
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
}

/// Asks for ten seconds.
pub(super) fn acquire(wait_ms: u64) -> Ask {
    Ask::Acquire {
        ttl_ms: 10_000,
        wait_ms,
        keyed: false,
        mode: Mode::Exclusive,
    }
}

/// The same with an idempotency key.
pub(super) fn keyed() -> Ask {
    Ask::Acquire {
        ttl_ms: 10_000,
        wait_ms: 0,
        keyed: true,
        mode: Mode::Exclusive,
    }
}

/// A new lease of ten seconds.
pub(super) fn granted(fence: u64) -> RecordedAnswer {
    RecordedAnswer::Granted {
        fence,
        left_ms: 10_000,
        again: false,
        slot: None,
    }
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
    Ask::Acquire {
        ttl_ms: 10_000,
        wait_ms,
        keyed: false,
        mode: Mode::Shared { limit },
    }
}
