//! The grant of a lock.

use std::time::Duration;

use tokio::time::Instant;

use crate::{FencingToken, LockName, Metadata, Mode, Owner, ReleaseRequest, Token, Ttl};

/// A lease as the store saw it when it answered.
///
/// Its times are relative to an instant of this gateway, because the clocks of gateways and stores differ. An
/// answer may be on its way for long, or the gateway stand still before it passes it on: whoever tells of a
/// lease tells of it as it is then ([`HeldLease::at`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    /// The fencing token of the grant.
    pub fence: FencingToken,
    /// With whom it shares the lock.
    pub mode: Mode,
    /// For how long the lease was last granted: what a renewal without a TTL of its own gives.
    pub ttl: Ttl,
    /// What was left of it at [`HeldLease::as_of`].
    pub expires_in: Duration,
    /// How long ago it was first granted.
    pub held_for: Duration,
    /// What is left until the hold limit, if it has one.
    pub hold_expires_in: Option<Duration>,
    /// Who asked for it.
    pub owner: Option<Owner>,
    /// What the holder attached to it.
    pub metadata: Metadata,
    /// Present if its holder was asked to release it.
    pub release_requested: Option<Box<ReleaseRequest>>,
    /// When its times count from, on this gateway's monotonic clock: no later than when the store decided. For a
    /// store that is asked over a network that is when the command was sent which it answered.
    pub as_of: Instant,
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
    /// What is left of it now, at least.
    #[must_use]
    pub fn left_at(&self, now: Instant) -> Duration {
        self.expires_in
            .saturating_sub(now.saturating_duration_since(self.as_of))
    }

    /// What its holder may count on. Of a lease that is to be released that is the time until it is broken: it lasts
    /// a little longer only in case that the gateway dies which is to break it.
    #[must_use]
    pub fn good_for(&self) -> Duration {
        let request = self.release_requested.as_ref();
        request.map_or(self.expires_in, |request| {
            self.expires_in.min(request.within)
        })
    }

    /// After how long its holder should renew it: a third of its TTL, or of what is left if that is less.
    #[must_use]
    pub fn renew_after(&self) -> Duration {
        self.good_for().min(self.ttl.duration()) / 3
    }

    /// The lease as it is now; nothing may be left of it.
    #[must_use]
    pub fn at(mut self, now: Instant) -> Self {
        let by = now.saturating_duration_since(self.as_of);
        let as_of = self.as_of + by;
        self.age(by, as_of);
        self
    }

    /// Makes the lease so much older, by a clock that knows it better than the one of `as_of`, which is then.
    pub fn age(&mut self, by: Duration, as_of: Instant) {
        self.expires_in = self.expires_in.saturating_sub(by);
        self.held_for += by;
        if let Some(left) = &mut self.hold_expires_in {
            *left = left.saturating_sub(by);
        }
        if let Some(request) = &mut self.release_requested {
            request.within = request.within.saturating_sub(by);
        }
        self.as_of = as_of;
    }

    /// Takes note that its holder was asked to release it. Of several requests the one with the earliest end counts.
    pub fn request_release(&mut self, request: &ReleaseRequest) {
        let before = self.release_requested.as_ref();
        if before.is_none_or(|before| before.within > request.within) {
            self.expires_in = self
                .expires_in
                .min(request.within + ReleaseRequest::BACKSTOP);
            self.release_requested = Some(Box::new(request.clone()));
        }
    }

    /// Whether it ends with its hold limit, beyond which no renewal goes.
    #[must_use]
    pub fn is_at_limit(&self) -> bool {
        self.hold_expires_in
            .is_some_and(|left| left <= self.expires_in)
    }

    /// Leaves out what the holder says of itself, for those who may not view the lock. Names every field, so that
    /// a new one is not shown to them by mistake.
    pub fn hide_details(&mut self) {
        let Self {
            owner,
            metadata,
            fence: _,
            mode: _,
            ttl: _,
            expires_in: _,
            held_for: _,
            hold_expires_in: _,
            release_requested,
            as_of: _,
        } = self;
        *owner = None;
        *metadata = Metadata::default();
        *release_requested = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lease that lasts for a minute more, with this left until its hold limit.
    fn lease(hold_expires_in: Option<Duration>) -> HeldLease {
        HeldLease {
            fence: FencingToken::new(1).unwrap(),
            mode: Mode::Exclusive,
            ttl: Ttl::MIN,
            expires_in: Duration::from_secs(60),
            held_for: Duration::from_secs(1),
            hold_expires_in,
            owner: None,
            metadata: Metadata::default(),
            release_requested: None,
            as_of: Instant::now(),
        }
    }

    #[test]
    fn goes_on_in_all_its_times_from_when_it_was_asked_for() {
        let seconds = Duration::from_secs;
        let lease = lease(Some(seconds(120)));
        let asked = lease.as_of;
        let later = lease.clone().at(asked + seconds(1));
        assert_eq!(later.expires_in, seconds(59));
        assert_eq!(later.held_for, seconds(2));
        assert_eq!(later.hold_expires_in, Some(seconds(119)));
        assert_eq!(later.left_at(asked + seconds(3)), seconds(57));
        assert_eq!(later.clone().at(asked), later, "time does not go back");
        assert_eq!(lease.left_at(asked + seconds(60)), Duration::ZERO);
        assert_eq!(lease.at(asked + seconds(61)).expires_in, Duration::ZERO);
    }

    #[test]
    fn ends_with_its_hold_limit_where_that_comes_first() {
        let minute = Duration::from_mins(1);
        assert!(lease(Some(minute)).is_at_limit());
        assert!(!lease(Some(2 * minute)).is_at_limit());
        assert!(!lease(None).is_at_limit());
    }
}
