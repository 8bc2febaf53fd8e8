//! An answer on its way.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::pace::Pace;

/// The body of an answer. When it is dropped, the whole answer is ready to leave: hyper keeps it for
/// as long as it wants more of it, and flushes after that.
pub(super) struct Leaving {
    body: Body,
    pace: Arc<Pace>,
}

// === impl Leaving ===

impl Leaving {
    pub(super) fn new(body: Body, pace: Arc<Pace>) -> Self {
        Self { body, pace }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.pace.leaving();
    }
}

impl HttpBody for Leaving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
