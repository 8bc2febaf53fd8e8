//! The answer to somebody who listens: a stream of events.

use std::{convert::Infallible, pin::Pin};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream::unfold;
use http::{HeaderName, HeaderValue, header::CONTENT_TYPE};
use tokio::time::{Duration, Instant, timeout_at};
use tracing::info;

use crate::{
    auth::{Access, LimitSlot, Permission},
    engine::events::{Listener, ListenerItem},
    http::extract::EventStream,
};

use super::event_body::{encode, encode_end, encode_session, greeting, heartbeat};

/// Events on their way to somebody who listens. Dropped, nobody does.
pub(in crate::http) struct Events {
    listener: Listener,
    stream: EventStream,
    /// What it counts as among the limits of its API key.
    _counted: Option<LimitSlot>,
    /// Which locks it may see, asked anew for each event.
    access: Access,
    /// Ends with the next change of the keys, also with one that comes while nothing is asked for.
    changed: Pin<Box<dyn Future<Output = ()> + Send>>,
    phase: EventStreamPhase,
    heartbeat_at: Instant,
}

#[derive(PartialEq, Eq)]
enum EventStreamPhase {
    /// Nothing has been sent.
    New,
    /// Events are sent as they come.
    Open,
    /// The last event has been sent.
    Over,
}

/// How often something is sent: often enough for proxies that close a connection which is silent
/// for half a minute.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// For how long a reader may take nothing in, or so little that the kernel sees no room: several
/// heartbeats. Then its connection is cut. It could be told the reason only behind all that it has
/// not read, for which somebody would have to keep that.
const SILENCE: Duration = Duration::from_secs(30);
/// Tells nginx, and those who took this over from it, not to collect the answer before passing it on.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

// === impl Events ===

impl Events {
    pub(super) fn new(
        listener: Listener,
        stream: EventStream,
        counted: Option<LimitSlot>,
        access: Access,
    ) -> Self {
        stream.set_user_timeout(SILENCE);
        Self {
            listener,
            stream,
            _counted: counted,
            changed: Box::pin(access.changed()),
            access,
            phase: EventStreamPhase::New,
            heartbeat_at: Instant::now() + HEARTBEAT,
        }
    }

    /// What is sent next; `None` after the end.
    async fn next(&mut self) -> Option<Bytes> {
        let bytes = match self.phase {
            EventStreamPhase::Over => return None,
            EventStreamPhase::New => {
                self.phase = EventStreamPhase::Open;
                greeting(self.listener.instance(), self.listener.position())
            }
            EventStreamPhase::Open => self.more().await,
        };
        self.heartbeat_at = Instant::now() + HEARTBEAT;
        Some(bytes.into())
    }

    async fn more(&mut self) -> Vec<u8> {
        let mut has_changed = false;
        loop {
            if !self.access.still_permits(Permission::View, None) {
                return self.end("revoked");
            }
            // A page shows what one may do, and hears of nothing else that it has changed.
            if has_changed && self.access.is_session() {
                return encode_session();
            }
            let item = tokio::select! {
                item = timeout_at(self.heartbeat_at, self.listener.next()) => item,
                () = &mut self.changed => {
                    // Before the look at what is permitted: no change is missed.
                    self.changed = Box::pin(self.access.changed());
                    has_changed = true;
                    continue;
                }
            };
            let Ok(item) = item else {
                return heartbeat(self.listener.instance(), self.listener.position());
            };
            let events = match item {
                ListenerItem::Events(events) => events,
                ListenerItem::Unread => return self.end("unread"),
                ListenerItem::Draining => return self.end("draining"),
            };
            let mut bytes = Vec::new();
            for (number, event) in events {
                // A gap concerns everybody.
                let name = event.name.as_ref();
                if name.is_none_or(|name| self.access.still_views(name)) {
                    bytes.extend(encode(self.listener.instance(), number, &event));
                }
            }
            if !bytes.is_empty() {
                return bytes;
            }
        }
    }

    fn end(&mut self, reason: &'static str) -> Vec<u8> {
        self.phase = EventStreamPhase::Over;
        info!(
            id = self.stream.request_id(),
            reason, "a stream of events has ended"
        );
        encode_end(reason)
    }
}

impl IntoResponse for Events {
    fn into_response(self) -> Response {
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
            (X_ACCEL_BUFFERING, HeaderValue::from_static("no")),
        ];
        let bytes = unfold(self, async |mut events| {
            let bytes = events.next().await?;
            Some((Ok::<_, Infallible>(bytes), events))
        });
        (headers, Body::from_stream(bytes)).into_response()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if self.phase != EventStreamPhase::Over {
            let id = self.stream.request_id();
            info!(
                id,
                "whoever listened to events has hung up, or does not read"
            );
        }
    }
}
