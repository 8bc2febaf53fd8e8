//! Answers the requests of one connection, through the service around all routes.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use futures_util::future::Either;
use http::{
    HeaderValue, Request, Response, Version,
    header::{CONNECTION, TRANSFER_ENCODING},
};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::edge::{Class, EdgeService};

use super::{
    connection::{ConnectionState, OpenRequest},
    detached::{Detachable, DetachedReleases, UnansweredReleases},
    in_flight::InFlightRequests,
};

/// What all requests have in common.
#[derive(Clone)]
pub(super) struct RequestHandler {
    edge: EdgeService,
    in_flight: InFlightRequests,
    /// How many more requests may be open over HTTP/2 on all connections together, until their answers have been
    /// taken: a client can open many on one connection, and leave their answers in our memory.
    streams: Arc<Semaphore>,
    /// Whether the gateway has no room for the connection: each request is refused.
    refuses: bool,
    detached: DetachedReleases,
}

/// The body of an answer. Until it is dropped, the connection is not idle.
pub(super) struct AnswerBody {
    body: Body,
    _request: OpenRequest,
    _stream: Option<OwnedSemaphorePermit>,
}

/// The answer to a request, which is of use to its caller alone or, if it ends a lease, to others too.
pub(super) type ResponseFuture<F> = Either<F, Detachable<F>>;

const CLOSE: HeaderValue = HeaderValue::from_static("close");
/// How much of the body of a refused request is read. A connection that is closed on unread bytes is
/// reset, and its client may lose the answer.
const MAX_REFUSED_BODY: usize = 64 * 1024;

// === impl RequestHandler ===

impl RequestHandler {
    /// `most` requests may be under way over HTTP/2.
    pub(super) fn new(
        edge: EdgeService,
        in_flight: InFlightRequests,
        most: usize,
        detached: DetachedReleases,
    ) -> Self {
        Self {
            edge,
            in_flight,
            streams: Arc::new(Semaphore::new(most)),
            refuses: false,
            detached,
        }
    }

    /// The handler of connections for which there is no room.
    pub(super) fn refusing(&self) -> Self {
        Self {
            refuses: true,
            ..self.clone()
        }
    }

    /// Answers one request. It counts from this call on, and what ends a lease is carried out even if
    /// the answer is never polled: HTTP looks for the end of a connection before it does.
    pub(super) fn answer(
        &self,
        mut request: Request<Incoming>,
        connection: &Arc<ConnectionState>,
    ) -> ResponseFuture<impl Future<Output = Result<Response<AnswerBody>, Infallible>> + use<>>
    {
        let open = connection.begin_request();
        let is_http2 = request.version() == Version::HTTP_2;
        let stream = is_http2.then(|| Arc::clone(&self.streams).try_acquire_owned());
        let stream = stream.and_then(Result::ok);
        let refuses = self.refuses;
        let target = self.edge.find(&request);
        let class = target.class;
        // For what keeps or ends a lease there is always room.
        let keeps_lease = matches!(class, Class::Renews | Class::Releases);
        let is_full = refuses || is_http2 && stream.is_none() && !keeps_lease;
        // What only looks loses nothing when the gateway stops: a health check must not keep it.
        let counted = (!request.method().is_safe()).then(|| self.in_flight.begin());
        // hyper drops the `Content-Length` beside a `Transfer-Encoding`. A proxy in front may have read
        // another end of this request, so nothing that comes behind it is trusted.
        let closes = refuses || request.headers().contains_key(TRANSFER_ENCODING);
        open.attach_to(&mut request);
        let edge = self.edge.clone();
        let answer = async move {
            // Called here and not before: a release that waits for its turn without a caller must neither
            // hold the room that a request takes nor count that time as work.
            if refuses {
                // Only the answer is of use, whether the body arrives or not.
                drop(
                    Limited::new(request.body_mut(), MAX_REFUSED_BODY)
                        .collect()
                        .await,
                );
            }
            let mut answer = edge.answer(request, target, is_full).await?;
            drop(counted);
            // The next request may be sent elsewhere then, and none is under way on this connection
            // when the gateway closes it. Over HTTP/2 the header does not exist, and hyper removes it.
            if closes || open.is_withdrawn() {
                answer.headers_mut().insert(CONNECTION, CLOSE);
            }
            Ok(answer.map(|body| AnswerBody {
                body,
                _request: open,
                _stream: stream,
            }))
        };
        if class == Class::Releases {
            Either::Right(Detachable::new(
                answer,
                UnansweredReleases::go_on,
                &self.detached,
                connection,
            ))
        } else {
            Either::Left(answer)
        }
    }
}

// === impl AnswerBody ===

impl HttpBody for AnswerBody {
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
