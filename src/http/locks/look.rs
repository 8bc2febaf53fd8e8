//! `GET /locks/{name}`, `GET /locks/{name}/check` and `GET /locks`: inspect a lock, check whether a lease with a
//! fencing token holds it, and list the held locks page by page.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::extract::State;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::{Access, Permission, scope},
    config::DeclaredLock,
    http::{
        extract::{
            AcceptsJson, ApiPath, ApiQuery, Caller, FencingTokenHeader, Fields, Form, NoQuery,
            Query, declare_fields, prefix,
        },
        json_response::JsonResponse,
        problem::{Extra, Problem, ProblemCode, order_grant, why_it_waits},
        state::AppState,
    },
    lock::{
        Limit, LockName, Metadata, Owner, SearchText, Sharing,
        answers::{self, LockState, Rest},
    },
    store::{
        contract::{
            FenceCheck, FenceQuery, HeldLock, Holder, Inspection, LONGEST_PAGE, ListQuery, Page,
            Waiter,
        },
        cursor::Cursor,
        list_filter::{Found, ListFilter},
    },
};

use super::lease_view::{HolderBody, millis, rests, state_of};

/// Inspect a lock
///
/// Shows whether the lock is held, its holders, and its waiters in the order in which they are served. A lock
/// that was never taken is free. A lock that rests after a release (`min_hold_ms`) has the state `resting`. A client that took the lock in the store itself shows as `foreign`, with
/// what is known of it.
#[utoipa::path(
    get,
    path = "/locks/{name}",
    operation_id = "inspectLock",
    tag = "locks",
    params(ApiPath<LockName>),
    responses(
        (status = 200, body = LockBody, description = "The lock."),
    )
)]
pub(in crate::http) async fn inspect(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::View>,
    _: AcceptsJson,
    ApiPath(name): ApiPath<LockName>,
    _: NoQuery,
) -> Result<JsonResponse<LockBody>, Problem> {
    let inspection = gateway.engine.inspect(&name).await?;
    let awaited = match &inspection.holder {
        Some(holder) => gateway.engine.awaited_locks(holder).await,
        None => Vec::new(),
    };
    let now = gateway.clock.wall();
    let mut lock = LockBody::new(&name, inspection, now, &caller);
    HolderBody::add_awaited(&mut lock.holders, awaited, now, &caller);
    lock.declared = gateway.declared(&name).map(|lock| (*lock).clone());
    Ok(JsonResponse(lock))
}

/// A lock, held, resting or free. It never shows a token.
#[derive(Serialize, ToSchema)]
#[schema(as = Lock, example = json!({
    "name": "deploy:prod",
    "state": "held",
    "holders": [{
        "owner": "ci-runner-7",
        "metadata": {"job": "4711"},
        "fencing_token": 1_795_170_000_000_042_u64,
        "mode": "exclusive",
        "slot": null,
        "ttl_ms": 30_000,
        "expires_in_ms": 21_480,
        "expires_at": "2026-11-20T12:00:30.000Z",
        "acquired_at": "2026-11-20T12:00:00.000Z",
        "hold_expires_in_ms": null,
        "foreign": false,
        "foreign_mark": null,
        "group": null,
    }],
    "holder_count": 1,
    "waiters": [{
        "position": 1,
        "owner": "ci-runner-9",
        "metadata": {"job": "4712"},
        "mode": "exclusive",
        "limit": null,
        "waited_ms": 8_504,
    }],
    "waiter_count": 1,
}))]
pub(in crate::http) struct LockBody {
    /// The name of the lock.
    name: String,
    /// Whether the lock is held.
    state: LockState,
    /// The holders: none if the lock is free; of a shared lock at most the 100 leases that end soonest.
    #[schema(max_items = 100)]
    holders: Vec<HolderBody>,
    /// The number of all holders.
    holder_count: u64,
    /// The rests of the lock: places of leases that were released before their `min_hold_ms` was over. Only if
    /// there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, max_items = 100)]
    resting: Vec<Rest>,
    /// The first 100 waiters, in the order in which they are served.
    #[schema(max_items = 100)]
    waiters: Vec<answers::Waiter>,
    /// The number of all waiters. In Redis, up to a quarter of a queue of more than 512 may have left
    /// already.
    waiter_count: u64,
    /// Why the first waiter of a shared lock waits: its own limit, or because it asked for the lock alone. Later
    /// waiters wait behind it, also if their limits are larger. Only if the lock is shared and has waiters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        nullable = false,
        example = "3 share the lock, and the first waiter asked for at most 2 holders"
    )]
    waiting_because: Option<String>,
    /// The highest order for which the lock was granted: requests with a lower one are refused. Only if the lock
    /// remembers one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false, maximum = 9_007_199_254_740_991_u64)]
    granted_order: Option<u64>,
    /// The grant for that order, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = answers::OrderGrant, required = false)]
    order_granted: Option<answers::OrderGrant>,
    /// The terms that the operator has declared for the lock in the locks file. Only if the lock is declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    declared: Option<DeclaredLock>,
}

