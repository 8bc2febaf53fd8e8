//! A lease as the embedded store remembers it.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    clock::Clock,
    lock::{
        FencingToken, HeldLease, IdempotencyHash, KeeperId, Metadata, Mode, Owner, Reason,
        ReleaseRequest, TokenHash, Ttl,
    },
    store::contract::{Attempt, Idempotency, RenewalTtl},
};

/// A lease, living or not yet cleared away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) fence: FencingToken,
    pub(crate) mode: Mode,
    pub(crate) token: TokenHash,
    pub(crate) ttl: Ttl,
    pub(crate) granted_at: Moment,
    pub(crate) expires_at: Moment,
    pub(crate) hold_ends_at: Option<Moment>,
    pub(crate) owner: Option<Owner>,
    pub(crate) metadata: Metadata,
    /// Boxed: most leases have none, and it is as large as the rest.
    pub(crate) key: Option<Box<LeaseKey>>,
    /// Present if its holder was asked to release it. Boxed, as few are.
    pub(crate) request: Option<Box<LeaseRequest>>,
    /// Who has adopted it; until then it is kept by the attempt that it was granted to. In memory
    /// only: whoever keeps a lease does so by a connection to this process.
    pub(crate) keeper: Option<Box<KeeperId>>,
}

/// That the holder of a lease was asked to release it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseRequest {
    pub(crate) by: Option<Arc<str>>,
    pub(crate) reason: Reason,
    /// When the time for that is over.
    pub(crate) until: Moment,
}

/// When a lease ends. The fence keeps leases apart that end together.
pub(crate) type Expiry = (Moment, FencingToken);

/// The idempotency key under which a lease was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseKey {
    pub(crate) idempotency: Idempotency,
    pub(crate) delivery: LeaseDelivery,
    /// Since when the place was queued that was kept for it. In memory only: it is shown to whoever comes back.
    pub(crate) queued_since: Option<Moment>,
}

/// Who may have heard of a lease with an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseDelivery {
    /// Nobody: it was granted to a place that is kept for a request that asks again.
    Never,
    /// Whoever made the attempt.
    Once,
    /// Whoever asked again under the key: then nobody may give it back.
    Again,
}

// === impl Lease ===

impl Lease {
    /// The lease that an attempt is granted now.
    pub(crate) fn grant(attempt: &Attempt, mode: Mode, fence: FencingToken, now: Moment) -> Self {
        let hold_ends_at = attempt.hold_limit.map(|limit| now.after(limit.duration()));
        Self {
            fence,
            mode,
            token: attempt.token,
            ttl: attempt.ttl,
            granted_at: now,
            expires_at: Self::end(attempt.ttl, hold_ends_at, now),
            hold_ends_at,
            owner: attempt.owner.clone(),
            metadata: attempt.metadata.clone(),
            key: attempt.idempotency.clone().map(|idempotency| {
                Box::new(LeaseKey {
                    idempotency,
                    delivery: LeaseDelivery::Once,
                    queued_since: None,
                })
            }),
            request: None,
            keeper: None,
        }
    }

    /// The same lease, granted to a place that was queued since, and is kept until then: it lasts no longer unless
    /// it is asked for again.
    pub(crate) fn kept_until(mut self, end: Moment, queued_since: Option<Moment>) -> Self {
        self.expires_at = self.expires_at.min(end);
        if let Some(key) = &mut self.key {
            key.delivery = LeaseDelivery::Never;
            key.queued_since = queued_since;
        }
        self
    }

    /// The same lease, told to whoever asks again. One that nobody had heard of lasts its full TTL from now.
    pub(crate) fn replayed(&self, now: Moment) -> Self {
        let mut lease = self.clone();
        if self.is_undelivered() {
            lease.expires_at = self.end_from(self.ttl, now);
        }
        if let Some(key) = &mut lease.key {
            key.delivery = LeaseDelivery::Again;
        }
        lease
    }

    /// Whether it was answered again under its idempotency key.
    pub(crate) fn was_replayed(&self) -> bool {
        self.key
            .as_ref()
            .is_some_and(|key| key.delivery == LeaseDelivery::Again)
    }

    /// Whether nobody has heard of it.
    pub(crate) fn is_undelivered(&self) -> bool {
        self.key
            .as_ref()
            .is_some_and(|key| key.delivery == LeaseDelivery::Never)
    }

    /// Who keeps it: whoever has adopted it last, or the attempt that it was granted to.
    pub(crate) fn keeper(&self) -> KeeperId {
        let adopter = self.keeper.as_deref().copied();
        adopter.unwrap_or_else(|| KeeperId::of_attempt(&self.token))
    }

    /// Whether nobody else has adopted it.
    pub(crate) fn is_kept_by(&self, keeper: KeeperId) -> bool {
        self.keeper() == keeper
    }

    /// Whether it is kept by anybody but the attempt that it was granted to.
    pub(crate) fn is_adopted(&self) -> bool {
        !self.is_kept_by(KeeperId::of_attempt(&self.token))
    }

    /// The same lease, kept by somebody from now on.
    pub(crate) fn adopted(self, keeper: KeeperId) -> Self {
        Self {
            keeper: Some(Box::new(keeper)),
            ..self
        }
    }

