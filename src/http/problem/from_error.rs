//! The one table from errors of the engine and of authentication to problems for the caller.
//!
//! No match on an error has a wildcard arm, so a new error breaks the build until it has a code.

use std::{borrow::Cow, time::Duration};

use http::HeaderValue;

use crate::{
    auth::{Access, Excess, ExchangeError, Permission, Refusal},
    clock::{Clock, SystemClock, rfc3339},
    engine::{
        AcquireError, AdoptError, BreakError, GroupAcquireError, ReleaseError, RenewError,
        SetOrderError,
    },
    http::extract::Field,
    lock::{HeldLease, LockName, OrderNumber, Sharing, Ttl, answers},
    store::{
        StoreError, Unavailability,
        contract::{GrantedOrder, Holder, Loss, OrderGrant, SharedHolders, StoreFeature, Waiter},
    },
};

use super::{
    Extra, FieldError, Problem, ProblemCode as Code,
    report::{Locked, OrderReport},
};

/// Milliseconds after which to ask again when too many requests wait for the store.
const OVERLOADED: u64 = 1_000;
/// Milliseconds after which to ask again when the queue is full, at least and at most: a long queue does not
/// get short within a second.
const FULL_QUEUE: (u64, u64) = (2_000, 5_000);

/// Hint for a release whose token does not hold the lock: the request may be a second copy of a release that
/// succeeded.
const MAY_BE_REPEATED: &str = " If this repeats a release whose answer was lost, the first copy \
                               may have ended the lease, and nothing is left to do.";

// === impl Problem ===

impl From<AcquireError> for Problem {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Held {
                contention,
                waited,
                sharing,
            } => {
                let detail = why_held(contention.holder.as_ref(), sharing, waited);
                let locked = Locked::by(contention, sharing, waited, jitter());
                Self::new(Code::Locked, detail).with(Extra::Locked(Box::new(locked)))
            }
            AcquireError::TooManyWaiters => Self::new(
                Code::TooManyWaiters,
                "As many requests wait for this lock (limits.max_waiters_per_name), or at this gateway \
                 (limits.max_waiters), as are allowed. Nothing happened.",
            )
            .with(Extra::RetryAfter(FULL_QUEUE.0 + u64::from(jitter()) % (FULL_QUEUE.1 - FULL_QUEUE.0))),
            AcquireError::TooManyLeases(excess) => excess.into(),
            AcquireError::Replaced => Self::general(Code::RequestReplaced),
            AcquireError::IdempotencyMismatch => Self::general(Code::IdempotencyMismatch),
            AcquireError::IdempotencyExpired => Self::general(Code::IdempotencyExpired),
            AcquireError::Unsupported(StoreFeature::Sharing) => Self::general(Code::UnsupportedByStore),
            AcquireError::Unsupported(StoreFeature::MinHold) => Self::new(
                Code::UnsupportedByStore,
                "A quorum of Redis servers cannot let a lock rest (`min_hold_ms`): a server that \
                 missed the release would not know of the rest. Nothing happened.",
            ),
            AcquireError::Unsupported(StoreFeature::Supersedes) => Self::new(
                Code::UnsupportedByStore,
                "A quorum of Redis servers has no common queue, so no waiter takes another one out of it \
                 (`supersedes`). Nothing happened.",
            ),
            AcquireError::Unsupported(StoreFeature::Reserve) => Self::new(
                Code::UnsupportedByStore,
                "A quorum of Redis servers has no common clock by which a reservation ends (`reserve`). Nothing \
                 happened.",
            ),
            AcquireError::NewerWaiter => Self::general(Code::NewerWaiter),
            AcquireError::ReservationOver => Self::general(Code::ReservationOver),
            AcquireError::Unsupported(StoreFeature::Order) => no_orders(),
            AcquireError::OutdatedOrder { asked, granted } => {
                let (number, detail) = (granted.number, outdated(asked, &granted));
                let report = OrderReport {
                    name: None,
                    asked: Some(asked),
                    granted: Some(number),
                    grant: granted.grant.as_deref().map(order_grant),
                };
                Self::new(Code::OutdatedOrder, detail).with(Extra::Order(Box::new(report)))
            }
            AcquireError::TooManyOrders => Self::general(Code::TooManyOrders)
                .with(Extra::RetryAfter(FULL_QUEUE.1)),
            // A wait ends like this only if the caller's API key was revoked; the answer is that for an
            // unknown key.
            AcquireError::Revoked => Refusal::Unknown.into(),
            AcquireError::Draining => draining(),
            AcquireError::Store(error) => error.into(),
        }
    }
}

