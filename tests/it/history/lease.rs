//! A lease as far as its holder can know it.

use super::{
    line::{Ask, Mode, RecordedAnswer},
    op::{MS, NEVER, Op, OpOutcome},
};

/// A lease as far as its holder can know it.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(super) lock: String,
    pub(super) fence: u64,
    pub(super) mode: Mode,
    pub(super) slot: Option<u64>,
    pub(super) errand: String,
    /// Through which gateway it was granted, where only one was asked.
    pub(super) to: Option<usize>,
    pub(super) keyed: bool,
    /// Whether it is kept by a stream.
    pub(super) streamed: bool,
    /// When it was asked for: the first request of the errand.
    pub(super) asked: u64,
    /// When somebody first heard of it.
    pub(super) granted: u64,
    /// Until when it certainly lasts unless it is ended: time counts from when a request was sent.
    pub(super) lasts: u64,
    /// Until when its holder believes that it lasts, by the rule that the documentation gives to clients.
    pub(super) believed: u64,
    /// Until when it lasts at most; never over while a renewal is open.
    pub(super) may_last: u64,
    /// From when somebody may have ended it: a release or a break was sent, or its stream was over.
    pub(super) ending: u64,
    /// When it certainly had ended, because that was answered.
    pub(super) ended: u64,
    /// From when it may be broken because its holder was asked to release it.
    pub(super) asked_for: u64,
    /// When it has ended because of that, whatever its holder and its gateway do.
    pub(super) carried_out: u64,
}

/// How much longer than asked a lease may last if the gateway has stopped that would have broken it.
pub(super) const BACKSTOP: u64 = 1_000 * MS;

/// What a client leaves for the way of an answer when it counts from when it has received it. Here that is the time for
/// which it may not run on a machine that does other things.
const TRAVEL: u64 = 300 * MS;

/// Until when a client relies on what an answer says is left: from when it has received it.
fn believed(op: &Op, left_ms: u64) -> u64 {
    let left = (left_ms * MS).saturating_sub(TRAVEL);
    // One that was frozen cannot know for how long the answer was there.
    if op.read_late {
        0
    } else {
        op.returned().saturating_add(left)
    }
}

// === impl Lease ===

impl Lease {
    /// What is known of a lease by the grant of it.
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
            asked,
            granted: heard,
            lasts: op.asked.saturating_add(left_ms * MS),
            believed: believed(op, left_ms),
            may_last: heard.saturating_add(ttl),
            ending: NEVER,
            ended: NEVER,
            asked_for: NEVER,
            carried_out: NEVER,
        };
        for (at, left_ms) in &op.kept {
            // A stream is believed as the documentation says: from when its event arrived.
            lease.lasts = lease.lasts.max(at + left_ms * MS);
            lease.may_last = lease.may_last.max(at + ttl);
        }
        if op.is_hold() {
            // A gateway renews it until it finds out that the stream is over.
            lease.ending = op.over.unwrap_or(NEVER);
            lease.may_last = op.over.map_or(NEVER, |over| over.saturating_add(ttl));
        }
        lease
    }

    /// Another answer that tells of the same grant.
    pub(super) fn again(&mut self, other: &Self) {
        self.asked = self.asked.min(other.asked);
        self.granted = self.granted.min(other.granted);
        self.lasts = self.lasts.max(other.lasts);
        self.believed = self.believed.max(other.believed);
        self.may_last = self.may_last.max(other.may_last);
        self.ending = self.ending.min(other.ending);
    }

    /// Takes in what was asked about it later.
    pub(super) fn note(&mut self, op: &Op) {
        match (&op.ask, op.answer()) {
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

    /// Until when its holder relies on it.
    pub(super) fn relied_on(&self) -> u64 {
        self.lasts.max(self.believed).min(self.ending)
    }

    /// When the lock is free again at the latest.
    pub(super) fn free(&self) -> u64 {
        self.may_last.min(self.ended)
    }
}
