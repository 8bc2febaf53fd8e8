//! A lease, as the answers to its holder and to other callers describe it.

use super::{
    line::{Ask, Mode, RecordedAnswer},
    op::{MS, NEVER, Op, OpOutcome},
};

/// A lease: what the answers of a history say about its times, its mode and its end.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(super) lock: String,
    pub(super) fence: u64,
    pub(super) mode: Mode,
    pub(super) slot: Option<u64>,
    pub(super) errand: String,
    /// The gateway that granted the lease, if its errand asked only one.
    pub(super) to: Option<usize>,
    pub(super) keyed: bool,
    /// Whether a stream keeps the lease.
    pub(super) streamed: bool,
    /// For how long after its grant the lock rests if the lease is released earlier.
    pub(super) min_hold: u64,
    /// The end of the lease if it is a reservation, which no renewal moves.
    pub(super) reserved_until: Option<u64>,
    pub(super) order: Option<u64>,
    /// When the first request of the errand was sent.
    pub(super) asked: u64,
    /// When a client first received an answer with this grant.
    pub(super) granted: u64,
    /// The time until which the lease certainly lives if nobody ends it, counted from when each request was sent.
    pub(super) lasts: u64,
    /// The time until which the holder believes that the lease lives, by the rule that the documentation gives to
    /// clients.
    pub(super) believed: u64,
    /// The latest time at which the TTL may end; [`NEVER`] while a renewal has no answer.
    pub(super) may_last: u64,
    /// The time from which a client may have ended the lease: a release or a break was sent, or its stream was over.
    pub(super) ending: u64,
    /// When an answer to a release or a break showed that the lease had ended.
    pub(super) ended: u64,
    /// The time from which the lease may be broken because its holder was asked to release it.
    pub(super) asked_for: u64,
    /// The time at which a release request has ended the lease, whatever its holder and its gateway do.
    pub(super) carried_out: u64,
}

/// How long after the time of a release request the lease may still live if the gateway that should break it has
/// stopped.
pub(super) const BACKSTOP: u64 = 1_000 * MS;

/// Safety margin of a client that counts a TTL from when it received the answer. The margin covers the travel of the
/// answer; here it covers the time in which a busy machine does not run the client.
const TRAVEL: u64 = 300 * MS;

/// The time until which a client relies on an answer with `left_ms`, counted from when the client received it.
fn believed(op: &Op, left_ms: u64) -> u64 {
    let left = (left_ms * MS).saturating_sub(TRAVEL);
    // A client that was frozen cannot know how long ago the answer arrived.
    if op.read_late {
        0
    } else {
        op.returned().saturating_add(left)
    }
}

// === impl Lease ===

impl Lease {
    /// The lease of an answer that granted it.
    pub(super) fn granted(
        op: &Op,
        to: Option<usize>,
        asked: u64,
        (fence, slot): (u64, Option<u64>),
        left_ms: u64,
    ) -> Self {
        let (ttl, _) = op.wants().unwrap_or_default();
        let heard = op.returned();
        let mut lease = Self {
            lock: op.lock.clone(),
            fence,
            mode: op.mode(),
            slot,
            errand: op.errand.clone(),
            to,
            keyed: op.is_keyed(),
            streamed: op.is_hold(),
            min_hold: op.min_hold(),
            reserved_until: op.reserved_until(),
            order: op.order(),
            asked,
            granted: heard,
            lasts: op.asked.saturating_add(left_ms * MS),
            believed: believed(op, left_ms),
            may_last: op.may_last().unwrap_or(heard),
            ending: NEVER,
            ended: NEVER,
            asked_for: NEVER,
            carried_out: NEVER,
        };
        for (at, left_ms) in &op.kept {
            // The holder counts the time of a stream's event from when the event arrived, as the documentation says.
            lease.lasts = lease.lasts.max(at + left_ms * MS);
            lease.may_last = lease.may_last.max(at + ttl);
        }
        if op.is_hold() {
            // The gateway renews the lease until it notices that the stream is over.
            lease.ending = op.over.unwrap_or(NEVER);
            lease.may_last = op.over.map_or(NEVER, |over| over.saturating_add(ttl));
        }
        lease
    }

    /// Merges another answer about the same grant.
    pub(super) fn again(&mut self, other: &Self) {
        self.asked = self.asked.min(other.asked);
        self.granted = self.granted.min(other.granted);
        self.lasts = self.lasts.max(other.lasts);
        self.believed = self.believed.max(other.believed);
        self.may_last = self.may_last.max(other.may_last);
        self.ending = self.ending.min(other.ending);
    }

    /// Takes in a later renewal, release or break of the lease.
    pub(super) fn note(&mut self, op: &Op) {
        match (&op.ask, op.answer()) {
            (Ask::Renew { .. }, _) if self.reserved_until.is_some() => {}
            (Ask::Renew { .. }, Some(RecordedAnswer::Renewed { left_ms, .. })) => {
                self.lasts = self.lasts.max(op.asked + left_ms * MS);
                self.believed = self.believed.max(believed(op, *left_ms));
                self.may_last = self.may_last.max(op.returned() + left_ms * MS);
            }
            (Ask::Renew { .. }, _) if op.outcome() == OpOutcome::Open => self.may_last = NEVER,
            (Ask::Break { .. } | Ask::Release { .. }, Some(RecordedAnswer::Refused { .. })) => {}
            (
                Ask::Break {
                    grace_ms: Some(_), ..
                },
                _,
            ) => {
                let from = op.may_end_from().unwrap_or(NEVER);
                self.asked_for = self.asked_for.min(from);
                self.ending = self.ending.min(from);
                let until = op.asks_until().unwrap_or(NEVER);
                self.carried_out = self.carried_out.min(until.saturating_add(BACKSTOP));
            }
            (Ask::Release { .. }, Some(RecordedAnswer::Released))
            | (Ask::Break { .. }, Some(RecordedAnswer::Broken)) => {
                self.ending = self.ending.min(op.asked);
                self.ended = self.ended.min(op.returned());
            }
            (Ask::Release { .. } | Ask::Break { .. }, _) => {
                self.ending = self.ending.min(op.asked);
            }
            _ => {}
        }
    }

    /// The time until which the holder relies on the lease.
    pub(super) fn relied_on(&self) -> u64 {
        self.lasts.max(self.believed).min(self.ending)
    }

    /// The latest time at which the lease, and the rest that it may leave, have ended.
    pub(super) fn free(&self) -> u64 {
        self.may_last
            .min(self.ended.max(self.granted + self.min_hold))
    }
}
