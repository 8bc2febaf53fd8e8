//! The grant of a lock.

use std::time::Duration;

use super::{FencingToken, LockName, Metadata, Owner, Token, Ttl};

/// A lease as the store sees it at the moment of its answer.
///
/// Times are relative to that moment, because the clocks of gateways and stores differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    /// The fencing token of the grant.
    pub fence: FencingToken,
    /// For how long the lease was last granted: what a renewal without a TTL of its own gives.
    pub ttl: Ttl,
    /// What is left of it.
    pub expires_in: Duration,
    /// How long ago it was first granted.
    pub held_for: Duration,
    /// What is left until the hold limit, if it has one.
    pub hold_expires_in: Option<Duration>,
    /// Who asked for it.
    pub owner: Option<Owner>,
    /// What the holder attached to it.
    pub metadata: Metadata,
}

/// A lease as its holder gets it, secret included.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The lock that is held.
    pub name: LockName,
    /// The secret that renews and releases it.
    pub token: Token,
    /// Its state in the store.
    pub held: HeldLease,
    /// How long the caller stood in the queue.
    pub waited: Duration,
}

// === impl HeldLease ===

impl HeldLease {
    /// The lease as it is so much later; `None` if it is over by then.
    #[must_use]
    pub fn later(self, by: Duration) -> Option<Self> {
        let left = self.expires_in.saturating_sub(by);
        (!left.is_zero()).then(|| Self {
            expires_in: left,
            held_for: self.held_for + by,
            hold_expires_in: self.hold_expires_in.map(|left| left.saturating_sub(by)),
            ..self
        })
    }

    /// Leaves out what the holder says of itself, for those who may not view the lock. Names every field, so that
    /// a new one is not shown to them by mistake.
    pub fn hide_details(&mut self) {
        let Self {
            owner,
            metadata,
            fence: _,
            ttl: _,
            expires_in: _,
            held_for: _,
            hold_expires_in: _,
        } = self;
        *owner = None;
        *metadata = Metadata::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_in_all_its_times_until_it_is_over() {
        let seconds = Duration::from_secs;
        let lease = HeldLease {
            fence: FencingToken::new(1).unwrap(),
            ttl: Ttl::MIN,
            expires_in: seconds(60),
            held_for: seconds(1),
            hold_expires_in: Some(seconds(120)),
            owner: None,
            metadata: Metadata::default(),
        };
        let later = lease.clone().later(seconds(1)).unwrap();
        assert_eq!(later.expires_in, seconds(59));
        assert_eq!(later.held_for, seconds(2));
        assert_eq!(later.hold_expires_in, Some(seconds(119)));
        assert_eq!(lease.later(seconds(60)), None);
    }
}
