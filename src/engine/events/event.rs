//! What has happened to a lock, and which locks are listened to.

use std::{borrow::Cow, sync::Arc, time::Duration, time::SystemTime};

use crate::lock::{FencingToken, LockName, Owner};

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
    /// What was left of the lease then.
    pub expires_in: Option<Duration>,
    /// For how long its holder had waited.
    pub waited: Option<Duration>,
    /// The place in the queue, from 1.
    pub position: Option<u64>,
    /// Why, if there is more to say than the kind does.
    pub reason: Option<Cow<'static, str>>,
    /// When, by the clock of the gateway where it happened. For display only.
    pub at: SystemTime,
}

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Somebody began to wait for the lock.
    Queued,
    /// Somebody holds the lock, by a new lease.
    Acquired,
    /// A lease lasts longer.
    Renewed,
    /// A lease has ended because its holder gave it back, or was gone.
    Released,
    /// A lease has ended because its time was over.
    Expired,
    /// A stream that held the lock does not hold it any more.
    Lost,
    /// A lease has ended because somebody took it away.
    Broken,
    /// Events may be missing here.
    Gap,
}

/// The beginning of the names that are listened to; empty for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefix(Arc<str>);

/// Why no name begins with a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// It is longer than a name.
    #[error("has {0} bytes; a lock name has at most 200")]
    TooLong(usize),
    /// It holds a character that names do not have.
    #[error("has {0:?} in it; allowed are ASCII letters, digits and . _ : @ ~ -")]
    Character(char),
}

// === impl EventKind ===

impl EventKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Acquired,
        Self::Renewed,
        Self::Released,
        Self::Expired,
        Self::Lost,
        Self::Broken,
        Self::Gap,
    ];

    /// The kind in one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Acquired => "acquired",
            Self::Renewed => "renewed",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Lost => "lost",
            Self::Broken => "broken",
            Self::Gap => "gap",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Whether the lease is over with it.
    pub(super) fn ends_lease(self) -> bool {
        match self {
            Self::Released | Self::Expired | Self::Broken => true,
            Self::Queued | Self::Acquired | Self::Renewed | Self::Lost | Self::Gap => false,
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
            expires_in: None,
            waited: None,
            position: None,
            reason: None,
            at,
        }
    }
}

// === impl Prefix ===

impl Prefix {
    /// Checks a text and takes it as the beginning of names.
    pub fn new(text: &str) -> Result<Self, PrefixError> {
        if text.len() > LockName::MAX_LEN {
            return Err(PrefixError::TooLong(text.len()));
        }
        // A character that may stand in a name may stand there alone, but for the dot.
        let mut buffer = [0; 4];
        let stands = |&c: &char| c == '.' || LockName::new(c.encode_utf8(&mut buffer)).is_ok();
        match text.chars().find({
            let mut stands = stands;
            move |c| !stands(c)
        }) {
            Some(c) => Err(PrefixError::Character(c)),
            None => Ok(Self(text.into())),
        }
    }

    /// Whether a name begins so.
    pub fn begins(&self, name: &LockName) -> bool {
        name.as_str().starts_with(&*self.0)
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

    #[test]
    fn a_prefix_is_anything_that_a_name_may_begin_with() {
        let name = LockName::new("..a:b").unwrap();
        for prefix in ["", ".", "..", "..a:", "..a:b"] {
            assert!(Prefix::new(prefix).unwrap().begins(&name), "{prefix}");
        }
        for prefix in ["a", "..a:b:", "b"] {
            assert!(!Prefix::new(prefix).unwrap().begins(&name), "{prefix}");
        }
        assert_eq!(Prefix::new("a*"), Err(PrefixError::Character('*')));
        assert_eq!(Prefix::new("ä"), Err(PrefixError::Character('ä')));
        let long = "a".repeat(201);
        assert_eq!(Prefix::new(&long), Err(PrefixError::TooLong(201)));
    }
}
