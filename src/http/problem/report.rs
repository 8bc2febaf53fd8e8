//! A problem on its way to the edge, where it becomes a document, with all that it may carry: the fields that are wrong, who
//! holds the lock, and what came of each of several leases.

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
    http::locks::{CurrentHolder, ReleaseRequestBody, millis},
    lock::{HeldLease, LockName, Sharing, Ttl},
    store::contract::{Contention, Holder},
};

use super::ProblemCode;

/// What a handler answers instead of success.
///
/// It becomes a response without a side effect: the edge renders it, because only the edge knows the
/// request id, and logs it there, once.
#[derive(Debug, Clone)]
pub(in crate::http) struct Problem {
    pub(in crate::http) code: ProblemCode,
    /// What happened here, in whole sentences.
    pub(in crate::http) detail: Cow<'static, str>,
    pub(in crate::http) extra: Extra,
    /// For the log only: what an operator needs and a caller must not see.
    pub(in crate::http) cause: Option<String>,
    /// Whether the cause is an outage of the store, which the store logs itself, once.
    pub(in crate::http) is_outage: bool,
}

/// What a problem carries besides the fields that all have.
#[derive(Debug, Clone)]
pub(in crate::http) enum Extra {
    /// Nothing.
    None,
    /// `errors`.
    Fields(Vec<FieldError>),
    /// `holders`, `holder_count`, `waited_ms`, `waiters`, `retry_after_ms`, and the header `Retry-After`.
    Locked(Box<Locked>),
    /// `retry_after_ms` in milliseconds, and the header `Retry-After`.
    RetryAfter(u64),
    /// `held`.
    Lost {
        /// Whether somebody else holds the lock now.
        held: bool,
    },
    /// `results`.
    Parts(Vec<PartResult>),
    /// The header `Allow`.
    Allow(HeaderValue),
    /// The header `WWW-Authenticate`.
    Challenge(HeaderValue),
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

    /// A problem of which no more can be said than its code does.
    pub(super) fn general(code: ProblemCode) -> Self {
        Self::new(code, code.meaning())
    }

    /// 400: everything that is wrong with the request. There is at least one error.
    pub(in crate::http) fn invalid(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [FieldError { field, reason }] => format!("`{field}` {reason}."),
            _ => format!("{} things are wrong with the request.", errors.len()),
        };
        Self::new(ProblemCode::InvalidRequest, detail).with(Extra::Fields(errors))
    }

    /// 400: one thing that is wrong with the request.
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

    /// The problem as that of one of several leases.
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

    /// After how long to ask again, if the problem says so.
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
    /// Where: a field of the body (`ttl_ms`, `metadata.team`), a header (`Lock-Token`), `name` for
    /// the lock name in the path, `query.X` for a query parameter, or `body` for the body as such.
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
        // Whoever reads it on a terminal chose the name of a field that is not known, or was led to it.
        if field.contains(char::is_control) {
            field = Cow::Owned(field.escape_debug().to_string());
        }
        Self {
            field,
            reason: reason.into(),
        }
    }
}

/// What came of one of several leases.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct PartResult {
    /// The lock.
    #[schema(value_type = String)]
    name: String,
    /// Why it was not done: `lease-lost`, or a code of the store. Null: it was done.
    #[schema(required = true)]
    code: Option<ProblemCode>,
    /// What happened to one that was not done, in a sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    detail: Option<Cow<'static, str>>,
    /// With `lease-lost`: whether somebody else holds the lock now. A release without an API key is told only if the lease was broken.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool, required = false)]
    held: Option<bool>,
    /// The fencing token of a lease that was renewed; else null.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64, required = true)]
    fencing_token: Option<u64>,
    /// What is left of a lease that was renewed; else null.
    #[schema(required = true)]
    expires_in_ms: Option<u64>,
    /// What is left until `max_hold_ms` of a lease that was renewed; null if it has none.
    #[schema(required = true)]
    hold_expires_in_ms: Option<u64>,
    /// Only of a lease that was renewed and is to be released: somebody has asked for the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ReleaseRequestBody, required = false)]
    release_requested: Option<ReleaseRequestBody>,
}

// === impl PartResult ===

impl PartResult {
    /// It was done. `lease`: what the lease is then, if it has not ended.
    pub(in crate::http) fn done(name: &LockName, lease: Option<&HeldLease>) -> Self {
        Self {
            name: name.as_str().to_owned(),
            code: None,
            detail: None,
            held: None,
            fencing_token: lease.map(|lease| lease.fence.get()),
            expires_in_ms: lease.map(|lease| millis(lease.good_for())),
            hold_expires_in_ms: lease.and_then(|lease| lease.hold_expires_in).map(millis),
            release_requested: lease.and_then(ReleaseRequestBody::of_lease),
        }
    }

