//! HTTP/1.1 on one connection, encrypted or not.

use std::{error::Error, io, sync::Arc, time::Duration};

use axum::Router;
use futures_util::future::{Either, ready};
use http::{HeaderValue, header::CONNECTION};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, timeout_at},
};
use tower::Service;
use tracing::{debug, info};

use crate::{config::HttpConfig, lifecycle::Lifecycle};

use super::{
    arriving::Arriving,
    carried::{carried, ends_lease},
    carrier::CarryingRoom,
    connection::{HEAD_BUFFER, Opened},
    connections::Place,
    leaving::Leaving,
    pace::Burden,
    paced::{Paced, Patience, Unread},
    refusal::Refusals,
    silence_limit::SilenceLimit,
};

/// How HTTP/1.1 is spoken.
pub(super) struct Http1 {
    http: http1::Builder,
    patience: Patience,
    refusals: Arc<Refusals>,
    carrying: CarryingRoom,
    lifecycle: Lifecycle,
}

/// Whoever connects asks for something within this time. Who has not yet when the gateway closes its
/// connections is waited for: cut off, nobody could tell whether the request was heard.
const FRESH: Duration = Duration::from_millis(250);

// === impl Http1 ===

impl Http1 {
    pub(super) fn new(
        config: &HttpConfig,
        patience: Patience,
        refusals: Arc<Refusals>,
        carrying: CarryingRoom,
        lifecycle: &Lifecycle,
    ) -> Self {
        let mut http = http1::Builder::new();
        let most = config.max_uri_bytes + config.max_header_bytes;
        // The time-out of hyper counts from the end of the last answer, so it would close idle
        // connections as soon as slow ones. `Paced` tells the two apart.
        http.header_read_timeout(None)
            .max_buf_size(HEAD_BUFFER.max(2 * most));
        Self {
            http,
            patience,
            refusals,
            carrying,
            lifecycle: lifecycle.clone(),
        }
    }

    /// Serves one connection until it ends, or until it is to make room or `closed`, and the request
    /// under way has been answered.
    pub(super) async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        opened: Opened,
        router: Router,
        seat: &Place,
        closed: impl Future<Output = ()>,
    ) {
        let opened_at = Instant::now();
        let (lifecycle, carrier) = (self.lifecycle.clone(), self.carrying.of_connection());
        let pace = Arc::clone(&seat.pace);
        let refusals = Arc::clone(&self.refusals);
        let paced = Paced::new(stream, Arc::clone(&pace), self.patience, refusals);
        let io = TokioIo::new(paced);
        let refusals = Arc::clone(&self.refusals);
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            let (mut router, pace) = (router.clone(), Arc::clone(&pace));
            let ambiguous = !pace.ends_beyond_doubt(request.headers());
            let refusal = ambiguous.then(|| refusals.ambiguous());
            let limit = SilenceLimit::of_connection(opened.silence_limit.clone());
            opened.tell(&mut request, limit);
            // Not in the future: hyper reads on before it asks for the answer.
            pace.busy();
            let ends_lease = ends_lease(&request);
            let stopping = lifecycle.clone();
            let request = request.map(|body| Arriving::watch(body, &pace));
            let answer = match refusal {
                Some(refusal) => Either::Left(ready(Ok(refusal))),
                None => Either::Right(router.call(request)),
            };
            let answer = async move {
                let answer = answer.await;
                answer.map(|mut answer| {
                    // The next request may be sent elsewhere then, and none is under way on this
                    // connection when the gateway closes it.
                    if stopping.is_withdrawn() {
                        let close = HeaderValue::from_static("close");
                        answer.headers_mut().insert(CONNECTION, close);
                    }
                    answer.map(|body| Leaving::new(body, pace))
                })
            };
            carried(answer, ends_lease, &carrier)
        });
        let mut connection = std::pin::pin!(self.http.serve_connection(io, service));
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = seat.needed() => {
                // It may have begun to ask in this instant, and is answered then.
                if seat.pace.burden() != Burden::Needed {
                    return;
                }
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            () = closed => {
                let fresh = seat.pace.burden() == Burden::Never;
                let wait_until = if fresh { opened_at + FRESH } else { opened_at };
                match timeout_at(wait_until, connection.as_mut()).await {
                    Ok(ended) => ended,
                    Err(_elapsed) => {
                        connection.as_mut().graceful_shutdown();
                        connection.await
                    }
                }
            }
        };
        match ended {
            Ok(()) => {}
            Err(error) if is_unread(&error) => {
                info!("a client takes nothing of what it is sent; its connection was closed");
            }
            Err(error) => debug!(%error, "a connection ended early"),
        }
    }
}

/// Whether the connection ended because its client does not read. The kernel says so where it is to
/// find it out.
fn is_unread(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(<dyn Error>::downcast_ref);
    cause.is_some_and(|cause: &io::Error| match cause.get_ref() {
        Some(ours) => ours.is::<Unread>(),
        None => cause.kind() == io::ErrorKind::TimedOut,
    })
}
