//! A request whose body may not have come yet.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::pace::Pace;

/// The body of a request, which says when it has come whole.
pub(super) struct Arriving {
    body: Incoming,
    pace: Arc<Pace>,
}

// === impl Arriving ===

impl Arriving {
    /// Watches over a body, if there is one.
    pub(super) fn watch(body: Incoming, pace: &Arc<Pace>) -> Body {
        if body.is_end_stream() {
            pace.arrived();
            return Body::empty();
        }
        let pace = Arc::clone(pace);
        Body::new(Self { body, pace })
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.pace.arrived();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
