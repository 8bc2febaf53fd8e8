//! Leases in the memory of the embedded store, and the clock by which they expire.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use crate::{
    clock::Clock,
    lock::{
        Ends, FencingToken, HeldLease, IdempotencyHash, Mode, Reason, RecipientId, ReleaseRequest,
        Reservation, Said, TokenHash, Ttl,
    },
    store::contract::{Attempt, Idempotency, RenewalTtl},
};

/// A lease that lives, or has ended and is not yet cleared away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) fence: FencingToken,
    pub(crate) mode: Mode,
    pub(crate) token: TokenHash,
    pub(crate) ttl: Ttl,
    pub(crate) granted_at: Moment,
    pub(crate) expires_at: Moment,
    pub(crate) ends: LeaseEnds,
    pub(crate) rests: Rest,
    pub(crate) said: Said,
    /// Boxed: most leases have no idempotency key, and a key is as large as the rest of the lease.
    pub(crate) key: Option<Box<LeaseKey>>,
    /// Present if the holder was asked to release the lease. Boxed, because a release request is rare.
    pub(crate) request: Option<Box<LeaseRequest>>,
    /// The recipient that has adopted the lease; `None` while its own attempt is the recipient. In memory only: a
    /// recipient keeps a lease by a connection to this process.
    pub(crate) recipient: Option<Box<RecipientId>>,
}

/// How a lease ends, unless it is released or broken before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaseEnds {
    /// With its TTL, and at the latest at this moment, if it has a hold limit.
    Ttl(Option<Moment>),
    /// At the time of this reservation, which is this moment by the wall clock.
    At(Box<Reservation>, Moment),
}

/// Whether the lock rests after a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The lease has no minimum hold.
    Never,
    /// If the lease is released before this moment, the lock or the slot rests until then.
    Until(Moment),
    /// The lease was released, and the lock or the slot rests until its end.
    Now,
}

/// A request to the holder of a lease to release the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseRequest {
    pub(crate) by: Option<Arc<str>>,
    pub(crate) reason: Reason,
    /// The time until which the holder should release the lease.
    pub(crate) until: Moment,
}

/// The end of a lease. The fencing token distinguishes leases with the same end.
pub(crate) type Expiry = (Moment, FencingToken);

/// The idempotency key under which a lease was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseKey {
    pub(crate) idempotency: Idempotency,
    pub(crate) delivery: LeaseDelivery,
    /// Since when the position was queued, if the lease was granted to a kept position. In memory only, for the answer
    /// to a later request with the key.
    pub(crate) queued_since: Option<Moment>,
}

/// Which callers may know of a lease with an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseDelivery {
    /// No caller knows of the lease: it was granted to a position that is kept for a later request with the key.
    Never,
    /// The caller of the attempt that was granted the lease may know of it.
    Once,
    /// A caller that asked again under the key may know of the lease. The lease is then not given back.
    Again,
}

// === impl Lease ===

impl Lease {
    /// Creates the lease that an attempt is granted now.
    pub(crate) fn grant(
        attempt: &Attempt,
        mode: Mode,
        fence: FencingToken,
        now: Moment,
        wall: WallClock,
    ) -> Self {
        let terms = &attempt.terms;
        let ttl = terms.ttl();
        let ends = match &terms.ends {
            Ends::Ttl { hold_limit, .. } => {
                LeaseEnds::Ttl(hold_limit.map(|limit| now.after(limit.duration())))
            }
            Ends::At(reservation) => {
                LeaseEnds::At(reservation.clone(), wall.moment(reservation.until()))
            }
        };
        Self {
            fence,
            mode,
            token: attempt.token,
            ttl,
            granted_at: now,
            expires_at: ends.from(ttl, now),
            ends,
            rests: terms.min_hold.map_or(Rest::Never, |min_hold| {
                Rest::Until(now.after(min_hold.duration()))
            }),
            said: terms.said.clone(),
            key: attempt.idempotency.clone().map(|idempotency| {
                Box::new(LeaseKey {
                    idempotency,
                    delivery: LeaseDelivery::Once,
                    queued_since: None,
                })
            }),
            request: None,
            recipient: None,
        }
    }

