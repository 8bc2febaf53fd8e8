//! Answers the requests of one connection, through the edge service around all routes.

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

/// Handler for the requests of all connections.
#[derive(Clone)]
pub(super) struct RequestHandler {
    edge: EdgeService,
    in_flight: InFlightRequests,
    /// Room for open HTTP/2 requests on all connections together, until their answers have been taken.
    /// Without this bound, a client could open many requests on one connection and leave their answers in the
    /// gateway's memory.
    streams: Arc<Semaphore>,
    /// Whether every request is refused, because the gateway has no room for the connection.
    refuses: bool,
    detached: DetachedReleases,
}

/// The body of an answer. The connection is not idle until this body is dropped.
pub(super) struct AnswerBody {
    body: Body,
    _request: OpenRequest,
    _stream: Option<OwnedSemaphorePermit>,
}

/// Future of an answer. The future of a release is detachable, because a release matters to other callers even if
/// its own has hung up.
pub(super) type ResponseFuture<F> = Either<F, Detachable<F>>;

const CLOSE: HeaderValue = HeaderValue::from_static("close");
/// How many bytes of the body of a refused request are read. A connection that is closed on unread bytes is
/// reset, and its client may lose the answer.
const MAX_REFUSED_BODY: usize = 64 * 1024;

// === impl RequestHandler ===

impl RequestHandler {
    /// Makes the handler of all connections. `most` is the number of requests that may be open over HTTP/2 at the
    /// same time.
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

    /// The handler of connections for which there is no room: it refuses every request.
    pub(super) fn refusing(&self) -> Self {
        Self {
            refuses: true,
            ..self.clone()
        }
    }

    /// Answers one request. The request counts as open from this call on. A release is carried out even if
    /// the answer is never polled: hyper checks for the end of the connection before it polls the answer.
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
        // Renewals and releases always have room: otherwise a holder would lose its lock to a full gateway.
        let keeps_lease = matches!(class, Class::Renews | Class::Releases);
        let is_full = refuses || is_http2 && stream.is_none() && !keeps_lease;
        // A request that only reads loses nothing when the gateway stops, so it is not counted: a health
        // check must not delay the stop.
        let counted = (!request.method().is_safe()).then(|| self.in_flight.begin());
        // hyper drops the `Content-Length` beside a `Transfer-Encoding`. A proxy in front may have seen
        // another end of this request, so bytes behind the request are not trusted, and the connection
        // closes.
        let closes = refuses || request.headers().contains_key(TRANSFER_ENCODING);
        open.attach_to(&mut request);
        let edge = self.edge.clone();
        let answer = async move {
            // The edge is called inside this future: a release that waits for its turn without a caller must
            // neither hold the room of a request nor count that time as work.
            if refuses {
                // The body of a refused request is read only so that the client receives the answer; the body
                // itself does not matter.
                drop(
                    Limited::new(request.body_mut(), MAX_REFUSED_BODY)
                        .collect()
                        .await,
                );
            }
            let mut answer = edge.answer(request, target, is_full).await?;
            drop(counted);
            // With this header, the client may send its next request to another gateway, and no request is
            // under way on the connection when this gateway closes it. Over HTTP/2 the header does not exist,
            // and hyper removes it.
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
