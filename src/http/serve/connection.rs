//! One connection.

use std::{error::Error, io, sync::Arc};

use axum::Router;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::Service;
use tracing::{debug, info};

use crate::config::HttpConfig;

use super::{
    arriving::Arriving,
    connections::Place,
    lasting::Lasting,
    leaving::Leaving,
    pace::Burden,
    paced::{Paced, Patience, Unread},
    peer::Peer,
    refusal::Refusals,
    silence_limit::SilenceLimit,
    socket::Socket,
};

/// The most that a connection buffers of a request head, at least. Well above the limits that are
/// answered with a problem, so that those answer.
const HEAD_BUFFER: usize = 128 * 1024;

/// How connections are served.
pub(super) struct Protocol {
    http: http1::Builder,
    patience: Patience,
    lasting: Lasting,
    pub(super) refusals: Arc<Refusals>,
}

// === impl Protocol ===

impl Protocol {
    /// `connections` is how many there may be.
    pub(super) fn new(config: &HttpConfig, connections: usize) -> Self {
        let mut http = http1::Builder::new();
        let most = config.max_uri_bytes + config.max_header_bytes;
        // The time-out of hyper counts from the end of the last answer, so it would close idle
        // connections as soon as slow ones. `Paced` tells the two apart.
        http.header_read_timeout(None)
            .max_buf_size(HEAD_BUFFER.max(2 * most));
        Self {
            http,
            patience: Patience {
                idle: config.idle_timeout_ms.duration(),
                head: config.header_timeout_ms.duration(),
            },
            lasting: Lasting::of(connections),
            refusals: Arc::new(Refusals::new(config)),
        }
    }

    /// Serves one connection until it ends, or until it is to make room or `closed`, and the request
    /// under way has been answered.
    pub(super) async fn serve(
        &self,
        stream: TcpStream,
        router: Router,
        seat: &Place,
        closed: impl Future<Output = ()>,
    ) {
        // An answer is one small write that nobody should wait for.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "cannot set TCP_NODELAY");
        }
        // Unknown only if the client has gone already.
        let peer = stream.peer_addr().ok().map(Peer::new);
        let pace = Arc::clone(&seat.pace);
        let silence_limit = SilenceLimit::default();
        let socket = Socket::new(stream, silence_limit.clone());
        let refusals = Arc::clone(&self.refusals);
        let paced = Paced::new(socket, Arc::clone(&pace), self.patience, refusals);
        let io = TokioIo::new(paced);
        let refusals = Arc::clone(&self.refusals);
        let lasting = self.lasting.clone();
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            let (mut router, pace) = (router.clone(), Arc::clone(&pace));
            let ambiguous = !pace.ends_beyond_doubt(request.headers());
            let refusal = ambiguous.then(|| refusals.ambiguous());
            request.extensions_mut().insert(silence_limit.clone());
            request.extensions_mut().insert(lasting.clone());
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
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
