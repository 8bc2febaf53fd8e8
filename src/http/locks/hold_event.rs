//! What happens to a hold, as server-sent events.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    engine::{HoldEnd, HoldEvent},
    http::{
        base_path::BasePath,
        json_response::json,
        problem::{Problem, document},
    },
    store::positions::Position,
};

use super::lease_body::{LeaseBody, millis};

/// A comment that keeps proxies from taking the stream for dead, and the first of which makes them
/// pass on the head of the answer.
pub(super) const HEARTBEAT: Bytes = Bytes::from_static(b":\n\n");

/// One event of the stream, as a parser of server-sent events gives it.
#[derive(ToSchema)]
#[schema(as = HoldEvent)]
#[expect(dead_code, reason = "it only describes what is written as text")]
pub(in crate::http) struct EventSchema {
    /// What has happened.
    event: EventName,
    /// More about it, as a JSON object.
    #[schema(content_media_type = "application/json")]
    data: String,
}

/// What has happened to a hold. The last four end the stream.
#[derive(ToSchema)]
#[schema(as = HoldEventName, rename_all = "lowercase")]
#[expect(dead_code, reason = "it only describes what is written as text")]
pub(in crate::http) enum EventName {
    /// It stands in the queue, or has moved there.
    Queued,
    /// It holds the lock.
    Granted,
    /// It goes on holding the lock.
    Renewed,
    /// The lease was released with its token.
    Released,
    /// The lease is lost.
    Lost,
    /// The lock was not acquired.
    Refused,
    /// The gateway is about to stop.
    Draining,
}

/// Where in the queue a hold stands.
#[derive(Serialize)]
struct Queued {
    position: u64,
    waiters: u64,
}

/// What is left of a lease.
#[derive(Serialize)]
struct RemainingTime {
    expires_in_ms: Option<u64>,
}

/// Why a lease was lost.
#[derive(Serialize)]
struct Lost {
    reason: &'static str,
}

/// Nothing more to say.
#[derive(Serialize)]
struct Nothing {}

/// The last event of a hold, and what the log says of it.
pub(super) struct FinalEvent {
    pub(super) event: Bytes,
    /// The name of the event.
    pub(super) name: &'static str,
    /// Why, in one word, if there is more to say than the name does.
    pub(super) reason: Option<&'static str>,
    /// What an operator must know of a refusal.
    pub(super) cause: Option<String>,
}

/// An event that is not the last. `now` is the wall time of the gateway, for the timestamps.
pub(super) fn encode_ongoing(event: HoldEvent, now: SystemTime) -> Result<Bytes, HoldEnd> {
    Ok(match event {
        HoldEvent::Queued(position) => encode("queued", &json(&Queued::at(position))),
        HoldEvent::Granted(lease) => encode("granted", &json(&LeaseBody::new(lease, now))),
        HoldEvent::Renewed(held) => {
            encode("renewed", &json(&RemainingTime::of(Some(held.expires_in))))
        }
        HoldEvent::Ended(end) => return Err(end),
    })
}

// === impl FinalEvent ===

impl FinalEvent {
    pub(super) fn of(
        end: HoldEnd,
        sees_holder: bool,
        base_path: &BasePath,
        request_id: &str,
    ) -> Self {
        match end {
            HoldEnd::Released => Self::new("released", None, &json(&Nothing {})),
            HoldEnd::Draining { left } => {
                Self::new("draining", None, &json(&RemainingTime::of(left)))
            }
            HoldEnd::Lost(reason) => {
                let reason = reason.as_str();
                Self::new("lost", Some(reason), &json(&Lost { reason }))
            }
            HoldEnd::Refused(error) => {
                let problem = Problem::for_acquire(error, sees_holder);
                let document = document(&problem, base_path, request_id);
                let mut last = Self::new("refused", Some(problem.code.as_str()), &document);
                last.cause = problem.cause;
                last
            }
        }
    }

    fn new(name: &'static str, reason: Option<&'static str>, data: &[u8]) -> Self {
        Self {
            event: encode(name, data),
            name,
            reason,
            cause: None,
        }
    }
}

// === impl Queued ===

impl Queued {
    fn at(position: Position) -> Self {
        Self {
            position: position.ahead + 1,
            waiters: position.waiters,
        }
    }
}

// === impl RemainingTime ===

impl RemainingTime {
    fn of(left: Option<Duration>) -> Self {
        Self {
            expires_in_ms: left.map(millis),
        }
    }
}

/// JSON as it is written here has no line breaks, so it is one `data` line.
fn encode(name: &str, json: &[u8]) -> Bytes {
    // The data of an event is one line. It is this format that ends it.
    let json = json.trim_ascii_end();
    [b"event: ", name.as_bytes(), b"\ndata: ", json, b"\n\n"]
        .concat()
        .into()
}
