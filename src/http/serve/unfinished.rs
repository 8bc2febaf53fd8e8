//! An answer that goes on after its head.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::paced::Pace;

/// A body for which nobody knows how long it goes on. Until it has ended, the connection is busy.
pub(super) struct Unfinished {
    body: Body,
    pace: Arc<Pace>,
}

// === impl Unfinished ===

impl Unfinished {
    /// Watches over a body, if it is one that goes on. One whose length is known is as good as sent.
    pub(super) fn watch(body: Body, pace: Arc<Pace>) -> Body {
        if body.size_hint().exact().is_some() {
            pace.idle();
            body
        } else {
            Body::new(Self { body, pace })
        }
    }
}

impl HttpBody for Unfinished {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.pace.idle();
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
