//! A problem on its way to the edge, where it becomes a document, with all that it may carry: the fields that
//! are wrong, the holders of the lock, and the outcome for each of several leases.

use std::{borrow::Cow, time::Duration};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::HeaderValue;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::{
    config::DeclaredLock,
    http::locks::{CurrentHolder, millis, release_request_body, rests},
    lock::{
        HeldLease, LockName, OrderNumber, Sharing, Ttl,
        answers::{self, ReleaseRequest, Rest},
    },
    store::contract::{Contention, Holder},
};

use super::ProblemCode;

/// The answer of a handler to a request that fails.
///
/// Converting a problem to a response has no side effect: the edge renders the problem, because only the edge
/// knows the request id, and logs it there, once.
#[derive(Debug, Clone)]
pub(in crate::http) struct Problem {
    pub(in crate::http) code: ProblemCode,
    /// What happened to this request, in whole sentences.
    pub(in crate::http) detail: Cow<'static, str>,
    pub(in crate::http) extra: Extra,
    /// Cause for the log only: an operator needs it, and a caller must not see it.
    pub(in crate::http) cause: Option<String>,
    /// Whether the cause is an outage of the store or of an issuer, which is logged once where it is found.
    pub(in crate::http) is_outage: bool,
}

/// What a problem carries besides the fields that all problems have.
#[derive(Debug, Clone)]
pub(in crate::http) enum Extra {
    /// No further field.
    None,
    /// The field `errors`.
    Fields(Vec<FieldError>),
    /// The fields `holders`, `holder_count`, `description`, `resting`, `available_in_ms`, `waited_ms`, `waiters`, `retry_after_ms`,
    /// and the header `Retry-After`.
    Locked(Box<Locked>),
    /// The field `retry_after_ms` (the value, in milliseconds), and the header `Retry-After`.
    RetryAfter(u64),
    /// The fields `order`, `granted_order` and `order_granted`.
    Order(Box<OrderReport>),
    /// The field `held`.
    Lost {
        /// Whether another caller holds the lock now.
        held: bool,
    },
    /// The field `ended_ms_ago`.
    EndedAgo(u64),
    /// The field `expires_in_ms`.
    ExpiresIn(u64),
    /// The field `results`.
    Parts(Vec<PartResult>),
    /// The header `Allow`.
    Allow(HeaderValue),
    /// The header `WWW-Authenticate`.
    Challenge(HeaderValue),
}

/// The order that a lock remembers, and the lower order of the request.
#[derive(Debug, Clone, Default)]
pub(in crate::http) struct OrderReport {
    /// The lock, if the request names several.
    pub(super) name: Option<LockName>,
    pub(super) asked: Option<OrderNumber>,
    pub(super) granted: Option<OrderNumber>,
    pub(super) grant: Option<answers::OrderGrant>,
}

// === impl Problem ===

impl Problem {
    pub(in crate::http) fn new(code: ProblemCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            detail: detail.into(),
            extra: Extra::None,
            cause: None,
            is_outage: false,
        }
    }

    /// A problem whose detail is the general meaning of its code.
    pub(super) fn general(code: ProblemCode) -> Self {
        Self::new(code, code.meaning())
    }

    /// 400: all errors in the request. There is at least one error.
    pub(in crate::http) fn invalid(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [FieldError { field, reason }] => format!("`{field}` {reason}."),
            _ => format!("{} things are wrong with the request.", errors.len()),
        };
        Self::new(ProblemCode::InvalidRequest, detail).with(Extra::Fields(errors))
    }

    /// 400: one error in the request.
    pub(in crate::http) fn invalid_field(
        field: impl Into<Cow<'static, str>>,
        reason: impl Into<String>,
    ) -> Self {
        Self::invalid(vec![FieldError::new(field, reason)])
    }

    pub(in crate::http) fn with(mut self, extra: Extra) -> Self {
        self.extra = extra;
        self
    }

    /// Adds the description of the lock if the lock is held, and is declared.
    pub(in crate::http) fn described_by(mut self, lock: Option<&DeclaredLock>) -> Self {
        if let (Some(lock), Extra::Locked(locked)) = (lock, &mut self.extra) {
            locked.description.clone_from(&lock.description);
        }
        self
    }

    /// Turns the problem into the outcome for one lease, in the answer about several leases.
    pub(in crate::http) fn of_part(&self, name: &LockName) -> PartResult {
        let held = match self.extra {
            Extra::Lost { held } => Some(held),
            _ => None,
        };
        PartResult {
            code: Some(self.code),
            detail: Some(self.detail.clone()),
            held,
            ..PartResult::done(name, None)
        }
    }

    /// Milliseconds after which to ask again, if the problem has such a time.
    pub(super) fn retry_after_ms(&self) -> Option<u64> {
        match &self.extra {
            Extra::Locked(locked) => Some(locked.retry_after_ms),
            Extra::RetryAfter(ms) => Some(*ms),
            _ => None,
        }
    }

    pub(in crate::http) fn caused_by(mut self, cause: String) -> Self {
        self.cause = Some(cause);
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.code.status();
        response.extensions_mut().insert(self);
        response
    }
}