    /// Whether somebody else holds the lock of one of them now; `None`: it is not told of any.
    pub(super) fn any_held(results: &[Self]) -> Option<bool> {
        results.iter().filter_map(|it| it.held).max()
    }
}

/// The longest time after which to ask again: a holder may release long before its TTL is over.
const LONGEST: Duration = Duration::from_secs(5);
/// After how long to ask again when the lock is just passing to somebody who waited for it: the new
/// holder is known then.
const PASSING_ON: Duration = Duration::from_secs(1);

/// Who holds the lock, and when to ask again.
#[derive(Debug, Clone)]
pub(in crate::http) struct Locked {
    /// Which lock it is, if several were asked for.
    pub(super) name: Option<LockName>,
    pub(super) holders: Vec<CurrentHolder>,
    pub(super) holder_count: u64,
    pub(super) waited_ms: u64,
    pub(super) waiters: u64,
    pub(super) retry_after_ms: u64,
}

// === impl Locked ===

impl Locked {
    /// `sharing` is how the caller wanted to share the lock. `jitter` varies the time after which to ask again;
    /// any number will do.
    pub(super) fn by(
        contention: Contention,
        sharing: Option<Sharing>,
        waited: Duration,
        jitter: u32,
    ) -> Self {
        let left = time_to_wait(contention.holder.as_ref(), sharing);
        let holder_count = contention.holder.as_ref().map_or(0, Holder::count);
        let holders = contention
            .holder
            .map_or_else(Vec::new, CurrentHolder::all_of);
        let left = left.clamp(Ttl::MIN.duration(), LONGEST);
        // After the lease is over for a short one, so that asking again can succeed; within the
        // last fifth of the longest time for a long one.
        let spread = left / 5 * (jitter % 1000) / 1000;
        let retry_after = if left + spread > LONGEST {
            LONGEST.saturating_sub(spread)
        } else {
            left + spread
        };
        Self {
            name: None,
            holders,
            holder_count,
            waited_ms: millis(waited),
            waiters: contention.waiters,
            retry_after_ms: millis(retry_after),
        }
    }
}

/// After how long there is room for the caller, if nobody renews or releases: a shared lease needs as many to
/// end as are too many for its limit, an exclusive one needs all of them to.
fn time_to_wait(holder: Option<&Holder>, sharing: Option<Sharing>) -> Duration {
    let left = |lease: &HeldLease| lease.left_at(Instant::now());
    match holder {
        None => PASSING_ON,
        Some(Holder::Lease(lease)) => left(lease),
        Some(Holder::Foreign { expires_in, .. }) => expires_in.unwrap_or(LONGEST),
        Some(Holder::Shared(holders)) => {
            let limit = sharing.map_or(1, |sharing| u64::from(sharing.limit.get()));
            let too_many = (holders.count + 1).saturating_sub(limit);
            // With none too many it is the queue that stands before the caller, and any change may move it.
            let last = usize::try_from(too_many.saturating_sub(1)).unwrap_or(usize::MAX);
            let mut ends: Vec<_> = holders.leases.iter().map(left).collect();
            ends.sort_unstable();
            // Those that are not seen end later than those that are.
            ends.get(last).copied().unwrap_or(LONGEST)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        lock::{FencingToken, Limit, Metadata, Mode},
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

    /// Three leases that share a lock and end after one, two and four seconds, and so many more.
    fn shared_by(more: u64) -> Holder {
        let lease = |seconds| HeldLease {
            fence: FencingToken::new(1).unwrap(),
            mode: Mode::Shared { slot: None },
            ttl: Ttl::MIN,
            expires_in: Duration::from_secs(seconds),
            held_for: Duration::ZERO,
            hold_expires_in: None,
            owner: None,
            metadata: Metadata::default(),
            release_requested: None,
            as_of: Instant::now() + Duration::from_hours(1),
        };
        Holder::Shared(SharedHolders {
            // Renewed since they were put in order.
            leases: [2, 1, 4].map(lease).into(),
            count: 3 + more,
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
            // There is room, but somebody waits before this one.
            (0, limit(4), 1),
            (0, limit(3), 1),
            (0, limit(2), 2),
            (0, limit(1), 4),
            (0, None, 4),
            (1, limit(4), 1),
            (1, limit(2), 4),
            // Whoever decides it is not seen.
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
