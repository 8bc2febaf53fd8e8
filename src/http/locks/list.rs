//! `GET /locks`: look at the locks that are held, a page at a time.

use std::{sync::Arc, time::SystemTime};

use axum::extract::State;
use http::{HeaderName, HeaderValue, header::LINK};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::{Access, Permission, scope},
    http::{
        extract::{AcceptsJson, ApiQuery, Caller, Fields, Form, Query, declare_fields, prefix},
        json_response::JsonResponse,
        problem::{Problem, ProblemCode},
        state::{AppState, BasePath},
    },
    lock::{LockName, Owner, SearchText},
    store::{
        contract::{HeldLock, Holder, LONGEST_PAGE, ListQuery, Page},
        cursor::Cursor,
        list_filter::ListFilter,
    },
};

use super::lease_view::HolderBody;

/// List the locks that are held
///
/// Shows a part of the locks that are held, in no order. Ask again with `next_cursor` until it is
/// null, or follow the `Link` until there is none. The work for one page is bounded, so a page may be short, or empty, although there are more.
/// A lock that is held throughout such a walk is on one page at least, and may be on two; what has
/// ended is on none. A client that took a lock in the store itself shows as `foreign`, with what is
/// known of it.
///
/// A search costs the gateway as much as the whole list does, whatever it finds: expect pages that are
/// empty before the one with what you search for.
///
/// With an API key name a `prefix` all of which it may view; else the answer is 403.
#[utoipa::path(
    get,
    path = "/locks",
    operation_id = "listLocks",
    tag = "locks",
    params(ApiQuery<ApiListQuery>),
    responses(
        (status = 200, body = PageBody, description = "A page of locks.",
         headers(("Link", description = "The next page, as `rel=\"next\"`, unless this was the last."))),
    )
)]
pub(in crate::http) async fn list(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::View>,
    _: AcceptsJson,
    ApiQuery(ApiListQuery(query)): ApiQuery<ApiListQuery>,
) -> Result<
    (
        Option<[(HeaderName, HeaderValue); 1]>,
        JsonResponse<PageBody>,
    ),
    Problem,
> {
    if !caller.permits_all(Permission::View, &query.filter.prefix) {
        let detail = format!(
            "The API key may not view every lock that begins with `{}`. Name a `prefix` of which it \
             may view all.",
            query.filter.prefix.as_str()
        );
        return Err(Problem::new(ProblemCode::Forbidden, detail));
    }
    // A caller that hangs up from here on ends the walk; nothing is left behind.
    let views = |name: &LockName| caller.views(name);
    let page = gateway.engine.list(&query, views).await?;
    let now = gateway.clock.wall();
    let page = PageBody::new(page, &query, now, &caller);
    let next = page.next_cursor.as_deref();
    let next = next.map(|cursor| [(LINK, link(&gateway.base_path, &query, cursor))]);
    Ok((next, JsonResponse(page)))
}

/// The page after this one: the same list, from its cursor on.
fn link(base_path: &BasePath, asked: &ListQuery, cursor: &str) -> HeaderValue {
    let mut parameters = format!("limit={}&cursor={cursor}", asked.limit);
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    if !asked.filter.prefix.as_str().is_empty() {
        parameters.extend(["&prefix=", &encoded(asked.filter.prefix.as_str())]);
    }
    if let Some(owner) = &asked.filter.owner {
        parameters.extend(["&owner=", &encoded(owner.as_str())]);
    }
    if let Some(search) = &asked.filter.search {
        parameters.extend(["&search=", &encoded(search.as_str())]);
    }
    HeaderValue::try_from(format!("<{base_path}/locks?{parameters}>; rel=\"next\""))
        .expect("a base path that routes and what is percent-encoded are visible ASCII")
}

// === List query ===
//
// What list takes.

/// Which locks are to be shown.
pub(in crate::http) struct ApiListQuery(ListQuery);

/// How many locks are shown if nothing is said: a screen or two.
const DEFAULT_LIMIT: usize = 100;

declare_fields! {
    /// The owner of a lease, exactly. A foreign client has none. Of those who share a lock, it may not be found behind
    /// the 100 whose leases end first.
    const OWNER: "owner" => Form::prose(Owner::MAX_CHARS);
    /// A part of the name, of the owner or of a value of the metadata, whatever the case of its letters.
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
        // A cursor belongs to a filter, which must be right first.
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
    /// Locks that somebody holds, in no order.
    locks: Vec<ListedLockBody>,
    /// The `cursor` of the next page; null: this was the last.
    #[schema(required = true, min_length = 24, max_length = 24)]
    next_cursor: Option<String>,
}

/// A lock that somebody holds, or held until now.
#[derive(Serialize, ToSchema)]
#[schema(as = HeldLock)]
pub(in crate::http) struct HeldLockBody {
    /// The lock.
    name: String,
    /// Who holds it, or held it until now: of several 100 at most.
    #[schema(min_items = 1, max_items = 100)]
    holders: Vec<HolderBody>,
    /// How many hold it in all.
    holder_count: u64,
}

/// A lock on a page.
#[derive(Serialize, ToSchema)]
#[schema(as = ListedLock)]
struct ListedLockBody {
    #[serde(flatten)]
    held: HeldLockBody,
    /// How many wait for it: at all gateways, or on a quorum at the one that answers. Those who are just
    /// leaving may count.
    waiter_count: u64,
}

// === impl PageBody ===

impl PageBody {
    /// `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn new(page: Page, asked: &ListQuery, now: SystemTime, viewer: &Access) -> Self {
        let listed = |lock: HeldLock| ListedLockBody {
            held: HeldLockBody::new(&lock.name, lock.holder, now, viewer),
            waiter_count: lock.waiters,
        };
        Self {
            next_cursor: page.next.map(|cursor| cursor.expose(&asked.filter)),
            locks: page.locks.into_iter().map(listed).collect(),
        }
    }
}

// === impl HeldLockBody ===

impl HeldLockBody {
    /// `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn new(name: &LockName, holder: Holder, now: SystemTime, viewer: &Access) -> Self {
        Self {
            name: name.as_str().to_owned(),
            holder_count: holder.count(),
            holders: HolderBody::all_of(holder, now, viewer),
        }
    }
}