/// A field, header or parameter of a request that is refused, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(in crate::http) struct FieldError {
    /// The field that is wrong: a field of the body (`ttl_ms`, `metadata.team`), a header (`Lock-Token`),
    /// `name` for the lock name in the path, `query.X` for a query parameter, or `body` for the body as such.
    #[schema(value_type = String, example = "ttl_ms")]
    pub(in crate::http) field: Cow<'static, str>,
    /// What is wrong with the field and what is expected, to be read after the name of the field.
    #[schema(example = "is 50 ms; allowed are 100 to 86400000 ms")]
    pub(in crate::http) reason: String,
}

// === impl FieldError ===

impl FieldError {
    pub(in crate::http) fn new(
        field: impl Into<Cow<'static, str>>,
        reason: impl Into<String>,
    ) -> Self {
        let mut field = field.into();
        // An unknown field name may come from an attacker. Without the escape, its control characters would
        // reach the terminal of the person who reads the answer.
        if field.contains(char::is_control) {
            field = Cow::Owned(field.escape_debug().to_string());
        }
        Self {
            field,
            reason: reason.into(),
        }
    }
}

/// The outcome of a command for one of several leases.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct PartResult {
    /// The name of the lock.
    #[schema(value_type = String)]
    name: String,
    /// Why the command failed for this lease: `lease-lost`, or a code of the store. Null: it succeeded.
    #[schema(required = true)]
    code: Option<ProblemCode>,
    /// What happened if the command failed, in a sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    detail: Option<Cow<'static, str>>,
    /// With `lease-lost`: whether another caller holds the lock now. A release without an API key is told
    /// only if the lease was broken.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool, required = false)]
    held: Option<bool>,
    /// The fencing token of a renewed lease; else null.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64, required = true)]
    fencing_token: Option<u64>,
    /// `exclusive` or `shared`, of a renewed lease; else null.
    #[schema(required = true)]
    mode: Option<&'static str>,
    /// The slot of a renewed lease that was granted with a `limit`; else null.
    #[schema(required = true)]
    slot: Option<u16>,
    /// Time left of a renewed lease; else null.
    #[schema(required = true)]
    expires_in_ms: Option<u64>,
    /// Time left until `max_hold_ms` of a renewed lease; null if it has none.
    #[schema(required = true)]
    hold_expires_in_ms: Option<u64>,
    /// The release request, if a renewed lease has one: a caller wants the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ReleaseRequest, required = false)]
    release_requested: Option<ReleaseRequest>,
}

// === impl PartResult ===

impl PartResult {
    /// The outcome of a command that succeeded. `lease` is the renewed lease; `None` if the lease has ended.
    pub(in crate::http) fn done(name: &LockName, lease: Option<&HeldLease>) -> Self {
        let request = lease.and_then(|lease| lease.release_requested.as_deref());
        Self {
            name: name.as_str().to_owned(),
            code: None,
            detail: None,
            held: None,
            fencing_token: lease.map(|lease| lease.fence.get()),
            mode: lease.map(|lease| lease.mode.as_str()),
            slot: lease.and_then(|lease| lease.mode.slot()),
            expires_in_ms: lease.map(|lease| millis(lease.good_for())),
            hold_expires_in_ms: lease.and_then(|lease| lease.hold_expires_in).map(millis),
            release_requested: request.map(release_request_body),
        }
    }