// === impl LockBody ===

impl LockBody {
    /// Body for a lock. `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn new(
        name: &LockName,
        inspection: Inspection,
        now: SystemTime,
        viewer: &Access,
    ) -> Self {
        let holder = inspection.holder;
        let waiting_because = match (&holder, inspection.queue.first()) {
            (Some(Holder::Shared(holders)), Some(first)) => {
                why_it_waits(first, "the first", holders.count)
            }
            _ => None,
        };
        let resting = rests(holder.as_ref());
        let (state, holder_count) = state_of(holder.as_ref());
        let holders =
            holder.map_or_else(Vec::new, |holder| HolderBody::all_of(holder, now, viewer));
        Self {
            name: name.as_str().to_owned(),
            state,
            holders,
            holder_count,
            resting,
            waiters: (1..)
                .zip(inspection.queue)
                .map(|(position, waiter)| waiter_body(position, waiter))
                .collect(),
            waiter_count: inspection.waiters,
            waiting_because,
            granted_order: inspection.granted_order.as_ref().map(|it| it.number.get()),
            order_granted: (inspection.granted_order)
                .and_then(|it| it.grant.as_deref().map(order_grant)),
            declared: None,
        }
    }
}

fn owned(metadata: &Metadata) -> BTreeMap<String, String> {
    let entries = metadata.iter();
    entries
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn waiter_body(position: u64, waiter: Waiter) -> answers::Waiter {
    let limit = waiter.sharing.as_ref().and_then(Sharing::explicit_limit);
    answers::Waiter {
        position,
        owner: waiter.owner.map(|owner| owner.as_str().to_owned()),
        metadata: owned(&waiter.metadata),
        mode: Some(Sharing::mode(waiter.sharing).as_str().to_owned()),
        limit: limit.map(Limit::get),
        waited_ms: millis(waiter.waited),
    }
}

// === Check ===

/// Query of a check: for how long the lease must last.
pub(in crate::http) struct CheckQuery(Duration);

declare_fields! {
    /// For how long the lease must still last. What a proxy passes on and ends within this time does not outlive
    /// the lease, unless the lease is released or broken meanwhile. Left out: any time.
    const FOR_MS: "for_ms" => Form::millis(|limits| (0, limits.max_ttl_ms.0));
}

// === impl CheckQuery ===

impl Query for CheckQuery {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self(Duration::from_millis(fields.whole(&FOR_MS).unwrap_or(0)))
    }
}