impl From<SetOrderError> for Problem {
    fn from(error: SetOrderError) -> Self {
        match error {
            SetOrderError::Changed(granted) => {
                let report = OrderReport {
                    name: None,
                    asked: None,
                    granted: granted.as_ref().map(|it| it.number),
                    grant: granted.and_then(|it| it.grant.as_deref().map(order_grant)),
                };
                let detail = match report.granted {
                    Some(order) => {
                        format!("The lock remembers the order {order}. Nothing was changed.")
                    }
                    None => "The lock remembers no order. Nothing was changed.".to_owned(),
                };
                Self::new(Code::OrderChanged, detail).with(Extra::Order(Box::new(report)))
            }
            SetOrderError::Unsupported => no_orders(),
            SetOrderError::Store(error) => error.into(),
        }
    }
}

fn no_orders() -> Problem {
    let detail = "A quorum of Redis servers remembers no order of a lock (`order`), because a server that missed a grant \
                  would not know of it. Nothing happened.";
    Problem::new(Code::UnsupportedByStore, detail)
}

/// Why a request with an order is refused.
fn outdated(asked: OrderNumber, granted: &GrantedOrder) -> String {
    let number = granted.number;
    let Some(grant) = granted.grant.as_deref().map(order_grant) else {
        return format!("The order {asked} is outdated: the lock remembers the order {number}.");
    };
    let to = [grant.owner, grant.by.map(|key| format!("API key {key}"))];
    let to: Vec<_> = to.into_iter().flatten().collect();
    let to = if to.is_empty() {
        String::new()
    } else {
        format!(" to {}", to.join(", "))
    };
    let at = grant.at;
    format!(
        "The order {asked} is outdated: the lock was granted for the order {number} at {at}{to}."
    )
}

/// The grant of an order, as answers show it.
pub(in crate::http) fn order_grant(grant: &OrderGrant) -> answers::OrderGrant {
    let at = SystemClock.wall().checked_sub(grant.ago);
    answers::OrderGrant {
        at: rfc3339(at).to_string(),
        by: grant.by.as_deref().map(str::to_owned),
        owner: grant.owner.as_ref().map(|owner| owner.as_str().to_owned()),
    }
}

impl From<RenewError> for Problem {
    fn from(error: RenewError) -> Self {
        match error {
            RenewError::Lost(loss) => loss.into(),
            RenewError::Store(error) => error.into(),
        }
    }
}

impl From<AdoptError> for Problem {
    fn from(error: AdoptError) -> Self {
        match error {
            AdoptError::Lost(loss) => loss.into(),
            AdoptError::Draining => draining(),
            AdoptError::Store(error) => error.into(),
        }
    }
}

impl From<ReleaseError> for Problem {
    fn from(error: ReleaseError) -> Self {
        match error {
            ReleaseError::Lost(loss) => {
                let mut problem = Self::from(loss);
                match loss {
                    Loss::HeldByAnother | Loss::Free => problem.detail += MAY_BE_REPEATED,
                    // An operator broke the lease, so no earlier copy of the release can have ended it.
                    Loss::Broken { .. } => {}
                }
                problem
            }
            ReleaseError::AnsweredAgain => Self::new(
                Code::OutcomeUnknown,
                "The lease was answered again while this release was under way, and lives on.",
            ),
            ReleaseError::Store(error) => error.into(),
        }
    }
}

