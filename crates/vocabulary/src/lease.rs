//! A granted lease: its state, and what its holder receives.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    CollectionMark, FencingToken, LockName, Mode, ReleaseRequest, Reservation, Said, Token, Ttl,
};

/// The state of a lease, as the store reported it.
///
/// Its times are relative to an instant of this gateway's clock, because the clocks of gateways and stores differ.
/// The reply of the store may be delayed on its way or in the gateway: before it reports a lease to a caller, the
/// gateway brings the times up to date with [`HeldLease::at`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    /// The fencing token of the lease.
    pub fence: FencingToken,
    /// Whether the lease is exclusive or shared, and its slot.
    pub mode: Mode,
    /// Whether the lease was released before its minimum hold was over, and only keeps the lock or the slot from being
    /// granted until then. Its token is dead.
    pub is_resting: bool,
    /// The TTL of the last grant or renewal. A renewal whose request names no TTL uses this TTL again.
    pub ttl: Ttl,
    /// The time left before the lease expires, counted from [`HeldLease::as_of`].
    pub expires_in: Duration,
    /// The time since the lease was first granted, counted to [`HeldLease::as_of`].
    pub held_for: Duration,
    /// The time left until the hold limit of the lease, if it has one, counted from [`HeldLease::as_of`]. A reservation
    /// has one: its end.
    pub hold_expires_in: Option<Duration>,
    /// The reservation that the lease is, if it is one.
    pub reservation: Option<Box<Reservation>>,
    /// What the caller of the lease said of itself.
    pub said: Said,
    /// The release request, if a caller has asked the holder to release the lease.
    pub release_requested: Option<Box<ReleaseRequest>>,
    /// The instant on this gateway's monotonic clock from which the times of this lease count. It is no later than the
    /// store's decision: for a store behind a network, the gateway sent the answered command at this instant.
    pub as_of: Instant,
}

/// A lease as its holder receives it, with the secret token.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The lock that is held.
    pub name: LockName,
    /// The secret that renews and releases the lease.
    pub token: Token,
    /// The state of the lease in the store.
    pub held: HeldLease,
    /// How long the caller waited in the queue.
    pub waited: Duration,
}

// === impl HeldLease ===

impl HeldLease {
    /// The time that is certainly left of the lease at the instant `now`.
    #[must_use]
    pub fn left_at(&self, now: Instant) -> Duration {
        self.expires_in
            .saturating_sub(now.saturating_duration_since(self.as_of))
    }

    /// The time for which the holder may count on the lease. After a release request, the time ends when the gateway
    /// breaks the lease. If that gateway dies, the lease lasts longer, by at most [`ReleaseRequest::BACKSTOP`].
    #[must_use]
    pub fn good_for(&self) -> Duration {
        let request = self.release_requested.as_ref();
        request.map_or(self.expires_in, |request| {
            self.expires_in.min(request.within)
        })
    }

    /// The time after which the holder should renew the lease: a third of its TTL, or of the time left if that is less.
    #[must_use]
    pub fn renew_after(&self) -> Duration {
        self.good_for().min(self.ttl.duration()) / 3
    }

    /// The lease with its times brought up to date to `now`; the time left may be zero.
    #[must_use]
    pub fn at(mut self, now: Instant) -> Self {
        let by = now.saturating_duration_since(self.as_of);
        let as_of = self.as_of + by;
        self.age(by, as_of);
        self
    }

    /// Makes the lease older by `by`, and sets [`HeldLease::as_of`], from which its times count, to `as_of`. The
    /// duration is a separate argument, because a caller may know it more exactly than the difference between the old
    /// and the new `as_of`.
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

    /// Records a release request for the lease. Of several requests, the request with the earliest end counts.
    pub fn request_release(&mut self, request: &ReleaseRequest) {
        let before = self.release_requested.as_ref();
        if before.is_none_or(|before| before.within > request.within) {
            self.expires_in = self
                .expires_in
                .min(request.within + ReleaseRequest::BACKSTOP);
            self.release_requested = Some(Box::new(request.clone()));
        }
    }

    /// Whether the lease ends at its hold limit, so that a renewal cannot extend it.
    #[must_use]
    pub fn is_at_limit(&self) -> bool {
        self.hold_expires_in
            .is_some_and(|left| left <= self.expires_in)
    }

    /// The mark of the group to which the lease belongs, as long as the group is collected: the caller has not got the
    /// lock yet.
    #[must_use]
    pub fn mark(&self) -> Option<&CollectionMark> {
        let mark = self.said.group.as_ref()?.mark.as_ref();
        mark.filter(|mark| self.ttl == mark.ttl.while_collected())
    }

    /// Whether the lease only keeps its lock for a group that is collected, and that needs other locks.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.mark().is_some_and(|mark| mark.next.is_some())
    }

    /// Whether the lease is a reservation of the caller with this mark. Without an API key, nobody can be told from the
    /// caller that has made the reservation.
    #[must_use]
    pub fn is_reserved_by(&self, mark: Option<&Arc<str>>) -> bool {
        let reservation = self.reservation.as_ref();
        reservation.is_some_and(|it| mark.is_some() && it.by.as_ref() == mark)
    }

    /// Removes what other callers have said, the reservation and the release request, for callers that may not view the
    /// lock. The pattern names every field, so that a field added later cannot be shown to such callers by mistake.
    pub fn hide_details(&mut self) {
        let Self {
            said,
            reservation,
            fence: _,
            mode: _,
            is_resting: _,
            ttl: _,
            expires_in: _,
            held_for: _,
            hold_expires_in: _,
            release_requested,
            as_of: _,
        } = self;
        *said = Said::default();
        *reservation = None;
        *release_requested = None;
    }
}

#[cfg(test)]
mod tests {
    use crate::Terms;

    use super::*;

    /// A lease for tests that ends in one minute, with the given time left until its hold limit.
    fn lease(hold_expires_in: Option<Duration>) -> HeldLease {
        let terms = Terms::lasting(Ttl::MIN);
        HeldLease {
            expires_in: Duration::from_mins(1),
            held_for: Duration::from_secs(1),
            hold_expires_in,
            ..terms.granted(
                FencingToken::new(1).unwrap(),
                Mode::Exclusive,
                Instant::now(),
            )
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
