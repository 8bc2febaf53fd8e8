//! Acquire: ask for a lock.

use std::time::Duration;

use serde::Serialize;

use crate::lock::{IdempotencyKey, LockName, Metadata, Owner};

use super::{Client, ClientError, Lease};

/// What to ask for. The default leaves everything to the gateway.
#[derive(Debug, Clone, Default)]
pub struct AcquireRequest {
    /// How long the grant lasts.
    pub ttl: Option<Duration>,
    /// How long to wait for a lock that is held: not at all by default, and as long as it takes with
    /// [`AcquireRequest::FOR_EVER`]. A gateway lets one request wait for about a minute at most; a
    /// longer wait is a chain of requests that keep their place in the queue, over lost connections
    /// and from one gateway to another.
    pub wait: Duration,
    /// How long the lease may be kept with renewals.
    pub max_hold: Option<Duration>,
    /// Who asks, for people to read.
    pub owner: Option<Owner>,
    /// What to attach.
    pub metadata: Metadata,
    /// Under which the request may be repeated, by this process or a later one. Without it the
    /// client mints one for this call.
    pub idempotency_key: Option<IdempotencyKey>,
}

#[derive(Serialize)]
pub(super) struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_hold_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    metadata: serde_json::Map<String, serde_json::Value>,
}

// === impl AcquireRequest ===

impl AcquireRequest {
    /// Waits for as long as it takes.
    pub const FOR_EVER: Duration = Duration::MAX;
}

// === impl Client ===

impl Client {
    /// Asks for a lock, and waits for it if the request says so.
    ///
    /// Dropped half-way, it may leave a place in the queue or a lease behind that nobody holds: the
    /// gateway takes it back when its reconnect grace is over. [`Client::acquiring`] can do better.
    pub async fn acquire(
        &self,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<Lease, ClientError> {
        self.acquiring(name.clone(), request.clone()).finish().await
    }
}

// === impl Body ===

impl<'a> Body<'a> {
    /// A request that waits for so long at the gateway.
    pub(super) fn of(request: &'a AcquireRequest, wait: Duration) -> Self {
        let entry = |(name, value): (&str, &str)| (name.to_owned(), value.into());
        Self {
            ttl_ms: request.ttl.map(millis),
            max_hold_ms: request.max_hold.map(millis),
            wait_ms: (!wait.is_zero()).then(|| millis(wait)),
            owner: request.owner.as_ref().map(Owner::as_str),
            metadata: request.metadata.iter().map(entry).collect(),
        }
    }
}

/// Whole milliseconds; what does not fit is refused by the gateway like anything else too long.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
