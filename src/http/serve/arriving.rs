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

use super::{pace::Pace, streams::Stream};

/// The body of a request, which says when it has come whole.
pub(super) struct Arriving<W> {
    body: Incoming,
    watcher: Arc<W>,
}

/// Who is told that a body has come whole.
pub(super) trait Watcher: Send + Sync + 'static {
    /// It has come whole.
    fn arrived(&self);
}

// === impl Arriving ===

impl<W: Watcher> Arriving<W> {
    /// Watches over a body, if there is one.
    pub(super) fn watch(body: Incoming, watcher: &Arc<W>) -> Body {
        if body.is_end_stream() {
            watcher.arrived();
            return Body::empty();
        }
        let watcher = Arc::clone(watcher);
        Body::new(Self { body, watcher })
    }
}

impl Watcher for Pace {
    fn arrived(&self) {
        Pace::arrived(self);
    }
}

impl Watcher for Stream {
    fn arrived(&self) {
        Stream::arrived(self);
    }
}

impl<W: Watcher> HttpBody for Arriving<W> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        // Its connection has ended behind it. That it is complete is known only if its length was said.
        if matches!(frame, Some(Err(_))) && self.body.size_hint().exact() == Some(0) {
            frame = None;
        }
        if frame.is_none() || self.body.is_end_stream() {
            self.watcher.arrived();
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