    /// The same lease, granted to a kept position that was queued since `queued_since`. The lease ends at `end`, when
    /// the position would no longer be kept, unless a request with the same key arrives: its TTL has not begun. A
    /// reservation ends at its time.
    pub(crate) fn kept_until(mut self, end: Moment, queued_since: Option<Moment>) -> Self {
        self.expires_at = match self.ends {
            LeaseEnds::At(..) => self.expires_at.min(end),
            LeaseEnds::Ttl(..) => end,
        };
        if let Some(key) = &mut self.key {
            key.delivery = LeaseDelivery::Never;
            key.queued_since = queued_since;
        }
        self
    }

    /// This lease for a repeated request. A lease that was delivered to no caller counts as granted now.
    pub(crate) fn replayed(&self, now: Moment) -> Self {
        let mut lease = self.clone();
        if self.is_undelivered() {
            lease = lease.moved(self.granted_at, now);
            lease.request.clone_from(&self.request);
            lease.expires_at = lease.end_from(now);
        }
        if let Some(key) = &mut lease.key {
            key.delivery = LeaseDelivery::Again;
        }
        lease
    }

    /// Whether the lease was answered again under its idempotency key.
    pub(crate) fn was_replayed(&self) -> bool {
        self.key
            .as_ref()
            .is_some_and(|key| key.delivery == LeaseDelivery::Again)
    }

    /// Whether no caller knows of the lease yet.
    pub(crate) fn is_undelivered(&self) -> bool {
        self.key
            .as_ref()
            .is_some_and(|key| key.delivery == LeaseDelivery::Never)
    }

    /// The recipient of the lease: the last that has adopted it, or else the attempt that was granted it.
    pub(crate) fn recipient(&self) -> RecipientId {
        let adopter = self.recipient.as_deref().copied();
        adopter.unwrap_or_else(|| RecipientId::of_attempt(&self.token))
    }

    /// Whether this recipient still keeps the lease.
    pub(crate) fn is_kept_by(&self, recipient: RecipientId) -> bool {
        self.recipient() == recipient
    }

    /// Whether another recipient has taken the lease over (adopted it) from the attempt that was granted it.
    pub(crate) fn is_adopted(&self) -> bool {
        !self.is_kept_by(RecipientId::of_attempt(&self.token))
    }

    /// The same lease with a new recipient, which has taken the lease over.
    pub(crate) fn adopted(self, recipient: RecipientId) -> Self {
        Self {
            recipient: Some(Box::new(recipient)),
            ..self
        }
    }

    /// The lease after a renewal: the lease ends a TTL from now, or at its former end if that is later. A caller that
    /// has the token knows of the lease.
    pub(crate) fn renewed(&self, ttl: RenewalTtl, now: Moment) -> Self {
        let mut lease = self.clone();
        lease.ttl = ttl.applied_to(self.ttl);
        lease.expires_at = lease.end_from(now).max(self.expires_at);
        if let (true, Some(key)) = (self.is_undelivered(), &mut lease.key) {
            key.delivery = LeaseDelivery::Once;
        }
        lease
    }

    /// The same lease on the clock of a new boot. It is unknown how long the machine was down, so a living
    /// lease gets its full TTL again, as far as its hold limit allowed at the last known moment. A lease that
    /// no caller knows of is not in use, and gets no more time than it had left. The same holds for a rest.
    pub(crate) fn rebased(self, last_known: Moment, now: Moment) -> Self {
        let is_in_use = self.lives(last_known) && !self.is_undelivered() && self.rests != Rest::Now;
        let mut lease = self.moved(last_known, now);
        if is_in_use {
            lease.expires_at = lease.end_from(now).max(lease.expires_at);
        }
        lease
    }

    /// This lease with all of its times moved by the distance between two moments. The time of a reservation is one of
    /// the wall clock, and stays.
    fn moved(mut self, here: Moment, there: Moment) -> Self {
        let hold_ends_at = match &mut self.ends {
            LeaseEnds::Ttl(hold_ends_at) => hold_ends_at.as_mut(),
            LeaseEnds::At(..) => None,
        };
        let rests_until = match &mut self.rests {
            Rest::Until(until) => Some(until),
            Rest::Never | Rest::Now => None,
        };
        let request = self.request.as_mut().map(|request| &mut request.until);
        let always = [&mut self.granted_at, &mut self.expires_at];
        let sometimes = [hold_ends_at, rests_until, request];
        for moment in always.into_iter().chain(sometimes.into_iter().flatten()) {
            *moment = moment.rebased(here, there);
        }
        self
    }