impl From<BreakError> for Problem {
    fn from(error: BreakError) -> Self {
        match error {
            BreakError::HolderChanged(holder) => {
                let by = match holder {
                    Holder::Lease(_) => "held by another lease than",
                    Holder::Shared(_) => "shared by other leases than",
                    Holder::Foreign { .. } => {
                        "held by a client that uses no gateway, and not by the holder that"
                    }
                };
                let detail = format!("The lock is {by} the request names. Nothing was broken.");
                Self::new(Code::HolderChanged, detail)
            }
            BreakError::Foreign(_) => Self::invalid(vec![FieldError::new(
                "grace_ms",
                "is for holders that the gateway can ask, and the holder is a client that uses no \
                 gateway: leave it out to break the lock at once",
            )]),
            BreakError::Ambiguous(holders) => ambiguous(&holders),
            BreakError::NotHeld => Self::new(Code::NotHeld, "Nobody holds the lock."),
            BreakError::Store(error) => error.into(),
        }
    }
}

/// The problem of a break that does not say which of several shared leases to break.
fn ambiguous(holders: &SharedHolders) -> Problem {
    let shared = format!("the lock is shared ({} now hold it)", holders.count);
    let fence = format!("is missing, and {shared}: send the fencing token of the lease to break");
    let all = "is missing: instead of fencing_token send true, to break all of them";
    Problem::invalid(vec![
        FieldError::new("fencing_token", fence),
        FieldError::new("all", all),
    ])
}

/// Why the lock was not granted. `sharing` is how the caller wanted to share the lock; `None` for an
/// exclusive lease.
fn why_held(
    holder: Option<&Holder>,
    sharing: Option<Sharing>,
    waited: Duration,
) -> Cow<'static, str> {
    let why: Cow<'static, str> = match (holder, sharing) {
        (None, _) => return "The lock is passing to a waiter.".into(),
        (Some(holder), _) if holder.is_resting() => {
            "The lock rests until the minimum hold of its last lease is over".into()
        }
        (Some(Holder::Lease(_) | Holder::Foreign { .. }), _) => {
            "Another caller holds the lock".into()
        }
        (Some(Holder::Shared(_)), None) => "Other callers share the lock".into(),
        (Some(Holder::Shared(holders)), Some(Sharing { limit, .. })) => {
            let count = holders.count;
            if count >= u64::from(limit.get()) {
                format!("{count} share the lock, and the limit is {limit}").into()
            } else {
                let first = holders.first.as_ref();
                let why = first.and_then(|first| why_it_waits(first, "an earlier", count));
                why.map_or("An earlier waiter comes first".into(), Cow::from)
            }
        }
    };
    let why = match holder {
        Some(Holder::Lease(lease)) => reserved(lease).map_or(why, Cow::from),
        _ => why,
    };
    let end = if waited.is_zero() {
        "."
    } else {
        ", and the wait is over."
    };
    why + end
}

/// Why the first waiter of a lock that `count` leases share is not granted it: the waiter's own limit. All later
/// waiters wait behind it, whatever their limits are. `None` if the lock is just passing to the waiter.
pub(in crate::http) fn why_it_waits(first: &Waiter, which: &str, count: u64) -> Option<String> {
    let wants = match first.sharing {
        None => "the lock alone".to_owned(),
        Some(Sharing { limit, .. }) if u64::from(limit.get()) > count => return None,
        Some(Sharing { limit, .. }) if limit.get() == 1 => "at most 1 holder".to_owned(),
        Some(Sharing { limit, .. }) => format!("at most {limit} holders"),
    };
    Some(format!(
        "{count} share the lock, and {which} waiter asked for {wants}"
    ))
}

/// Says by whom, until when and why the lock is reserved, if the lease is a reservation that the caller may see.
fn reserved(lease: &HeldLease) -> Option<String> {
    let reservation = lease.reservation.as_deref()?;
    let (reason, by) = (&reservation.reason, reservation.by_label());
    let by = by.map_or_else(String::new, |by| format!(" by {by}"));
    let until = rfc3339(Some(reservation.until()));
    Some(format!(
        "The lock is reserved{by} until {until}, because {reason}"
    ))
}