/// Check a fencing token
///
/// Answers 204 if a lease with this fencing token holds the lock now, and 403 if not. So a proxy or a resource
/// refuses a holder whose lease has ended, without storing the largest fencing token itself: nginx
/// (`auth_request`), Caddy (`forward_auth`) and `HAProxy` pass a request on after a 2xx only.
///
/// * 403 `stale-fencing-token`: no lease with this fencing token holds the lock. It has ended, was never granted,
///   or its grant was not delivered yet; or a client that uses no gateway holds the lock. `ended_ms_ago` says how
///   long ago the lease ended, if this gateway remembers it.
/// * 403 `ends-too-soon`: the lease holds the lock, but lasts less than `for_ms`.
/// * 503: the store cannot say. Refuse the write.
///
/// Each lease of a shared lock has a fencing token of its own, which passes for as long as that lease lives. The
/// answer holds for the moment in which the store was asked. Fencing tokens are public: a check proves that a lease
/// lives, and not that the sender is its holder.
///
/// A check changes nothing, and no cache may keep its answer. If a larger fencing token was granted, a refusal is
/// the event `stale-write-refused`, once a minute for each lock and fencing token. With API keys the call needs a
/// key with the permission `check`. The call does not count against the rate of the key;
/// `limits.checks_per_second` limits it.
#[utoipa::path(
    get,
    path = "/locks/{name}/check",
    operation_id = "checkFencingToken",
    tag = "locks",
    params(ApiPath<LockName>, FencingTokenHeader, ApiQuery<CheckQuery>),
    responses((status = 204, description = "A lease with the fencing token holds the lock."))
)]
pub(in crate::http) async fn check(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::Check>,
    ApiPath(name): ApiPath<LockName>,
    FencingTokenHeader(fence): FencingTokenHeader,
    ApiQuery(CheckQuery(at_least)): ApiQuery<CheckQuery>,
) -> Result<StatusCode, Problem> {
    caller.count_check(gateway.config.limits.checks_per_second)?;
    let (engine, query) = (
        &gateway.engine,
        FenceQuery {
            name,
            fence,
            token: None,
        },
    );
    // If the caller hangs up from here on, nothing is left behind.
    let ask = async || {
        Ok::<_, Problem>(match engine.check_fence(&query, caller.mark()).await? {
            FenceCheck::Held { left, as_of } => Some(left.saturating_sub(as_of.elapsed())),
            FenceCheck::Stale { .. } | FenceCheck::Broken | FenceCheck::Released(_) => None,
        })
    };
    let mut left = ask().await?;
    if left == Some(Duration::ZERO) {
        // The answer of the store took longer than what was left when it was asked, so the lease may live or not.
        left = ask().await?;
    }
    let left = left.unwrap_or_default();
    if left.is_zero() {
        let ago = engine.lease_ended_ago(&query).map(millis);
        let detail = format!("No lease with the fencing token {fence} holds the lock.");
        let ago = ago.map_or(Extra::None, Extra::EndedAgo);
        return Err(Problem::new(ProblemCode::StaleFencingToken, detail).with(ago));
    }
    if left < at_least {
        let detail = "The lease holds the lock, but ends too soon.";
        let left = Extra::ExpiresIn(millis(left));
        return Err(Problem::new(ProblemCode::EndsTooSoon, detail).with(left));
    }
    Ok(StatusCode::NO_CONTENT)
}

// === List ===

/// List the locks that are held
///
/// Shows a part of the held locks, in no order. Ask again with `next_cursor` until it is null. The work for
/// one page is bounded, so a page may be short, or empty, although there are more locks. A lock that is held
/// throughout such a walk is on one page at least, and may be on two; an ended lease is on none. A client
/// that took a lock in the store itself shows as `foreign`, with what is known of it.
///
/// A search costs the gateway as much as the whole list, even if it finds nothing: expect empty pages before
/// the page with a match.
///
/// With an API key, send a `prefix` whose locks the key may all view; otherwise the answer is 403.
#[utoipa::path(
    get,
    path = "/locks",
    operation_id = "listLocks",
    tag = "locks",
    params(ApiQuery<ApiListQuery>),
    responses(
        (status = 200, body = PageBody, description = "A page of locks."),
    )
)]
pub(in crate::http) async fn list(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::View>,
    _: AcceptsJson,
    ApiQuery(ApiListQuery(query)): ApiQuery<ApiListQuery>,
) -> Result<JsonResponse<PageBody>, Problem> {
    if !caller.permits_all(Permission::View, &query.filter.prefix) {
        let detail = format!(
            "The API key may not view every lock that begins with `{}`. Name a `prefix` under \
             which the key may view every lock.",
            query.filter.prefix.as_str()
        );
        return Err(Problem::new(ProblemCode::Forbidden, detail));
    }
    // If the caller hangs up from here on, the walk ends and leaves nothing behind.
    let views = |name: &LockName| caller.views(name);
    let page = gateway.engine.list(&query, views).await?;
    let now = gateway.clock.wall();
    let page = PageBody::new(page, &query, now, &caller);
    Ok(JsonResponse(page))
}

// === List query ===
//
// Query of a list request.

/// Query of a list request: which locks to show.
pub(in crate::http) struct ApiListQuery(ListQuery);

/// Number of locks on a page if the query has no `limit`: a screen or two.
const DEFAULT_LIMIT: usize = 100;