    /// Sets the end of a reservation by the wall clock, which may have been set. Any other lease stays as it is.
    pub(crate) fn follow(&mut self, wall: WallClock) {
        let LeaseEnds::At(reservation, moment) = &mut self.ends else {
            return;
        };
        let end = wall.moment(reservation.until());
        *moment = end;
        self.expires_at = if self.is_undelivered() {
            self.expires_at.min(end)
        } else {
            self.end_from(end)
        };
    }

    /// The rest of the lease if it is released now: it keeps the lock or the slot until the minimum hold is over, under
    /// a hash that no token has. `None` if there is no such time left, or if the holder was asked to release the lease.
    pub(crate) fn rest(&self, now: Moment) -> Option<Self> {
        let Rest::Until(until) = self.rests else {
            return None;
        };
        let mut no_token = [0; 32];
        no_token[24..].copy_from_slice(&self.fence.get().to_be_bytes());
        (until > now && self.request.is_none()).then(|| Self {
            fence: self.fence,
            mode: self.mode,
            token: TokenHash::from_bytes(no_token),
            ttl: self.ttl,
            granted_at: self.granted_at,
            expires_at: until,
            ends: LeaseEnds::Ttl(match self.ends {
                LeaseEnds::Ttl(hold_ends_at) => hold_ends_at,
                LeaseEnds::At(..) => None,
            }),
            rests: Rest::Now,
            said: Said::default(),
            key: None,
            request: None,
            recipient: None,
        })
    }

    /// Whether the lease is a rest.
    pub(crate) fn is_resting(&self) -> bool {
        self.rests == Rest::Now
    }

    /// The fencing token of a shared lease, which is part of the key of its row; `None` for an exclusive lease.
    pub(crate) fn row(&self) -> Option<FencingToken> {
        self.mode.is_shared().then_some(self.fence)
    }

    /// When the lease ends, with its fencing token.
    pub(crate) fn expiry(&self) -> Expiry {
        (self.expires_at, self.fence)
    }

    /// Whether the lease was granted under this idempotency key.
    pub(crate) fn is_under(&self, hash: &IdempotencyHash) -> bool {
        let key = self.key.as_deref();
        key.is_some_and(|key| key.idempotency.hash == *hash)
    }

    /// The reservation that the lease is, if it is one.
    pub(crate) fn reservation(&self) -> Option<&Reservation> {
        match &self.ends {
            LeaseEnds::Ttl(..) => None,
            LeaseEnds::At(reservation, _) => Some(reservation),
        }
    }

    /// The moment past which no renewal extends the lease, if there is one.
    pub(crate) fn hold_ends_at(&self) -> Option<Moment> {
        match self.ends {
            LeaseEnds::Ttl(end) => end,
            LeaseEnds::At(_, end) => Some(end),
        }
    }

    /// Whether the lease has not ended yet.
    pub(crate) fn lives(&self, now: Moment) -> bool {
        self.expires_at > now
    }

    /// The lease as an answer shows it now. An answer that is sent later is corrected by the delay
    /// ([`Delay::age`]).
    pub(crate) fn held(&self, now: Moment) -> HeldLease {
        let mut expires_in = self.expires_at.since(now);
        if self.is_undelivered() {
            // The end of the lease is that of the time in which it may be collected. Its TTL begins then.
            expires_in = expires_in.min(self.ttl.duration());
        }
        HeldLease {
            fence: self.fence,
            mode: self.mode,
            is_resting: self.rests == Rest::Now,
            ttl: self.ttl,
            expires_in,
            held_for: now.since(self.granted_at),
            hold_expires_in: self.hold_ends_at().map(|end| end.since(now)),
            reservation: match &self.ends {
                LeaseEnds::Ttl(..) => None,
                LeaseEnds::At(reservation, _) => Some(reservation.clone()),
            },
            said: self.said.clone(),
            release_requested: self.request.as_ref().map(|request| {
                Box::new(ReleaseRequest {
                    by: request.by.clone(),
                    reason: request.reason.clone(),
                    within: request.until.since(now),
                })
            }),
            as_of: Instant::now(),
        }
    }

    /// The same lease with a request to release it; `None` if an earlier request has the same or an earlier
    /// end.
    pub(crate) fn requested(&self, request: &ReleaseRequest, now: Moment) -> Option<Self> {
        let until = now.after(request.within);
        let before = self.request.as_ref();
        if before.is_some_and(|before| before.until <= until) {
            return None;
        }
        Some(Self {
            expires_at: self.expires_at.min(until.after(ReleaseRequest::BACKSTOP)),
            request: Some(Box::new(LeaseRequest {
                by: request.by.clone(),
                reason: request.reason.clone(),
                until,
            })),
            ..self.clone()
        })
    }