impl From<Loss> for Problem {
    fn from(loss: Loss) -> Self {
        let (detail, held) = match loss {
            Loss::HeldByAnother => (
                "This token does not hold the lock; another caller does, or the lock rests.",
                true,
            ),
            Loss::Free => (
                "This token does not hold the lock; the lock is free.",
                false,
            ),
            Loss::Broken { held: true } => (
                "The lease of this token was broken by an operator; another caller holds the lock.",
                true,
            ),
            Loss::Broken { held: false } => (
                "The lease of this token was broken by an operator; the lock is free.",
                false,
            ),
        };
        Self::new(Code::LeaseLost, detail).with(Extra::Lost { held })
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let problem = match &error {
            StoreError::Unavailable(reason) => unavailable(reason),
            StoreError::Indeterminate(_) => Self::new(
                Code::OutcomeUnknown,
                "The store did not answer: the command may have taken effect, or may yet take \
                 effect.",
            ),
            StoreError::ForeignData { key, found } => Self::new(
                Code::ForeignData,
                format!(
                    "The key {key:?} in the store holds {found} that latchgate did not write. It \
                     is left as it is."
                ),
            ),
            StoreError::FenceExhausted => {
                Self::new(Code::FenceExhausted, "No fencing token is left below 2^53.")
            }
        };
        Self {
            is_outage: error.is_outage(),
            ..problem.caused_by(error.to_string())
        }
    }
}

fn unavailable(reason: &Unavailability) -> Problem {
    let detail = match reason {
        Unavailability::Connect(_) => "The store cannot be reached. Nothing happened.",
        Unavailability::SeveralServers => {
            "The address of the store leads to several servers in turn, and a lock may be granted at one only. \
             Nothing happened."
        }
        Unavailability::NotRead(_) => {
            "The store did not answer. Nothing happened: the request only reads."
        }
        Unavailability::Refused(_) => "The store refuses for now. Nothing happened.",
        Unavailability::OutOfMemory => {
            "The store has no memory left for new locks. Nothing happened."
        }
        Unavailability::Misconfigured(_) => {
            "The store is not configured so that locks are safe in it. Nothing happened. /readyz \
             says what is wrong."
        }
        Unavailability::Clock(_) => "The store's clock shows an impossible time. Nothing happened.",
        Unavailability::Disk(_) => {
            "The store cannot write to its disk. Nothing happened. /readyz says what is wrong."
        }
        Unavailability::DiskFull(_) => {
            "The disk of the store is full, so no lock is acquired. Locks are still renewed and \
             released. Nothing happened."
        }
        Unavailability::TooFewNodes(_) => {
            "Too few nodes of the store answer, or may vote yet. Nothing happened."
        }
        Unavailability::TooFewReplicas { .. } => {
            "Not enough replicas had the lease in time, and the gateway released it. Nothing \
             happened."
        }
        Unavailability::RanOut => {
            "The lease ended before enough replicas were known to have it. Nothing happened. Ask \
             for a longer ttl_ms."
        }
        Unavailability::Withdrawn => "The attempt was withdrawn. Nothing happened.",
        Unavailability::Overloaded => {
            return Problem::new(
                Code::Overloaded,
                "More requests are waiting for the store than it takes. Nothing happened.",
            )
            .with(Extra::RetryAfter(OVERLOADED));
        }
        Unavailability::Closing => return draining(),
    };
    Problem::new(Code::StoreUnavailable, detail)
}

/// Random number that varies when callers come back. If no random bytes can be had the number is 0, and
/// callers may come back all at once.
fn jitter() -> u32 {
    getrandom::u32().unwrap_or_default()
}

fn draining() -> Problem {
    Problem::new(
        Code::Draining,
        "This gateway is about to stop. Nothing happened.",
    )
}

