//! A page of held locks.

use std::time::SystemTime;

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    lock::LockName,
    store::{
        contract::Holder,
        cursor::Cursor,
        page::{HeldLock, ListQuery, Page},
    },
};

use super::lock_body::HolderBody;

/// A page of held locks. It never shows a token.
#[derive(Serialize, ToSchema)]
#[schema(as = Page)]
pub(in crate::http) struct PageBody {
    /// Locks that somebody holds, in no order. There may be few or none, and still more pages.
    locks: Vec<ListedLockBody>,
    /// The `cursor` of the next page; null: this was the last.
    #[schema(required = true, min_length = 24, max_length = 24)]
    next_cursor: Option<String>,
}

/// A lock that somebody holds, or held until now.
#[derive(Serialize, ToSchema)]
#[schema(as = HeldLock, example = json!({
    "name": "deploy:prod",
    "holder": {
        "owner": "ci-runner-7",
        "metadata": {"job": "4711"},
        "fencing_token": 1_795_170_000_000_042_u64,
        "ttl_ms": 30_000,
        "expires_in_ms": 21_480,
        "expires_at": "2026-11-20T12:00:30.000Z",
        "acquired_at": "2026-11-20T12:00:00.000Z",
        "hold_expires_in_ms": null,
        "foreign": false,
        "foreign_mark": null,
    },
}))]
pub(in crate::http) struct HeldLockBody {
    /// The lock.
    name: String,
    /// Who holds it.
    holder: HolderBody,
}

/// A lock on a page.
#[derive(Serialize, ToSchema)]
#[schema(as = ListedLock)]
struct ListedLockBody {
    #[serde(flatten)]
    held: HeldLockBody,
    /// How many wait for it, at all gateways. Those who are just leaving may count.
    waiter_count: u64,
}

// === impl PageBody ===

impl PageBody {
    /// `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn new(page: Page, asked: &ListQuery, now: SystemTime) -> Self {
        let text = |cursor: Cursor| cursor.expose(&asked.prefix, asked.owner.as_ref());
        let locks = page.locks.into_iter();
        Self {
            next_cursor: page.next.map(text),
            locks: locks.map(|lock| ListedLockBody::new(lock, now)).collect(),
        }
    }
}

// === impl HeldLockBody ===

impl HeldLockBody {
    /// `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn new(name: &LockName, holder: Holder, now: SystemTime) -> Self {
        Self {
            name: name.as_str().to_owned(),
            holder: HolderBody::new(holder, now),
        }
    }
}

// === impl ListedLockBody ===

impl ListedLockBody {
    fn new(lock: HeldLock, now: SystemTime) -> Self {
        Self {
            held: HeldLockBody::new(&lock.name, lock.holder, now),
            waiter_count: lock.waiters,
        }
    }
}
