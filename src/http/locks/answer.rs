//! Answers to requests that acquire locks: headers with notes on how the request was understood, and a body
//! that hands the lease over to the connection for delivery.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header::LOCATION};
use http_body::{Frame, SizeHint};

use crate::{
    config::StoreUrl,
    engine::{Delivery, Granted, GrantedGroup},
    http::{json_response::JSON, problem::Problem, serve::Connection, state::AppState},
    lock::IdempotencyKey,
};

use super::lease_view::{GroupLeaseBody, LeaseBody};

/// The answer to an acquire or hold request, with notes on how the gateway understood the request.
pub(in crate::http) struct Annotated<T> {
    pub(super) answer: Result<T, Problem>,
    pub(super) notes: Notes,
}

/// Notes on how the gateway understood a request, for headers of the answer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Notes {
    /// The wait that the gateway took from the header `Prefer`.
    pub(super) wait: Option<Duration>,
    /// Whether the `Idempotency-Key` is so short that it may be guessed.
    pub(super) has_short_key: bool,
}

/// A request that may wait and is granted the lock sooner than this did not wait.
const NOTICEABLE: Duration = Duration::from_millis(1);
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// Name of the header for warnings. A header leaves the body unchanged, so no client has to handle the
/// warning, and `curl -i` shows it.
const LATCHGATE_WARNING: HeaderName = HeaderName::from_static("latchgate-warning");
const SHORT_KEY: HeaderValue = HeaderValue::from_static(
    "Idempotency-Key has fewer than 22 characters; a caller that guesses it gets the lease. Use a \
     random UUID.",
);

// === impl Notes ===

impl Notes {
    pub(super) fn has_short(key: Option<&IdempotencyKey>) -> Self {
        Self {
            wait: None,
            has_short_key: key.is_some_and(IdempotencyKey::is_short),
        }
    }

    /// Writes the notes into the headers. `Preference-Applied` is sent only where the preferred wait had an
    /// effect: with a grant, and with the 423 after the wait.
    fn insert(self, response: &mut Response) {
        let status = response.status();
        if let Some(wait) = self.wait
            && (status.is_success() || status == StatusCode::LOCKED)
        {
            let value = format!("wait={}", wait.as_secs());
            let value = HeaderValue::try_from(value).expect("a number is visible ASCII");
            response.headers_mut().insert(PREFERENCE_APPLIED, value);
        }
        if self.has_short_key && status.is_success() {
            response.headers_mut().insert(LATCHGATE_WARNING, SHORT_KEY);
        }
    }
}

impl<T: IntoResponse> IntoResponse for Annotated<T> {
    fn into_response(self) -> Response {
        let mut response = self.answer.into_response();
        self.notes.insert(&mut response);
        response
    }
}

/// The answer to an acquire: 201 for a new lease, 200 for a lease that was granted before under the same
/// `Idempotency-Key`.
pub(in crate::http) struct Acquired {
    body: Bytes,
    /// Path where the lock can be inspected; `None` for a group of locks.
    location: Option<HeaderValue>,
    delivery: Delivery,
    /// Whether the kernel is asked, before the answer is written, whether the caller has hung up. The question costs
    /// a system call, so it is left out for a grant that the embedded store gave at once.
    looks: bool,
    connection: Connection,
}

/// Response body that hands the delivery of a lease over to the connection once the HTTP library has taken
/// the data.
///
/// If the body is dropped before that (the caller hung up, the connection broke, the edge failed), the
/// undelivered lease is released.
struct Delivered {
    pending: Option<(Bytes, Delivery)>,
    looks: bool,
    connection: Connection,
}

// === impl Acquired ===

impl Acquired {
    pub(super) fn new(granted: Granted, connection: Connection, gateway: &AppState) -> Self {
        let Granted {
            lease, delivery, ..
        } = granted;
        let location = [gateway.base_path.as_str(), "/locks/", &lease.name.segment()].concat();
        Self {
            location: Some(
                HeaderValue::try_from(location)
                    .expect("a base path that routes and a lock name are visible ASCII"),
            ),
            looks: took_time(lease.waited, gateway),
            body: LeaseBody::new(lease, gateway.clock.wall()).to_json(),
            delivery,
            connection,
        }
    }

    /// The answer to a request that has acquired several locks.
    pub(super) fn all(granted: GrantedGroup, connection: Connection, gateway: &AppState) -> Self {
        Self {
            location: None,
            body: GroupLeaseBody::new(granted.leases, granted.waited, gateway.clock.wall())
                .to_json(),
            delivery: granted.delivery,
            looks: took_time(granted.waited, gateway),
            connection,
        }
    }
}

/// Whether a grant took so long that its caller may have hung up unnoticed: it waited, or came from a server.
fn took_time(waited: Duration, gateway: &AppState) -> bool {
    waited >= NOTICEABLE || matches!(gateway.config.store, StoreUrl::Servers(_))
}

impl IntoResponse for Acquired {
    fn into_response(self) -> Response {
        let status = if self.delivery.is_replay() {
            StatusCode::OK
        } else {
            StatusCode::CREATED
        };
        let body = Body::new(Delivered {
            pending: Some((self.body, self.delivery)),
            looks: self.looks,
            connection: self.connection,
        });
        let location = self.location.map(|location| [(LOCATION, location)]);
        (status, JSON, location, body).into_response()
    }
}

// === impl Delivered ===

impl http_body::Body for Delivered {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let pending = self.pending.take();
        Poll::Ready(pending.map(|(body, delivery)| {
            self.connection.hand_over(delivery, self.looks);
            Ok(Frame::data(body))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.pending.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.pending.as_ref().map_or(0, |(body, _)| body.len());
        SizeHint::with_exact(u64::try_from(left).expect("a lease is a few hundred bytes"))
    }
}
