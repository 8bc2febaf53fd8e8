//! A lease on its way through the socket.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header::LOCATION};
use http_body::{Frame, SizeHint};

use crate::{
    engine::{Delivery, Granted, GrantedGroup},
    http::{
        json_response::{JSON, json},
        serve::AnsweredOn,
        state::AppState,
    },
};

use super::{group_body::GroupLeaseBody, lease_view::LeaseBody};

/// The answer to an acquire: 201 for a new lease, 200 for one that was asked for again.
pub(in crate::http) struct Acquired {
    body: Bytes,
    /// Where one lock can be inspected; `None` for several.
    location: Option<HeaderValue>,
    delivery: Delivery,
    connection: AnsweredOn,
}

/// A body that leaves the delivery of a lease to the connection when HTTP has taken it.
///
/// Dropped before that (the caller hung up, the connection broke, the edge failed) the lease is
/// given back.
struct Delivered {
    pending: Option<(Bytes, Delivery)>,
    connection: AnsweredOn,
}

// === impl Acquired ===

impl Acquired {
    pub(super) fn new(granted: Granted, connection: AnsweredOn, gateway: &AppState) -> Self {
        let Granted {
            lease, delivery, ..
        } = granted;
        let location = [gateway.base_path.as_str(), "/locks/", lease.name.as_str()].concat();
        Self {
            location: Some(
                HeaderValue::try_from(location)
                    .expect("a base path that routes and a lock name are visible ASCII"),
            ),
            body: LeaseBody::new(lease, gateway.clock.wall()).to_json(),
            delivery,
            connection,
        }
    }

    /// The answer to who has acquired several locks.
    pub(super) fn all(granted: GrantedGroup, connection: AnsweredOn, gateway: &AppState) -> Self {
        Self {
            location: None,
            body: json(&GroupLeaseBody::new(
                granted.leases,
                granted.waited,
                gateway.clock.wall(),
            )),
            delivery: granted.delivery,
            connection,
        }
    }
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
            self.connection.hand_over(delivery);
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
