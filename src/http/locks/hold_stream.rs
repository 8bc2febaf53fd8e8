//! The answer to a hold: a stream of events that ends with the lease, or the lease with it.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, SystemTime},
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header::CONTENT_TYPE};
use http_body::Frame;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tracing::info;
use utoipa::ToSchema;

use crate::{
    auth::{Access, LimitSlot},
    engine::{AcquireRequest, Engine, Hold, HoldEnd, HoldEvent},
    http::{
        base_path::BasePath,
        extract::EventStream,
        json_response::json as to_json,
        problem::{Problem, document},
        state::AppState,
    },
    lock::Lease,
    store::positions::Position,
};

use super::{
    acquire::WaiterCount,
    lease_view::{LeaseBody, ReleaseRequestBody, millis},
};

/// A hold on its way to whoever listens. Dropped, the lock is released.
pub(in crate::http) struct HoldStream {
    hold: Hold,
    count: HoldCount,
    stream: EventStream,
    gateway: Arc<AppState>,
    /// Whether a refusal may say who holds the lock.
    sees_holder: bool,
    heartbeat: Interval,
    phase: HoldStreamPhase,
}

#[derive(PartialEq, Eq)]
enum HoldStreamPhase {
    /// Nothing has been sent.
    New,
    /// Events are sent as they come.
    Open,
    /// The last event has been sent.
    Over,
}

/// How often something is sent: often enough for proxies that close a connection which is silent
/// for half a minute, and to find out within moments that the caller's machine is gone.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(10);
/// Tells nginx, and those who took this over from it, not to collect the answer before passing it on.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

// === impl HoldStream ===

impl HoldStream {
    pub(super) fn new(
        hold: Hold,
        count: HoldCount,
        stream: EventStream,
        gateway: Arc<AppState>,
        sees_holder: bool,
    ) -> Self {
        let mut heartbeat = interval_at(Instant::now() + HEARTBEAT_PERIOD, HEARTBEAT_PERIOD);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            hold,
            count,
            stream,
            gateway,
            sees_holder,
            heartbeat,
            phase: HoldStreamPhase::New,
        }
    }

    fn write(&mut self, event: HoldEvent) -> Bytes {
        if let HoldEvent::Granted(Lease { held, .. }) | HoldEvent::Renewed(held) = &event {
            self.stream.set_user_timeout(held.ttl.duration());
        }
        self.count.update(&event);
        match encode_ongoing(event, self.gateway.clock.wall()) {
            Ok(event) => event,
            Err(end) => {
                self.phase = HoldStreamPhase::Over;
                let id = self.stream.request_id();
                let last = FinalEvent::of(*end, self.sees_holder, &self.gateway.base_path, id);
                let (end, reason, cause) = (last.name, last.reason, last.cause);
                info!(id, end, reason, cause, "a held lock is no longer held here");
                last.event
            }
        }
    }
}

impl IntoResponse for HoldStream {
    fn into_response(self) -> Response {
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
            (X_ACCEL_BUFFERING, HeaderValue::from_static("no")),
        ];
        (headers, Body::new(self)).into_response()
    }
}

impl http_body::Body for HoldStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match self.phase {
            HoldStreamPhase::New => {
                self.phase = HoldStreamPhase::Open;
                HEARTBEAT
            }
            HoldStreamPhase::Open => match self.hold.poll_next(cx) {
                Poll::Ready(Some(event)) => self.write(event),
                Poll::Ready(None) => {
                    self.phase = HoldStreamPhase::Over;
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    ready!(self.heartbeat.poll_tick(cx));
                    HEARTBEAT
                }
            },
            HoldStreamPhase::Over => return Poll::Ready(None),
        };
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.phase == HoldStreamPhase::Over
    }
}

impl Drop for HoldStream {
    fn drop(&mut self) {
        if self.phase != HoldStreamPhase::Over {
            let id = self.stream.request_id();
            info!(id, "whoever held a lock has hung up, or does not read");
        }
    }
}

// === Hold event ===
//
// What happens to a hold, as server-sent events.

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
    /// Somebody wants the lock: it is to be released in time.
    #[schema(rename = "release-requested")]
    ReleaseRequested,
    /// The lease was released with its token.
    Released,
    /// The lease is lost.
    Lost,
    /// The lock was not acquired.
    Refused,
    /// The gateway is about to stop.
    Draining,
}

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
pub(super) fn encode_ongoing(event: HoldEvent, now: SystemTime) -> Result<Bytes, Box<HoldEnd>> {
    Ok(match event {
        HoldEvent::Queued(Position { ahead, waiters }) => {
            let data = json!({ "position": ahead + 1, "waiters": waiters });
            encode("queued", &to_json(&data))
        }
        HoldEvent::Granted(lease) => encode("granted", &LeaseBody::new(lease, now).to_json()),
        HoldEvent::Renewed(held) => {
            let left = held.at(Instant::now()).good_for();
            encode("renewed", &to_json(&remaining(Some(left))))
        }
        HoldEvent::ReleaseRequested(request) => {
            let data = ReleaseRequestBody::of(&request);
            encode("release-requested", &to_json(&data))
        }
        HoldEvent::Ended(end) => return Err(Box::new(end)),
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
            HoldEnd::Released => Self::new("released", None, b"{}"),
            HoldEnd::Draining { until } => {
                let now = Instant::now();
                let left = until.map(|until| until.saturating_duration_since(now));
                Self::new("draining", None, &to_json(&remaining(left)))
            }
            HoldEnd::Lost(reason) => {
                let reason = reason.as_str();
                let data = to_json(&json!({ "reason": reason }));
                Self::new("lost", Some(reason), &data)
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

/// The data of an event that says how much is left of a lease.
fn remaining(left: Option<Duration>) -> Value {
    json!({ "expires_in_ms": left.map(millis) })
}

/// JSON as it is written here has no line breaks, so it is one `data` line.
fn encode(name: &str, json: &[u8]) -> Bytes {
    // The data of an event is one line. It is this format that ends it.
    let json = json.trim_ascii_end();
    [b"event: ", name.as_bytes(), b"\ndata: ", json, b"\n\n"]
        .concat()
        .into()
}

// === Hold count ===
//
// What a hold counts as among the limits of its API key.

/// What a hold counts as: a stream, and, until it is granted, perhaps a waiter.
pub(super) struct HoldCount {
    _stream: Option<LimitSlot>,
    waiter: Option<WaiterCount>,
}

// === impl HoldCount ===

impl HoldCount {
    /// A hold that asks for a lock.
    pub(super) fn asking(
        engine: &Engine,
        caller: &Access,
        request: &AcquireRequest,
    ) -> Result<Self, Problem> {
        Ok(Self {
            _stream: caller.stream()?,
            waiter: Some(WaiterCount::of(engine, caller, request)?),
        })
    }

    /// A hold that goes on with a lease. It is not refused: nobody loses a lock to a limit.
    pub(super) fn adopting(caller: &Access) -> Self {
        Self {
            _stream: caller.stream().unwrap_or_default(),
            waiter: None,
        }
    }

    /// Counts what happens.
    pub(super) fn update(&mut self, event: &HoldEvent) {
        match event {
            HoldEvent::Queued(_) | HoldEvent::ReleaseRequested(_) | HoldEvent::Renewed(_) => {}
            HoldEvent::Granted(_) => {
                if let Some(mut waiter) = self.waiter.take() {
                    waiter.finish();
                }
            }
            HoldEvent::Ended(_) => self.waiter = None,
        }
    }
}
