//! What has happened to a lock.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{
    lock::{FencingToken, LockName, Mode, Owner},
    with_all::with_all,
};

/// Something that has happened to a lock. Never with a token, nor anything that leads to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What has happened.
    pub kind: EventKind,
    /// To which lock; `None` with [`EventKind::Gap`], which concerns all.
    pub name: Option<LockName>,
    /// The fencing token of the lease, as far as there is one and it is known.
    pub fence: Option<FencingToken>,
    /// Who asked for it, as far as that was said and is known.
    pub owner: Option<Owner>,
    /// How the lease holds the lock, or is to hold it, as far as that is known.
    pub mode: Option<Mode>,
    /// What was left of the lease then.
    pub expires_in: Option<Duration>,
    /// For how long its holder had waited.
    pub waited: Option<Duration>,
    /// The place in the queue, from 1.
    pub position: Option<u64>,
    /// Why, if there is more to say than the kind does.
    pub reason: Option<Cow<'static, str>>,
    /// The API key that broke the lease or asked for its release, if there was one.
    pub by: Option<Arc<str>>,
    /// When, by the clock of the gateway where it happened. For display only.
    pub at: SystemTime,
}

with_all! {
    /// What has happened.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum EventKind {
        /// Somebody began to wait for the lock.
        Queued => "queued",
        /// Somebody holds the lock, by a new lease.
        Acquired => "acquired",
        /// A lease lasts longer.
        Renewed => "renewed",
        /// The holder of a lease was asked to release it within a time.
        ReleaseRequested => "release-requested",
        /// A lease has ended because its holder gave it back, or was gone.
        Released => "released",
        /// A lease has ended because its time was over.
        Expired => "expired",
        /// A stream that held the lock does not hold it any more.
        Lost => "lost",
        /// A lease has ended because somebody took it away.
        Broken => "broken",
        /// Events may be missing here.
        Gap => "gap",
    }
}

// === impl EventKind ===

impl EventKind {
    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Whether the lease is over with it.
    pub(super) fn ends_lease(self) -> bool {
        match self {
            Self::Released | Self::Expired | Self::Broken => true,
            Self::Queued
            | Self::Acquired
            | Self::Renewed
            | Self::ReleaseRequested
            | Self::Lost
            | Self::Gap => false,
        }
    }
}

// === impl Event ===

impl Event {
    /// Something about a lock, of which nothing more is known yet.
    pub(super) fn of(kind: EventKind, name: &LockName, at: SystemTime) -> Self {
        Self {
            name: Some(name.clone()),
            ..Self::bare(kind, at)
        }
    }

    /// Events may be missing here.
    pub(super) fn gap(reason: &'static str, at: SystemTime) -> Self {
        Self {
            reason: Some(reason.into()),
            ..Self::bare(EventKind::Gap, at)
        }
    }

    pub(super) fn bare(kind: EventKind, at: SystemTime) -> Self {
        Self {
            kind,
            name: None,
            fence: None,
            owner: None,
            mode: None,
            expires_in: None,
            waited: None,
            position: None,
            reason: None,
            by: None,
            at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_as_it_is_written() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_word(kind.as_str()), Some(kind));
        }
        assert_eq!(EventKind::from_word("Gap"), None);
    }
}