    /// Whether another caller holds one of the locks now. `None`: no outcome says so.
    pub(super) fn any_held(results: &[Self]) -> Option<bool> {
        results.iter().filter_map(|it| it.held).max()
    }
}

/// The longest time after which a request for a held lock is told to ask again: a holder may release the lock
/// long before its TTL is over.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(5);
/// After how long a request is told to ask again while its lock is passing to a waiter: by then the new
/// holder is known.
const PASSING_ON: Duration = Duration::from_secs(1);

/// Details of a refusal because the lock is held: its holders, its waiters, and when to ask again.
#[derive(Debug, Clone)]
pub(in crate::http) struct Locked {
    /// The lock that is held, if several locks were requested.
    pub(super) name: Option<LockName>,
    pub(super) holders: Vec<CurrentHolder>,
    pub(super) holder_count: u64,
    /// The `description` of the lock in the locks file, if the lock is declared.
    pub(super) description: Option<String>,
    pub(super) resting: Vec<Rest>,
    /// After how long the request finds room, if the lock has no holder and only rests.
    pub(super) available_in_ms: Option<u64>,
    pub(super) waited_ms: u64,
    pub(super) waiters: u64,
    pub(super) retry_after_ms: u64,
}

// === impl Locked ===

impl Locked {
    /// Makes the details of a refusal because the lock is held. `sharing` is how the caller wanted to share
    /// the lock. `jitter` varies the time after which to ask again; any number will do.
    pub(super) fn by(
        contention: Contention,
        sharing: Option<Sharing>,
        waited: Duration,
        jitter: u32,
    ) -> Self {
        let left = time_to_wait(contention.holder.as_ref(), sharing);
        let resting = rests(contention.holder.as_ref());
        let holder_count = contention.holder.as_ref().map_or(0, Holder::holders);
        let holders = contention
            .holder
            .map_or_else(Vec::new, CurrentHolder::all_of);
        let only_rests = holder_count == 0 && !resting.is_empty();
        let available_in_ms = only_rests.then(|| millis(left));
        let left = left.clamp(Ttl::MIN.duration(), MAX_RETRY_AFTER);
        // If the lease ends soon, the caller is told to ask again after its end, so that the next request can
        // succeed. For a long lease, the time is within the last fifth of `MAX_RETRY_AFTER`.
        let spread = left / 5 * (jitter % 1000) / 1000;
        let retry_after = if left + spread > MAX_RETRY_AFTER {
            MAX_RETRY_AFTER.saturating_sub(spread)
        } else {
            left + spread
        };
        Self {
            name: None,
            holders,
            holder_count,
            description: None,
            resting,
            available_in_ms,
            waited_ms: millis(waited),
            waiters: contention.waiters,
            retry_after_ms: millis(retry_after),
        }
    }
}