    /// The lease after a renewal: it lasts for its TTL from now, or until its former end if that is later.
    pub(crate) fn renewed(&self, ttl: RenewalTtl, now: Moment) -> Self {
        let ttl = ttl.applied_to(self.ttl);
        Self {
            ttl,
            expires_at: self.end_from(ttl, now).max(self.expires_at),
            ..self.clone()
        }
    }

    /// The same lease on the clock of a new boot. Nobody knows how long the machine was down, so a
    /// living one gets its full TTL again, as far as its hold limit allowed at the last moment we
    /// know of. One that nobody has heard of is not in use, and gets no more than it had.
    pub(crate) fn rebased(self, last_known: Moment, now: Moment) -> Self {
        let is_in_use = self.lives(last_known) && !self.is_undelivered();
        let mut lease = Self {
            granted_at: self.granted_at.rebased(last_known, now),
            expires_at: self.expires_at.rebased(last_known, now),
            hold_ends_at: self.hold_ends_at.map(|end| end.rebased(last_known, now)),
            ..self
        };
        if let Some(request) = &mut lease.request {
            request.until = request.until.rebased(last_known, now);
        }
        if is_in_use {
            lease.expires_at = lease.end_from(lease.ttl, now).max(lease.expires_at);
        }
        lease
    }

    /// Its fencing token, if it shares the lock: part of the key of its row.
    pub(crate) fn row(&self) -> Option<FencingToken> {
        self.mode.is_shared().then_some(self.fence)
    }

    /// When it ends.
    pub(crate) fn expiry(&self) -> Expiry {
        (self.expires_at, self.fence)
    }

    /// Whether it was granted under this idempotency key.
    pub(crate) fn is_under(&self, hash: &IdempotencyHash) -> bool {
        let key = self.key.as_deref();
        key.is_some_and(|key| key.idempotency.hash == *hash)
    }

    /// Whether it still excludes others.
    pub(crate) fn lives(&self, now: Moment) -> bool {
        self.expires_at > now
    }

    /// What is told of it now. Whoever answers it later makes it older by as much ([`Delay::age`]).
    pub(crate) fn held(&self, now: Moment) -> HeldLease {
        HeldLease {
            fence: self.fence,
            mode: self.mode,
            ttl: self.ttl,
            expires_in: self.expires_at.since(now),
            held_for: now.since(self.granted_at),
            hold_expires_in: self.hold_ends_at.map(|end| end.since(now)),
            owner: self.owner.clone(),
            metadata: self.metadata.clone(),
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

    /// The same lease, whose holder is asked to release it; nothing if it was asked to do so earlier.
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

    /// When it ends if it lasts a TTL from now, or as much of it as it may.
    fn end_from(&self, ttl: Ttl, now: Moment) -> Moment {
        let end = Self::end(ttl, self.hold_ends_at, now);
        let request = self.request.as_ref();
        request.map_or(end, |request| {
            end.min(request.until.after(ReleaseRequest::BACKSTOP))
        })
    }

    fn end(ttl: Ttl, hold_ends_at: Option<Moment>, now: Moment) -> Moment {
        let end = now.after(ttl.duration());
        hold_ends_at.map_or(end, |limit| end.min(limit))
    }
}

// === Delay ===
//
// How much later than the decision its answer leaves.

/// How much later than a decision its answer leaves, on the clock that leases expire by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delay {
    by: Duration,
    /// When that was looked at. It was read first: whatever comes between makes a lease look shorter.
    as_of: Instant,
}

// === impl Delay ===

impl Delay {
    /// That of an answer which leaves now.
    pub(crate) fn since(decided: Moment, clock: &dyn Clock) -> Self {
        let as_of = Instant::now();
        Self {
            by: Moment::now(clock).since(decided),
            as_of,
        }
    }

    /// Makes what is told of a lease as old as it is now.
    pub(crate) fn age(self, held: &mut HeldLease) {
        held.age(self.by, self.as_of);
    }
}

// === Moment ===
//
// A moment on the clock that leases expire by.

/// Microseconds since the boot that the file names. Negative for what a reboot left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(i64);

// === impl Moment ===

impl Moment {
    /// No moment is later.
    pub(crate) const MAX: Self = Self(i64::MAX);

    /// Now.
    pub(crate) fn now(clock: &dyn Clock) -> Self {
        Self(micros(clock.since_boot()))
    }

    /// The moment with this number, as it was kept.
    pub(crate) fn from_micros(number: i64) -> Self {
        Self(number)
    }

    /// The number to keep.
    pub(crate) fn as_micros(self) -> i64 {
        self.0
    }

    /// The moment that is so much later.
    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }

    /// How long ago `earlier` was; zero if it is yet to come.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        let distance = self.0.saturating_sub(earlier.0);
        Duration::from_micros(u64::try_from(distance).unwrap_or_default())
    }

    /// The moment that is as far from `there` as this one is from `here`.
    pub(crate) fn rebased(self, here: Self, there: Self) -> Self {
        Self(there.0.saturating_add(self.0.saturating_sub(here.0)))
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