/// Challenge to a request without an API key (RFC 6750).
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"latchgate\"");
/// Challenge to a request with an API key or a session that is not valid.
const INVALID: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"latchgate\", error=\"invalid_token\"");

/// After how long a request that was refused for too many streams or waiters should be sent again: room may
/// become free at any moment.
const CAPACITY_RETRY_AFTER: Duration = Duration::from_secs(2);

// === impl Problem ===

impl Problem {
    /// 403: the answer is the same whether the lock exists or not.
    pub(in crate::http) fn forbidden(permission: Permission, lock: Option<&LockName>) -> Self {
        let permission = permission.row().name;
        let detail = match lock {
            Some(name) => {
                format!("The API key has no permission `{permission}` for the lock `{name}`.")
            }
            None => format!("The API key has no permission `{permission}`."),
        };
        Self::new(Code::Forbidden, detail)
    }

    /// The problem of a failed release, for a caller without an API key. The problem does not say whether
    /// another caller holds the lock, unless the lease was broken.
    pub(in crate::http) fn for_unauthenticated(error: ReleaseError) -> Self {
        match error {
            ReleaseError::Lost(Loss::HeldByAnother | Loss::Free) => Self::new(
                Code::LeaseLost,
                format!("This token does not hold the lock.{MAY_BE_REPEATED}"),
            ),
            // The token belonged to a lease that was broken, so its caller may know whether the lock is
            // held.
            ReleaseError::Lost(loss @ Loss::Broken { .. }) => loss.into(),
            error @ (ReleaseError::AnsweredAgain | ReleaseError::Store(_)) => error.into(),
        }
    }

    /// The problem of a failed acquire. If `sees_holder` is false, the problem hides the owner and the
    /// metadata of the holder.
    pub(in crate::http) fn for_acquire(mut error: AcquireError, sees_holder: bool) -> Self {
        if let (AcquireError::Held { contention, .. }, false) = (&mut error, sees_holder)
            && let Some(holder) = &mut contention.holder
        {
            holder
                .leases_mut()
                .iter_mut()
                .for_each(HeldLease::hide_details);
        }
        if let (AcquireError::OutdatedOrder { granted, .. }, false) = (&mut error, sees_holder) {
            granted.grant = None;
        }
        error.into()
    }

    /// The problem of a failed acquire of several locks: the problem names the lock that could not be
    /// acquired. `sees_holder` says whether the caller may know the holder of that lock.
    pub(in crate::http) fn for_group(
        GroupAcquireError { name, error }: GroupAcquireError,
        sees_holder: impl FnOnce(&LockName) -> bool,
    ) -> Self {
        let Some(name) = name else {
            return error.into();
        };
        let mut problem = Self::for_acquire(error, sees_holder(&name));
        if let Extra::Locked(locked) = &mut problem.extra {
            locked.name = Some(name);
            return problem;
        }
        let detail = format!("{} It is about the lock `{name}`.", problem.detail);
        problem.detail = detail.into();
        if let Extra::Order(report) = &mut problem.extra {
            report.name = Some(name);
        }
        problem
    }

    fn too_many(code: Code, detail: &'static str, retry_after: Duration) -> Self {
        let ms = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
        Self::new(code, detail).with(Extra::RetryAfter(ms))
    }

