//! Acquire: ask for a lock.

use std::time::Duration;

use reqwest::{Method, StatusCode, header::HeaderName};
use serde::Serialize;
use tokio::time::Instant;

use crate::lock::{IdempotencyKey, LockName, Metadata, Owner};

use super::{Client, ClientError, Lease, answer::Answer, call::Call};

/// The header that makes an acquire repeatable.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What to ask for. The default leaves everything to the gateway.
#[derive(Debug, Clone, Default)]
pub struct AcquireRequest {
    /// How long the grant lasts.
    pub ttl: Option<Duration>,
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
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_hold_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    metadata: serde_json::Map<String, serde_json::Value>,
}

// === impl Client ===

impl Client {
    /// Asks for a lock.
    ///
    /// Dropped half-way, it may leave a lease behind that nobody holds: the gateway gives it back
    /// when its reconnect grace is over.
    pub async fn acquire(
        &self,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<Lease, ClientError> {
        let deadline = Instant::now() + self.options.deadline;
        loop {
            let minted = IdempotencyKey::random();
            let key = request.idempotency_key.as_ref().unwrap_or(&minted);
            let call = Call::new(Method::POST, self.lock_url(name, ""))
                .secret(IDEMPOTENCY_KEY, key.expose())
                .json(&Body::of(request));
            let answer = call.send_until(self, deadline).await?;
            if answer.status.is_success() {
                return Lease::from_answer(answer);
            }
            // A lease was granted, its answer got lost, and we came back for it too late: the
            // gateway has given it back. With a key of our own that is nobody else's business.
            let start_again = request.idempotency_key.is_none()
                && ended_unheard(&answer)
                && Instant::now() < deadline;
            if !start_again {
                return Err(answer.refusal());
            }
        }
    }
}

fn ended_unheard(answer: &Answer) -> bool {
    answer.in_doubt
        && answer.status == StatusCode::CONFLICT
        && answer
            .problem()
            .is_some_and(|problem| problem.code == "idempotency-expired")
}

// === impl Body ===

impl<'a> Body<'a> {
    fn of(request: &'a AcquireRequest) -> Self {
        let entry = |(name, value): (&str, &str)| (name.to_owned(), value.into());
        Self {
            ttl_ms: request.ttl.map(millis),
            max_hold_ms: request.max_hold.map(millis),
            owner: request.owner.as_ref().map(Owner::as_str),
            metadata: request.metadata.iter().map(entry).collect(),
        }
    }
}

/// Whole milliseconds; what does not fit is refused by the gateway like anything else too long.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
