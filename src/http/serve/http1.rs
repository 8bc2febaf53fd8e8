//! HTTP/1.1 on one connection, encrypted or not.

use std::{error::Error, io, sync::Arc};

use axum::Router;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Service;
use tracing::{debug, info};

use crate::config::HttpConfig;

use super::{
    arriving::Arriving,
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
}

// === impl Http1 ===

impl Http1 {
    pub(super) fn new(config: &HttpConfig, patience: Patience, refusals: Arc<Refusals>) -> Self {
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
            async move {
                let request = request.map(|body| Arriving::watch(body, &pace));
                let answer = match refusal {
                    Some(refusal) => Ok(refusal),
                    None => router.call(request).await,
                };
                answer.map(|answer| answer.map(|body| Leaving::new(body, pace)))
            }
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
                connection.as_mut().graceful_shutdown();
                connection.await
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
