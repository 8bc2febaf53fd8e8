//! `GET /locks/{name}/history`: who held a lock, from when to when, and how that ended.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::scope,
    engine::{Fact, HistoryEntry, LockHistory},
    http::{
        extract::{AcceptsJson, ApiPath, Caller, NoQuery},
        json_response::JsonResponse,
        problem::Problem,
        state::AppState,
    },
    lock::{FencingToken, LockName},
};

use super::lease_view::timestamp;

/// Show the history of a lock
///
/// Shows the last leases of a lock, newest first: who held it, from when to when, how that ended, by whom and
/// why. At most `history.entries` leases are shown, each for `history.keep_ms` after its end. A lease shorter
/// than `history.after_ms` is only counted in `shorter_leases`, unless it was broken or lost, or its release
/// was requested. Renewals leave no entry.
///
/// Gateways write the history about once a second, behind the requests. If a gateway dies, what happened in
/// its last second is missing: such a lease is shown without `ended`, and with `ended_at_latest`. While the
/// store is away the last 10,000 records of each gateway wait; `dropped` counts those for which there was no
/// room. Timestamps are from the clocks of the gateways; the order is that of the fencing tokens.
#[utoipa::path(
    get,
    path = "/locks/{name}/history",
    operation_id = "lockHistory",
    tag = "locks",
    params(ApiPath<LockName>),
    responses(
        (status = 200, body = HistoryBody, description = "The history."),
    )
)]
pub(in crate::http) async fn history(
    State(gateway): State<Arc<AppState>>,
    _: Caller<scope::View>,
    _: AcceptsJson,
    ApiPath(name): ApiPath<LockName>,
    _: NoQuery,
) -> Result<JsonResponse<HistoryBody>, Problem> {
    let history = gateway.engine.history(&name).await?;
    Ok(JsonResponse(HistoryBody::new(&name, history)))
}

/// The history of a lock.
#[derive(Serialize, ToSchema)]
#[schema(as = History)]
pub(in crate::http) struct HistoryBody {
    /// The name of the lock.
    name: String,
    /// The last leases, newest first.
    #[schema(max_items = 500)]
    entries: Vec<EntryBody>,
    /// The leases that were too short for an entry; null if there were none.
    #[schema(required = true)]
    shorter_leases: Option<ShorterBody>,
    /// How many records of this lock were dropped, because the store did not take them in time: so many facts
    /// about leases are missing.
    dropped: u64,
    /// Whether this gateway records leases. If not, `entries` is empty.
    enabled: bool,
}

/// A lease in the history of a lock.
#[derive(Serialize, ToSchema)]
#[schema(as = HistoryEntry)]
struct EntryBody {
    /// The fencing token of the lease.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    fencing_token: u64,
    /// `exclusive` or `shared`; null if the beginning of the lease was not recorded.
    #[schema(required = true)]
    mode: Option<&'static str>,
    /// The slot of a lease that was shared with a limit; null otherwise.
    #[schema(required = true)]
    slot: Option<u16>,
    /// Owner text of the lease, for people to read.
    #[schema(required = true)]
    owner: Option<String>,
    /// Metadata of the lease, as far as an entry of 1 KiB has room for it.
    metadata: BTreeMap<String, String>,
    /// When the lease was granted; null if that was not recorded.
    #[schema(required = true, format = "date-time")]
    acquired_at: Option<String>,
    /// The caller that acquired the lease: the name of its API key, or its address; null if it is not known.
    #[schema(required = true)]
    acquired_by: Option<String>,
    /// How long the request waited for the lock; null if that was not recorded.
    #[schema(required = true)]
    waited_ms: Option<u64>,
    /// When the lease ended; null while it holds the lock, or if its end was not recorded.
    #[schema(required = true, format = "date-time")]
    ended_at: Option<String>,
    /// How the lease ended: `released`, `expired`, `broken`, or `lost` (gone before its time, and no gateway
    /// has ended it); null while it holds the lock, or if its end was not recorded.
    #[schema(required = true)]
    ended: Option<String>,
    /// The caller that released or broke the lease; null if it is not known, and if a gateway released the lease
    /// because its caller was gone.
    #[schema(required = true)]
    ended_by: Option<String>,
    /// The reason of a break; for a release by a gateway, why the gateway released the lease.
    #[schema(required = true)]
    reason: Option<String>,
    /// Only if the lease has ended and no gateway has recorded that: it ended at this time at the latest.
    #[schema(required = true, format = "date-time")]
    ended_at_latest: Option<String>,
    /// Other events of the lease, oldest first.
    notes: Vec<NoteBody>,
}

/// Something that happened to a lease.
#[derive(Serialize, ToSchema)]
#[schema(as = HistoryNote)]
struct NoteBody {
    /// The kind of the event: `release-requested`, `rest-ended` (a break ended the rest of the lock after the
    /// release of this lease), or `stale-write-refused` (a check refused the fencing token after the lease had
    /// ended).
    kind: String,
    /// When it happened.
    #[schema(format = "date-time")]
    at: String,
    /// The caller that caused the event; null if it is not known.
    #[schema(required = true)]
    by: Option<String>,
    /// The reason that was given; null without a reason.
    #[schema(required = true)]
    reason: Option<String>,
}

/// Leases that were too short for entries.
#[derive(Serialize, ToSchema)]
#[schema(as = ShorterLeases)]
struct ShorterBody {
    /// How many leases there were.
    count: u64,
    /// When the first of them ended.
    #[schema(format = "date-time")]
    since: String,
}

// === impl HistoryBody ===

impl HistoryBody {
    fn new(name: &LockName, history: LockHistory) -> Self {
        let counts = history.counts;
        Self {
            name: name.as_str().to_owned(),
            entries: history.entries.into_iter().map(EntryBody::new).collect(),
            shorter_leases: (counts.shorter > 0).then(|| ShorterBody {
                count: counts.shorter,
                since: shown(counts.since),
            }),
            dropped: counts.dropped,
            enabled: history.is_enabled,
        }
    }
}

// === impl EntryBody ===

impl EntryBody {
    fn new((fence, entry): (FencingToken, HistoryEntry)) -> Self {
        let is_known = entry.lease.is_some();
        let lease = entry.lease.unwrap_or_default();
        let mode = if lease.shared { "shared" } else { "exclusive" };
        let ended_at = entry.ended.as_ref().map(|ended| shown(ended.at));
        let (ended, ended_by, reason) = match entry.ended {
            Some(ended) => (Some(ended.kind.into_owned()), ended.by, ended.reason),
            None => (None, None, None),
        };
        Self {
            fencing_token: fence.get(),
            mode: is_known.then_some(mode),
            slot: lease.slot,
            owner: lease.owner,
            metadata: lease.metadata,
            acquired_at: entry.acquired_at.map(shown),
            acquired_by: lease.acquired_by,
            waited_ms: lease.waited,
            ended_at,
            ended,
            ended_by,
            reason,
            ended_at_latest: entry.ended_at_latest.map(shown),
            notes: entry.notes.into_iter().map(NoteBody::from).collect(),
        }
    }
}

fn shown(ms: u64) -> String {
    timestamp(SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)))
}

// === impl NoteBody ===

impl From<Fact> for NoteBody {
    fn from(note: Fact) -> Self {
        Self {
            kind: note.kind.into_owned(),
            at: shown(note.at),
            by: note.by,
            reason: note.reason,
        }
    }
}
