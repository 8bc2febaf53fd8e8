//! The answer to a hold: a stream of events that ends with the lease, or the lease with it.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header::CONTENT_TYPE};
use http_body::Frame;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tracing::info;

use crate::{
    engine::{Hold, HoldEvent},
    http::{extract::EventStream, state::AppState},
    lock::Lease,
};

use super::{
    hold_count::HoldCount,
    hold_event::{FinalEvent, HEARTBEAT, encode_ongoing},
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
                let last = FinalEvent::of(end, self.sees_holder, &self.gateway.base_path, id);
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
