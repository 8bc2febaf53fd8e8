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
use tokio::time::Instant;

use crate::{
    auth::LeaseSlot,
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
    slot: LeaseSlot,
    connection: AnsweredOn,
}

/// A body that leaves the delivery of a lease to the connection when HTTP has taken it.
///
/// Dropped before that (the caller hung up, the connection broke, the edge failed) the lease is
/// given back.
struct Delivered {
    pending: Option<(Bytes, Delivery, LeaseSlot)>,
    connection: AnsweredOn,
}

// === impl Acquired ===

impl Acquired {
    pub(super) fn new(
        granted: Granted,
        mut slot: LeaseSlot,
        connection: AnsweredOn,
        gateway: &AppState,
    ) -> Self {
        let Granted {
            lease,
            hash,
            delivery,
            ..
        } = granted;
        let now = Instant::now();
        slot.extend_until(hash, now + lease.held.left_at(now));
        if delivery.is_replay() {
            // The lease was delivered before, so it lives even if this answer is lost.
            std::mem::take(&mut slot).keep();
        }
        let location = [gateway.base_path.as_str(), "/locks/", lease.name.as_str()].concat();
        Self {
            location: Some(
                HeaderValue::try_from(location)
                    .expect("a base path that routes and a lock name are visible ASCII"),
            ),
            body: LeaseBody::new(lease, gateway.clock.wall()).to_json(),
            delivery,
            slot,
            connection,
        }
    }
}

impl Acquired {
    /// The answer to who has acquired several locks. Each has a slot, in the order of the leases.
    pub(super) fn all(
        granted: GrantedGroup,
        mut slots: Vec<LeaseSlot>,
        connection: AnsweredOn,
        gateway: &AppState,
    ) -> Self {
        let now = Instant::now();
        for (slot, lease) in slots.iter_mut().zip(&granted.leases) {
            slot.extend_until(granted.hash, now + lease.held.left_at(now));
        }
        let mut slot = LeaseSlot::joined(slots);
        if granted.delivery.is_replay() {
            std::mem::take(&mut slot).keep();
        }
        Self {
            location: None,
            body: json(&GroupLeaseBody::new(
                granted.leases,
                granted.waited,
                gateway.clock.wall(),
            )),
            delivery: granted.delivery,
            slot,
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
            pending: Some((self.body, self.delivery, self.slot)),
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
        Poll::Ready(pending.map(|(body, delivery, slot)| {
            self.connection.hand_over(delivery, slot);
            Ok(Frame::data(body))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.pending.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.pending.as_ref().map_or(0, |(body, ..)| body.len());
        SizeHint::with_exact(u64::try_from(left).expect("a lease is a few hundred bytes"))
    }
}