    /// The end of the lease if its TTL begins now; the release request of the lease may make it earlier.
    fn end_from(&self, now: Moment) -> Moment {
        let end = self.ends.from(self.ttl, now);
        let request = self.request.as_ref();
        request.map_or(end, |request| {
            end.min(request.until.after(ReleaseRequest::BACKSTOP))
        })
    }
}

// === impl LeaseEnds ===

impl LeaseEnds {
    /// The end of a lease whose TTL begins now.
    fn from(&self, ttl: Ttl, now: Moment) -> Moment {
        match *self {
            Self::Ttl(hold_ends_at) => {
                let end = now.after(ttl.duration());
                hold_ends_at.map_or(end, |limit| end.min(limit))
            }
            Self::At(_, end) => end,
        }
    }
}

// === Delay ===
//
// The time between a decision and its answer.

/// The time between a decision and its answer, on the clock by which leases expire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delay {
    by: Duration,
    /// When the delay was measured. This instant is read before the clock of leases: any time in between makes a lease
    /// look shorter, which is safe.
    as_of: Instant,
}

// === impl Delay ===

impl Delay {
    /// The delay of an answer that is sent now, to a decision of this moment.
    pub(crate) fn since(decided: Moment, clock: &dyn Clock) -> Self {
        let as_of = Instant::now();
        Self {
            by: Moment::now(clock).since(decided),
            as_of,
        }
    }

    /// Corrects the times of a lease in an answer by this delay.
    pub(crate) fn age(self, held: &mut HeldLease) {
        held.age(self.by, self.as_of);
    }
}

// === Moment ===
//
// Moments on the clock by which leases expire.

/// Microseconds since the boot of the machine that the log names. Negative if the moment was before that boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(i64);

// === impl Moment ===

impl Moment {
    /// The latest possible moment.
    pub(crate) const MAX: Self = Self(i64::MAX);

    /// The current moment on the clock by which leases expire.
    pub(crate) fn now(clock: &dyn Clock) -> Self {
        Self(micros(clock.since_boot()))
    }

    /// Decodes a moment from its stored number.
    pub(crate) fn from_micros(number: i64) -> Self {
        Self(number)
    }

    /// The number by which the moment is stored.
    pub(crate) fn as_micros(self) -> i64 {
        self.0
    }

    /// The moment that is `duration` later.
    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }

    /// The moment that is `duration` earlier.
    pub(crate) fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros(duration)))
    }

    /// The time since `earlier`; zero if `earlier` is in the future.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        let distance = self.0.saturating_sub(earlier.0);
        Duration::from_micros(u64::try_from(distance).unwrap_or_default())
    }

    /// The moment that has the same distance from `there` as this moment has from `here`.
    pub(crate) fn rebased(self, here: Self, there: Self) -> Self {
        Self(there.0.saturating_add(self.0.saturating_sub(here.0)))
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

// === WallClock ===
//
// The wall clock, by which reservations end.

/// How far the wall clock is ahead of the clock by which leases expire, in microseconds: the wall time of moment zero.
/// It changes when the wall clock is set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WallClock(i64);

/// A smaller difference between two looks at the wall clock is ignored: a clock that is being corrected changes by less
/// than this in each second, and each change moves all reservations.
const SLACK: i64 = 1_000;

// === impl WallClock ===

impl WallClock {
    /// Looks at both clocks. Answers the same value if the wall clock was not set since the earlier look.
    pub(crate) fn look(self, clock: &dyn Clock) -> Self {
        let before = Moment::now(clock);
        let wall = since_1970(clock.wall());
        let after = Moment::now(clock);
        // The thread may stand still between the looks, and the true value is between these two. With the smaller one a
        // reservation does not end early.
        let [least, most] = [after, before].map(|moment| wall.saturating_sub(moment.0));
        if (least.saturating_sub(SLACK)..=most.saturating_add(SLACK)).contains(&self.0) {
            self
        } else {
            Self(least)
        }
    }

    /// The wall time of a moment, in microseconds since 1970.
    pub(crate) fn time(self, moment: Moment) -> i64 {
        moment.0.saturating_add(self.0)
    }

    /// The moment of a wall time.
    pub(crate) fn moment(self, time: SystemTime) -> Moment {
        Moment(since_1970(time).saturating_sub(self.0))
    }
}

fn since_1970(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => micros(since),
        Err(before) => -micros(before.duration()),
    }
}