/// After how long there is room for the caller, if no lease is renewed or released. A shared request needs
/// enough leases to end to come below its limit; an exclusive request needs all leases to end.
fn time_to_wait(holder: Option<&Holder>, sharing: Option<Sharing>) -> Duration {
    let left = |lease: &HeldLease| lease.left_at(Instant::now());
    match holder {
        None => PASSING_ON,
        Some(Holder::Lease(lease)) => left(lease),
        Some(Holder::Foreign { expires_in, .. }) => expires_in.unwrap_or(MAX_RETRY_AFTER),
        Some(Holder::Shared(holders)) => {
            let limit = sharing.map_or(1, |sharing| u64::from(sharing.limit.get()));
            let too_many = (holders.count + 1).saturating_sub(limit);
            // If the limit leaves room beside the current leases, earlier waiters keep the caller out, and
            // any change of the lock may move their queue.
            let last = usize::try_from(too_many.saturating_sub(1)).unwrap_or(usize::MAX);
            let mut ends: Vec<_> = holders.leases.iter().map(left).collect();
            ends.sort_unstable();
            // The store lists the leases that end first, so leases that are not listed end later.
            ends.get(last).copied().unwrap_or(MAX_RETRY_AFTER)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        lock::{FencingToken, Limit, Mode, Terms},
        store::contract::SharedHolders,
    };

    use super::*;

    #[test]
    fn a_name_that_would_move_a_terminal_is_shown_by_its_characters() {
        let field = FieldError::new("a\u{7f}\u{9b}31m\n".to_owned(), "is not known").field;
        assert_eq!(field, "a\\u{7f}\\u{9b}31m\\n");
        assert_eq!(
            FieldError::new("metadata.näher", "").field,
            "metadata.näher"
        );
    }

    fn retry_after(holder: Option<Holder>, jitter: u32) -> (u64, u64) {
        let contention = Contention { holder, waiters: 0 };
        let locked = Locked::by(contention, None, Duration::ZERO, jitter);
        (locked.retry_after_ms, locked.retry_after_ms.div_ceil(1000))
    }

    fn foreign(ms: Option<u64>, jitter: u32) -> (u64, u64) {
        let expires_in = ms.map(Duration::from_millis);
        let mark = None;
        retry_after(Some(Holder::Foreign { expires_in, mark }), jitter)
    }

    #[test]
    fn sends_callers_back_soon_when_the_lock_is_passing_on() {
        assert_eq!(retry_after(None, 0), (1000, 1));
        assert_eq!(retry_after(None, 999), (1199, 2));
    }

    #[test]
    fn sends_callers_back_after_the_lease_is_over_and_within_five_seconds() {
        for jitter in [0, 1, 500, 999, 1000, u32::MAX] {
            for (left, least, most, seconds) in [
                (Some(0), 100, 120, 1..=1),
                (Some(50), 100, 120, 1..=1),
                (Some(1000), 1000, 1200, 1..=2),
                (Some(4000), 4000, 5000, 4..=5),
                (Some(4900), 4000, 5000, 4..=5),
                (Some(3_600_000), 4000, 5000, 4..=5),
                (None, 4000, 5000, 4..=5),
            ] {
                let (ms, header) = foreign(left, jitter);
                assert!((least..=most).contains(&ms), "{left:?} {jitter}: {ms} ms");
                assert!(seconds.contains(&header), "{left:?} {jitter}: {header} s");
            }
        }
    }

    /// A lock with three shared leases that end after one, two and four seconds, and `more` leases that are
    /// not listed.
    fn shared_by(more: u64) -> Holder {
        let lease = |seconds| {
            let as_of = Instant::now() + Duration::from_hours(1);
            let (fence, shared) = (FencingToken::new(1).unwrap(), Mode::Shared { slot: None });
            HeldLease {
                expires_in: Duration::from_secs(seconds),
                ..Terms::lasting(Ttl::MIN).granted(fence, shared, as_of)
            }
        };
        Holder::Shared(SharedHolders {
            // The leases are not in the order of their ends, as can happen after renewals.
            leases: [2, 1, 4].map(lease).into(),
            count: 3 + more,
            resting: 0,
            first: None,
        })
    }

    #[test]
    fn sends_callers_back_when_there_is_a_place_for_what_they_want() {
        let limit = |limit| {
            Some(Sharing {
                limit: Limit::new(limit).unwrap(),
                has_slot: true,
            })
        };
        for (more, wanted, seconds) in [
            // The limit leaves room for the request, but another waiter comes first.
            (0, limit(4), 1),
            (0, limit(3), 1),
            (0, limit(2), 2),
            (0, limit(1), 4),
            (0, None, 4),
            (1, limit(4), 1),
            (1, limit(2), 4),
            // The lease whose end decides is not listed.
            (1, limit(1), 5),
            (1, None, 5),
        ] {
            let contention = Contention {
                holder: Some(shared_by(more)),
                waiters: 0,
            };
            let left = time_to_wait(contention.holder.as_ref(), wanted);
            assert_eq!(left, Duration::from_secs(seconds), "{more} {wanted:?}");
            let locked = Locked::by(contention, wanted, Duration::ZERO, 0);
            assert_eq!(u128::from(locked.retry_after_ms), left.as_millis());
        }
    }

    #[test]
    fn does_not_send_all_callers_back_at_one_time() {
        assert_ne!(foreign(Some(3000), 0), foreign(Some(3000), 900));
        assert_ne!(foreign(None, 0), foreign(None, 900));
    }
}
