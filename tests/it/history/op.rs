//! A request of a client, with its answer and what happened to its connection.

use super::line::{Ask, Mode, RecordedAnswer, Reserve};

/// An instant that never comes.
pub(super) const NEVER: u64 = u64::MAX;
/// A millisecond in nanoseconds, the unit of the time stamps.
pub(super) const MS: u64 = 1_000_000;

/// How far the clock of the history and the wall clock of the store may move apart while a lock is reserved.
pub(super) const CLOCKS: u64 = 50 * MS;

/// A request of a client, with its answer and what happened to its connection.
#[derive(Debug, Clone)]
pub(crate) struct Op {
    pub(super) by: String,
    pub(super) errand: String,
    pub(super) lock: String,
    pub(super) to: usize,
    pub(super) ask: Ask,
    /// The group request that this request is a part of.
    pub(super) group: Option<u64>,
    pub(super) asked: u64,
    /// The first answer, with its time. A request without an answer may still be carried out at any time.
    pub(super) heard: Option<(u64, RecordedAnswer)>,
    /// The later events of a stream: when each arrived, and how long the lease lived from then.
    pub(super) kept: Vec<(u64, u64)>,
    /// When the stream ended, the client hung up, or the process of the client was killed.
    pub(super) over: Option<u64>,
    /// Whether the client read the answer late because it was frozen.
    pub(super) read_late: bool,
    /// Whether the client hung up on purpose.
    pub(super) hung_up: bool,
    /// Whether the client hung up before any answer was sent.
    pub(super) early: bool,
}

/// Whether the client knows the outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpOutcome {
    /// The request has an answer that says what happened.
    Known,
    /// The request may have been carried out, or may still be carried out later.
    Open,
}

// === impl Op ===

impl Op {
    /// When the client learned the outcome of the request; [`NEVER`] if it did not.
    pub(super) fn returned(&self) -> u64 {
        match (&self.heard, self.outcome()) {
            (Some((at, _)), OpOutcome::Known) => *at,
            _ => NEVER,
        }
    }

    pub(super) fn answer(&self) -> Option<&RecordedAnswer> {
        self.heard.as_ref().map(|(_, answer)| answer)
    }

    pub(super) fn outcome(&self) -> OpOutcome {
        match self.answer() {
            None | Some(RecordedAnswer::Unknown) => OpOutcome::Open,
            Some(_) => OpOutcome::Known,
        }
    }

    /// When the client stopped waiting for the answer: it had one, or the connection was over.
    pub(super) fn given_up(&self) -> u64 {
        let heard = self.heard.as_ref().map(|(at, _)| *at);
        heard.into_iter().chain(self.over).min().unwrap_or(NEVER)
    }

    /// TTL and wait of a request for a lock. A reservation lasts, and its request waits, until its end at the latest.
    pub(super) fn wants(&self) -> Option<(u64, u64)> {
        match self.ask {
            Ask::Acquire {
                reserve: Some(Reserve { until, .. }),
                wait_ms,
                ..
            } => {
                let left = until.saturating_sub(self.asked);
                Some((left, left.min(wait_ms * MS)))
            }
            Ask::Acquire {
                ttl_ms, wait_ms, ..
            }
            | Ask::Hold {
                ttl_ms, wait_ms, ..
            } => Some((ttl_ms * MS, wait_ms * MS)),
            _ => None,
        }
    }

    /// The mode of a request for a lock; exclusive for other requests.
    pub(super) fn mode(&self) -> Mode {
        match self.ask {
            Ask::Acquire { mode, .. } | Ask::Hold { mode, .. } => mode,
            _ => Mode::Exclusive,
        }
    }

    /// The end of the reservation that the request asks for.
    pub(super) fn reserved_until(&self) -> Option<u64> {
        match self.ask {
            Ask::Acquire { reserve, .. } => reserve.map(|it| it.until),
            _ => None,
        }
    }

    /// The latest time at which a lease that the request was granted ends if it is not renewed.
    pub(super) fn may_last(&self) -> Option<u64> {
        let (ttl, _) = self.wants()?;
        let reserved = self.reserved_until().map(|until| until + CLOCKS);
        Some(reserved.unwrap_or(self.returned().saturating_add(ttl)))
    }

    /// The minimum hold of a request for a lock.
    pub(super) fn min_hold(&self) -> u64 {
        match self.ask {
            Ask::Acquire { min_hold_ms, .. } => min_hold_ms * MS,
            _ => 0,
        }
    }

    /// The order of a request for a lock.
    pub(super) fn order(&self) -> Option<u64> {
        match self.ask {
            Ask::Acquire { order, .. } => order,
            _ => None,
        }
    }

    pub(super) fn is_keyed(&self) -> bool {
        matches!(self.ask, Ask::Acquire { keyed: true, .. })
    }

    pub(super) fn is_hold(&self) -> bool {
        matches!(self.ask, Ask::Hold { .. })
    }

    /// Whether the answer was that the request does not get the lock.
    pub(super) fn was_refused(&self) -> bool {
        matches!(
            self.answer(),
            Some(
                RecordedAnswer::Locked { .. }
                    | RecordedAnswer::Refused { .. }
                    | RecordedAnswer::Outdated { .. }
            )
        )
    }

    /// The fencing token of the lease that the request was granted.
    pub(super) fn granted(&self) -> Option<u64> {
        match self.answer() {
            Some(RecordedAnswer::Granted { fence, .. }) => Some(*fence),
            _ => None,
        }
    }

    /// How long the lease lasts, as the answer to a grant or to a renewal says.
    pub(super) fn left(&self) -> Option<u64> {
        match self.answer() {
            Some(
                RecordedAnswer::Granted { left_ms, .. } | RecordedAnswer::Renewed { left_ms, .. },
            ) => Some(left_ms * MS),
            _ => None,
        }
    }

    /// The fencing token of the lease that a renewal, release or break is about.
    pub(super) fn about(&self) -> Option<u64> {
        match self.ask {
            Ask::Renew { fence, .. } | Ask::Release { fence } | Ask::Break { fence, .. } => {
                Some(fence)
            }
            _ => None,
        }
    }

    /// Whether the request asks for a lock as a part of a group. A group may hold this lock before it has all locks.
    pub(super) fn is_part(&self) -> bool {
        self.group.is_some() && self.wants().is_some()
    }

    /// The time from which a release or a break may end its lease.
    pub(super) fn may_end_from(&self) -> Option<u64> {
        match self.ask {
            Ask::Release { .. } => Some(self.asked),
            Ask::Break { grace_ms, .. } => Some(self.asked + grace_ms.unwrap_or_default() * MS),
            _ => None,
        }
    }

    /// The latest end of the time that a break with a grace gave to the holder, if the holder was asked to release its
    /// lease.
    pub(super) fn asks_until(&self) -> Option<u64> {
        match (&self.ask, self.answer()) {
            (Ask::Break { grace_ms, .. }, Some(RecordedAnswer::Requested)) => {
                Some(self.returned() + grace_ms.unwrap_or_default() * MS)
            }
            _ => None,
        }
    }
}