    /// 403 if the TTL is longer than the caller may ask for.
    pub(in crate::http) fn check_ttl(field: &Field, ttl: Ttl, caller: &Access) -> Result<(), Self> {
        match caller.max_ttl() {
            Some(cap) if ttl > cap => {
                let (field, ttl, cap) = (field.name, ttl.as_millis(), cap.as_millis());
                let detail =
                    format!("`{field}` is {ttl} ms; the API key may ask for at most {cap} ms.");
                Err(Self::new(Code::LimitExceeded, detail))
            }
            _ => Ok(()),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let (challenge, detail) = match refusal {
            Refusal::NoKey => (
                CHALLENGE,
                "The request has no API key. Send it as `Authorization: Bearer KEY`.",
            ),
            Refusal::NotAKey => (
                INVALID,
                "The header `Authorization` does not have an API key of this gateway. It is \
                 `Bearer KEY`, and a key begins with `lgk_` or `lgx_`. An ID token is exchanged for a key at \
                 `POST /session/token`.",
            ),
            Refusal::Damaged => (
                INVALID,
                "The API key was cut off or mistyped: its checksum does not fit. A key has 64 \
                 characters.",
            ),
            Refusal::Unknown => (
                INVALID,
                "The API key is not known, or it has expired. Ask the operator for a new one.",
            ),
            Refusal::NoSession => (
                INVALID,
                "The session has ended. Sign in again, or send an API key as `Authorization: Bearer \
                 KEY`.",
            ),
            Refusal::ExchangeOver => (
                INVALID,
                "The key for which an ID token was exchanged has ended, or the operator has changed or revoked its API \
                 key. Exchange another ID token for a key. With an ended key, leases can be renewed until a day after the \
                 exchange, but not with a revoked one; every lease can be released with its token.",
            ),
            Refusal::TooMany { retry_after } => {
                let detail =
                    "Too many requests with API keys that are not known came from this address.";
                return Self::too_many(Code::RateLimited, detail, retry_after);
            }
            Refusal::TooManyTokens { retry_after } => {
                let detail = "Too many releases without an API key came from this address with \
                     tokens that hold no lock. Nothing happened. Send an API key with the release.";
                return Self::too_many(Code::RateLimited, detail, retry_after);
            }
        };
        Self::new(Code::Unauthorized, detail).with(Extra::Challenge(challenge))
    }
}

impl From<ExchangeError> for Problem {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Token(refusal) => {
                let detail = format!("The ID token is refused {}.", refusal.class);
                let problem = Self::new(Code::Unauthorized, detail).with(Extra::Challenge(INVALID));
                problem.caused_by(refusal.to_string())
            }
            ExchangeError::Refused(refusal) => refusal.into(),
            ExchangeError::Busy => {
                let detail = "The gateway exchanges as many ID tokens at a time as it may. Nothing happened.";
                Self::new(Code::Overloaded, detail).with(Extra::RetryAfter(OVERLOADED))
            }
            ExchangeError::IssuerAway {
                ref issuer,
                retry_after,
            } => {
                let detail = format!(
                    "The gateway has no key of the issuer {issuer} that verifies the ID token, and cannot ask the issuer now. \
                     API keys and keys that were exchanged before are not affected."
                );
                let ms = u64::try_from(retry_after.as_millis())
                    .unwrap_or(u64::MAX)
                    .max(1_000);
                let problem =
                    Self::new(Code::IssuerUnavailable, detail).with(Extra::RetryAfter(ms));
                Self {
                    is_outage: true,
                    ..problem.caused_by(error.to_string())
                }
            }
        }
    }
}

impl From<Excess> for Problem {
    fn from(excess: Excess) -> Self {
        let (code, detail, retry_after) = match excess {
            Excess::Requests { retry_after } => (
                Code::RateLimited,
                "The API key has sent more requests than it may, or checked more fencing tokens than \
                 limits.checks_per_second allows. Nothing happened. Renew and release are not limited.",
                retry_after,
            ),
            Excess::Streams => (
                Code::RateLimited,
                "The API key has as many streams at this gateway as it may. Nothing happened.",
                CAPACITY_RETRY_AFTER,
            ),
            Excess::Waiters => (
                Code::TooManyWaiters,
                "As many requests with the API key wait at this gateway as it allows. Nothing \
                 happened.",
                CAPACITY_RETRY_AFTER,
            ),
            Excess::Leases { retry_after } => (
                Code::TooManyLeases,
                "The API key has as many leases and waiting requests at this gateway as it may. \
                 Nothing happened.",
                retry_after,
            ),
        };
        Self::too_many(code, detail, retry_after)
    }
}
