//! Answers that are streams of server-sent events.

use std::{
    convert::Infallible,
    ops::ControlFlow::{self, Break, Continue},
    time::Duration,
};

use axum::{
    body::Body,
    extract::FromRequestParts,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream::unfold;
use http::{HeaderName, HeaderValue, header::CONTENT_TYPE, request::Parts};
use tokio::time::timeout;
use tracing::debug;

use super::{
    edge::{RequestContext, RequestId},
    extract::{LOCK_TOKEN, must_accept_events},
    problem::Problem,
    serve::{Connection, LongRequestPermit},
};

/// Extractor for a request that accepts a stream of events, with what its handler needs to answer with one.
///
/// Dropping it restores the default user timeout of the connection.
pub(super) struct EventStream {
    /// The id of the request that the stream answers, for the log.
    request_id: RequestId,
    connection: Connection,
    /// Permit for the stream to keep its connection for as long as the stream lasts.
    _permit: Option<LongRequestPermit>,
}

// === impl EventStream ===

impl EventStream {
    /// The id of the request that the stream answers, for the log.
    pub(super) fn request_id(&self) -> &str {
        self.request_id.as_str()
    }

    /// Sets for how long the caller may leave sent data unacknowledged before it counts as gone.
    pub(super) fn set_user_timeout(&self, limit: Duration) {
        self.connection.set_user_timeout(Some(limit));
    }
}

impl<S: Sync> FromRequestParts<S> for EventStream {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        must_accept_events(&parts.headers)?;
        let connection = Connection::from_extensions(&parts.extensions);
        Ok(Self {
            request_id: RequestContext::from_parts(parts).request_id(),
            _permit: connection.take_for_long(parts.headers.contains_key(LOCK_TOKEN))?,
            connection,
        })
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.connection.set_user_timeout(None);
    }
}

/// The next bytes of a stream; `Break` if they are the last.
pub(super) type NextEvent = ControlFlow<Bytes, Bytes>;

/// A source of events for a stream.
pub(super) trait EventSource: Send + Sized + 'static {
    /// The log line for a caller that has hung up, or does not read.
    const HUNG_UP: &str;

    /// The first bytes of the stream, which make proxies pass on the head of the answer.
    fn greeting(&self) -> Bytes {
        HEARTBEAT
    }

    /// The bytes that are sent if there is no event for a while.
    fn heartbeat(&self) -> Bytes {
        HEARTBEAT
    }

    /// The next bytes, as a `Break` if they are the last; `None` if the stream has ended. The future may be
    /// dropped at any time, and the method called again.
    fn next(&mut self, stream: &EventStream) -> impl Future<Output = Option<NextEvent>> + Send;
}

/// An answer that streams the events of a source.
pub(super) struct EventAnswer<S: EventSource> {
    source: S,
    stream: EventStream,
    phase: Phase,
}

#[derive(PartialEq, Eq)]
enum Phase {
    /// Nothing has been sent to the reader yet, not even the first bytes of the stream.
    New,
    /// The stream is open: events are sent as they happen.
    Open,
    /// The last event has been sent.
    Over,
}

/// Longest time between two sends: short enough for proxies that close a connection which is silent for half
/// a minute, and to find out within moments that the caller's machine is gone.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(10);
/// A comment that keeps proxies from taking the stream for dead.
const HEARTBEAT: Bytes = Bytes::from_static(b":\n\n");
/// Header that tells nginx, and the proxies that have adopted it, not to collect the answer before passing it
/// on.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Encodes an event. Its data is JSON in one line; a line break at the end of the JSON is removed.
pub(super) fn encode(name: &str, json: &[u8]) -> Bytes {
    let json = json.trim_ascii_end();
    let parts = [b"event: ", name.as_bytes(), b"\ndata: ", json, b"\n\n"];
    parts.concat().into()
}

// === impl EventAnswer ===

impl<S: EventSource> EventAnswer<S> {
    pub(super) fn new(source: S, stream: EventStream) -> Self {
        let phase = Phase::New;
        Self {
            source,
            stream,
            phase,
        }
    }

    /// The next bytes of the event stream; `None` after its end.
    async fn next(&mut self) -> Option<Bytes> {
        match self.phase {
            Phase::New => {
                self.phase = Phase::Open;
                Some(self.source.greeting())
            }
            Phase::Open => {
                let next = timeout(HEARTBEAT_PERIOD, self.source.next(&self.stream));
                let Ok(next) = next.await else {
                    return Some(self.source.heartbeat());
                };
                if !matches!(next, Some(Continue(_))) {
                    self.phase = Phase::Over;
                }
                next.map(|(Break(bytes) | Continue(bytes))| bytes)
            }
            Phase::Over => None,
        }
    }
}

impl<S: EventSource> IntoResponse for EventAnswer<S> {
    fn into_response(self) -> Response {
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
            (X_ACCEL_BUFFERING, HeaderValue::from_static("no")),
        ];
        let bytes = unfold(self, async |mut answer| {
            let bytes = answer.next().await?;
            Some((Ok::<_, Infallible>(bytes), answer))
        });
        (headers, Body::from_stream(bytes)).into_response()
    }
}

impl<S: EventSource> Drop for EventAnswer<S> {
    fn drop(&mut self) {
        if self.phase != Phase::Over {
            let id = self.stream.request_id();
            debug!(id, "{}", S::HUNG_UP);
        }
    }
}
