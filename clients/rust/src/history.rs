//! Reads the history of a lock: who held it, from when to when, and how that ended.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::Deserialize;

use crate::{Client, ClientError, http::Call, lock::LockName};

/// The history of a lock.
#[derive(Debug, Clone, Deserialize)]
pub struct History {
    /// The last leases of the lock, newest first.
    pub entries: Vec<HistoryEntry>,
    /// The leases that were too short for entries; `None` if there were none.
    pub shorter_leases: Option<ShorterLeases>,
    /// How many records of the lock the gateways have dropped, because the store did not take them in time.
    #[serde(default)]
    pub dropped: u64,
    /// Whether the gateway records leases. If not, there are no entries.
    pub enabled: bool,
    #[serde(skip)]
    json: String,
}

/// A lease in the history of a lock. It holds the lock if neither `ended` nor `ended_at_latest` is known and
/// `acquired_at` is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HistoryEntry {
    /// The fencing token of the lease.
    pub fencing_token: u64,
    /// The mode of the lease: `exclusive` or `shared`; `None` if its beginning was not recorded.
    pub mode: Option<String>,
    /// The slot of a lease that was shared with a limit.
    pub slot: Option<u16>,
    /// The owner of the lease.
    pub owner: Option<String>,
    /// The metadata of the lease, as far as the gateway had room for it.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// When the lease was granted, in RFC 3339.
    pub acquired_at: Option<String>,
    /// The caller that acquired the lease: the name of its API key, or its address.
    pub acquired_by: Option<String>,
    /// How long the request waited for the lock, in milliseconds.
    pub waited_ms: Option<u64>,
    /// When the lease ended, in RFC 3339.
    pub ended_at: Option<String>,
    /// How the lease ended: `released`, `expired`, `broken` or `lost`.
    pub ended: Option<String>,
    /// The caller that released or broke the lease: the name of its API key, or its address.
    pub ended_by: Option<String>,
    /// The reason of a break, or of a release by the gateway.
    pub reason: Option<String>,
    /// If no gateway has recorded the end of the lease: it ended at this time at the latest, in RFC 3339.
    pub ended_at_latest: Option<String>,
    /// Other events of the lease, such as release requests; oldest first.
    #[serde(default)]
    pub notes: Vec<HistoryNote>,
}

/// Something that happened to a lease.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HistoryNote {
    /// The kind of the event, such as `release-requested`.
    pub kind: String,
    /// When it happened, in RFC 3339.
    pub at: String,
    /// The caller that caused the event: the name of its API key, or its address.
    pub by: Option<String>,
    /// The reason that was given.
    pub reason: Option<String>,
}

/// Leases that were too short for entries of their own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ShorterLeases {
    /// How many leases there were.
    pub count: u64,
    /// When the first of them ended, in RFC 3339.
    pub since: String,
}

/// The maximum size of a history in bytes: 500 entries of 1 KiB, with notes.
const MAX_ANSWER: usize = 4 * 1024 * 1024;

// === impl Client ===

impl Client {
    /// Reads the history of a lock: who held it, from when to when, and how that ended.
    pub async fn history(&self, name: &LockName) -> Result<History, ClientError> {
        let call = Call::new(Method::GET, name, "/history").longest_answer(MAX_ANSWER);
        let answer = call.send(self).await?;
        if !answer.status.is_success() {
            return Err(answer.refusal());
        }
        if let Some(why) = answer.names_other(name) {
            return Err(answer.unexpected(&why));
        }
        match serde_json::from_str::<History>(&answer.body) {
            Ok(history) => Ok(History {
                json: answer.body,
                ..history
            }),
            Err(_) => Err(answer.unexpected("not a history")),
        }
    }
}

// === impl History ===

impl History {
    /// The history as the gateway sent it, as JSON.
    pub fn json(&self) -> &str {
        &self.json
    }
}
