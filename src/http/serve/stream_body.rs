//! An answer on its way over HTTP/2.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::streams::Stream;

/// The body of an answer, in pieces. hyper asks for the next piece when the client has room for it,
/// so a client that does not take its answer leaves it here, and does not fill our memory.
pub(super) struct StreamBody {
    body: Body,
    /// What is left of a frame.
    rest: Bytes,
    stream: Arc<Stream>,
}

/// The most that is handed on at once: one frame of HTTP/2.
const PIECE: usize = 16 * 1024;

// === impl StreamBody ===

impl StreamBody {
    pub(super) fn new(body: Body, stream: Arc<Stream>) -> Self {
        stream.is_for_the_client();
        Self {
            body,
            rest: Bytes::new(),
            stream,
        }
    }

    fn piece(&mut self) -> Frame<Bytes> {
        let piece = self.rest.split_to(PIECE.min(self.rest.len()));
        self.stream.is_for_the_client();
        Frame::data(piece)
    }
}

impl HttpBody for StreamBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.piece())));
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending => {
                self.stream.is_for_us();
                Poll::Pending
            }
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(match frame.into_data() {
                Ok(data) => {
                    self.rest = data;
                    self.piece()
                }
                Err(frame) => frame,
            }))),
            Poll::Ready(end) => Poll::Ready(end),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower().saturating_add(rest));
        if let Some(upper) = body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}