declare_fields! {
    /// The owner of a lease, exactly. A foreign client has no owner. In a shared lock, an owner may not be
    /// found behind the 100 leases that end first.
    const OWNER: "owner" => Form::prose(Owner::MAX_CHARS);
    /// A part of the name, or of the owner or a metadata value of a holder or of one of the first 100 waiters (on a
    /// quorum: at the gateway that answers); upper and lower case match.
    const SEARCH: "search" => Form::text(1, SearchText::MAX_CHARS, "").example("runner-7");
    /// How many locks on one page, with Redis a few more if it is below 20; left out: 100.
    const LIMIT: "limit" => Form::whole(|_| (1, LONGEST_PAGE as u64));
    /// The `next_cursor` of the page before, with the same `prefix`, `owner` and `search`.
    const CURSOR: "cursor" => Form::text(24, 40, "^[A-Za-z0-9_-]*$");
}

// === impl ApiListQuery ===

impl Query for ApiListQuery {
    fn read(fields: &mut Fields<'_>) -> Self {
        let filter = ListFilter {
            prefix: prefix(fields),
            owner: fields.parsed(&OWNER, Owner::new),
            search: fields.parsed(&SEARCH, SearchText::new),
        };
        // The cursor belongs to the filter of its list, so it is checked only if the filter in the query is
        // valid.
        let is_right = fields.are_right();
        let limit = fields
            .whole(&LIMIT)
            .and_then(|limit| usize::try_from(limit).ok());
        let cursor = fields.text(&CURSOR).filter(|_| is_right);
        let cursor = cursor.and_then(|text| fields.check(&CURSOR, Cursor::parse(&text, &filter)));
        Self(ListQuery {
            filter,
            limit: limit.unwrap_or(DEFAULT_LIMIT),
            cursor,
        })
    }
}

// === Page body ===
//
// A page of held locks.

/// A page of held locks. It never shows a token.
#[derive(Serialize, ToSchema)]
#[schema(as = Page)]
pub(in crate::http) struct PageBody {
    /// Held locks, in no order.
    locks: Vec<ListedLockBody>,
    /// The `cursor` of the next page; null on the last page.
    #[schema(required = true, min_length = 24, max_length = 24)]
    next_cursor: Option<String>,
}

/// A lock that is held, or was held until now.
#[derive(Serialize, ToSchema)]
#[schema(as = HeldLock)]
pub(in crate::http) struct HeldLockBody {
    /// The name of the lock.
    name: String,
    /// The holders, or the holders until now: 100 at most, and none if the lock rests.
    #[schema(max_items = 100)]
    holders: Vec<HolderBody>,
    /// The number of all holders.
    holder_count: u64,
    /// The rests of the lock; in the answer to a break, the rests that the break has ended. Only if there are
    /// any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, max_items = 100)]
    resting: Vec<Rest>,
}

/// A held lock on a page of the list.
#[derive(Serialize, ToSchema)]
#[schema(as = ListedLock)]
struct ListedLockBody {
    #[serde(flatten)]
    held: HeldLockBody,
    /// The number of waiters: at all gateways, or on a quorum at the gateway that answers. Waiters that are
    /// just leaving may count.
    waiter_count: u64,
    /// Where the text of the `search` is. Only if it is not in the name of the lock.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = answers::Match, required = false)]
    found: Option<answers::Match>,
}

// === impl PageBody ===

impl PageBody {
    /// Body for a page. `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn new(page: Page, asked: &ListQuery, now: SystemTime, viewer: &Access) -> Self {
        let listed = |lock: HeldLock| ListedLockBody {
            held: HeldLockBody::new(&lock.name, lock.holder, now, viewer),
            waiter_count: lock.waiters,
            found: lock.found.map(match_body),
        };
        Self {
            next_cursor: page.next.map(|cursor| cursor.expose(&asked.filter)),
            locks: page.locks.into_iter().map(listed).collect(),
        }
    }
}

fn match_body(found: Found) -> answers::Match {
    let of = if found.is_waiter { "waiter" } else { "holder" };
    let field = match found.entry {
        Some(_) => "metadata",
        None => "owner",
    };
    answers::Match {
        of: of.to_owned(),
        field: field.to_owned(),
        name: found.entry,
        value: found.value,
    }
}

// === impl HeldLockBody ===

impl HeldLockBody {
    /// Body for a held lock. `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn new(name: &LockName, holder: Holder, now: SystemTime, viewer: &Access) -> Self {
        let resting = rests(Some(&holder));
        Self {
            name: name.as_str().to_owned(),
            holder_count: holder.holders(),
            resting,
            holders: HolderBody::all_of(holder, now, viewer),
        }
    }
}
