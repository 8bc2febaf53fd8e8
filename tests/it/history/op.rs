//! A request with everything that came of it.

use super::line::{Ask, Mode, RecordedAnswer};

/// Stands for an instant that never comes.
pub(super) const NEVER: u64 = u64::MAX;
/// A millisecond in the unit of the stamps.
pub(super) const MS: u64 = 1_000_000;

/// A request with everything that came of it.
#[derive(Debug, Clone)]
pub(crate) struct Op {
    pub(super) by: String,
    pub(super) errand: String,
    pub(super) lock: String,
    pub(super) to: usize,
    pub(super) ask: Ask,
    /// The request for several locks that it is a part of.
    pub(super) group: Option<u64>,
    pub(super) asked: u64,
    /// The first answer. Without one it may still be carried out at any time.
    pub(super) heard: Option<(u64, RecordedAnswer)>,
    /// What a stream said later: when, and what was left then.
    pub(super) kept: Vec<(u64, u64)>,
    /// When its stream ended, its client hung up, or the process of its client was killed.
    pub(super) over: Option<u64>,
    /// Whether its client read the answer late because it was frozen.
    pub(super) read_late: bool,
    /// Whether the client hung up on purpose.
    pub(super) hung_up: bool,
    /// Whether it did so before anything was on its way.
    pub(super) early: bool,
}

/// What a client knows of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpOutcome {
    /// It has an answer that is an outcome.
    Known,
    /// It may have been carried out, or may yet be.
    Open,
}

// === impl Op ===

impl Op {
    /// When its outcome was known.
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

    /// When its client stopped waiting for it, whatever came of it.
    pub(super) fn given_up(&self) -> u64 {
        let heard = self.heard.as_ref().map(|(at, _)| *at);
        heard.into_iter().chain(self.over).min().unwrap_or(NEVER)
    }

    /// TTL and wait, if it asks for a lock.
    pub(super) fn wants(&self) -> Option<(u64, u64)> {
        match self.ask {
            Ask::Acquire {
                ttl_ms, wait_ms, ..
            }
            | Ask::Hold {
                ttl_ms, wait_ms, ..
            } => Some((ttl_ms * MS, wait_ms * MS)),
            _ => None,
        }
    }

    /// With whom it wants the lock, if it asks for one.
    pub(super) fn mode(&self) -> Mode {
        match self.ask {
            Ask::Acquire { mode, .. } | Ask::Hold { mode, .. } => mode,
            _ => Mode::Exclusive,
        }
    }

    pub(super) fn is_keyed(&self) -> bool {
        matches!(self.ask, Ask::Acquire { keyed: true, .. })
    }

    pub(super) fn is_hold(&self) -> bool {
        matches!(self.ask, Ask::Hold { .. })
    }

    /// Whether it was told that it does not get the lock.
    pub(super) fn was_refused(&self) -> bool {
        matches!(
            self.answer(),
            Some(RecordedAnswer::Locked { .. } | RecordedAnswer::Refused { .. })
        )
    }

    /// The fencing token that it was granted the lock with.
    pub(super) fn granted(&self) -> Option<u64> {
        match self.answer() {
            Some(RecordedAnswer::Granted { fence, .. }) => Some(*fence),
            _ => None,
        }
    }

    /// The lease that it is about, by its fencing token.
    pub(super) fn about(&self) -> Option<u64> {
        match self.ask {
            Ask::Renew { fence, .. } | Ask::Release { fence } | Ask::Break { fence, .. } => {
                Some(fence)
            }
            _ => None,
        }
    }

    /// Whether it asks for a lock as a part of a group, which may hold that lock before it has all.
    pub(super) fn is_part(&self) -> bool {
        self.group.is_some() && self.wants().is_some()
    }

    /// From when it may end the lease that it is about, if it may.
    pub(super) fn may_end_from(&self) -> Option<u64> {
        match self.ask {
            Ask::Release { .. } => Some(self.asked),
            Ask::Break { grace_ms, .. } => Some(self.asked + grace_ms.unwrap_or_default() * MS),
            _ => None,
        }
    }

    /// When the time of a holder was over at the latest that was asked by this to release its lease.
    pub(super) fn asks_until(&self) -> Option<u64> {
        match (&self.ask, self.answer()) {
            (Ask::Break { grace_ms, .. }, Some(RecordedAnswer::Requested)) => {
                Some(self.returned() + grace_ms.unwrap_or_default() * MS)
            }
            _ => None,
        }
    }
}
