//! The accept loop, and the number of connections that the operating system allows.
//!
//! The gateway has a loop of its own because [`axum::serve`] sets no timer: a client could then take for ever
//! to send its request.

use std::{io, net::TcpStream as StdTcpStream, sync::Arc, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tracing::{debug, warn};

use crate::{
    config::{HttpConfig, Millis},
    http::{
        edge::{EdgeService, RefusalCount},
        tls::Certificates,
    },
    lifecycle::{Lifecycle, Seat},
    telemetry::metrics::Metrics,
};

use super::{
    connection::LongRequests, detached::DetachedReleases, in_flight::InFlightRequests,
    protocol::Protocol, request_handler::RequestHandler,
};

/// Serves accepted connections, up to a limit.
struct Server {
    protocol: Arc<Protocol>,
    /// Serves the connections beyond the limit: each request is answered 503.
    refusing: Arc<Protocol>,
    lifecycle: Lifecycle,
    connections: Arc<Semaphore>,
    /// Bounds how many connections beyond the limit are answered 503 at the same time.
    refusals: Arc<Semaphore>,
    refused: RefusalCount,
}

/// How long the loop rests when the process has no file descriptor left. If it accepted again at once, it
/// would take the CPU time that open connections need to end.
const DESCRIPTOR_SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// How many connections are still accepted from the queue of the kernel after the lifecycle has closed. If
/// they were dropped with the listener they would be reset, and clients that have sent a request could not
/// tell whether it was received.
const BACKLOG: usize = 1024;

/// How many connections beyond the limit are answered at the same time. Further connections are closed
/// without an answer, because an answer would cost resources that are exhausted.
const REFUSALS: usize = 64;
/// How long a connection beyond the limit may take for its request and its answer.
const REFUSED_WITHIN: Duration = Duration::from_secs(2);
/// How long a connection beyond the limit may be idle before its request, and how long the head of the request
/// may take.
const REFUSED_IDLE: Millis = Millis(500);

/// Serves connections until the lifecycle closes.
///
/// Draining does not end the loop: renew and release go on working, on new connections too. When the lifecycle
/// closes, only connections that are already in the queue of the kernel are accepted, idle connections end,
/// and connections with a request under way end after its answer. With certificates every connection begins
/// with TLS; a connection whose handshake is not complete when the lifecycle closes is dropped, because it
/// has sent no request.
pub async fn serve(
    listener: TcpListener,
    edge: EdgeService,
    config: &HttpConfig,
    certificates: Option<Certificates>,
    metrics: &Metrics,
    in_flight: InFlightRequests,
    lifecycle: &Lifecycle,
) {
    let most = possible_connections(config.max_connections);
    let detached = DetachedReleases::new(config.reserved_requests, metrics.clone(), lifecycle);
    let handler = RequestHandler::new(edge, in_flight, most, detached);
    let refusing = handler.refusing();
    let brief = HttpConfig {
        header_timeout_ms: REFUSED_IDLE,
        idle_timeout_ms: REFUSED_IDLE,
        ..config.clone()
    };
    let protocol = |config, handler| {
        let long_requests = LongRequests::new(most);
        let certificates = certificates.clone();
        Arc::new(Protocol::new(
            config,
            certificates,
            handler,
            long_requests,
            lifecycle,
        ))
    };
    let server = Server {
        protocol: protocol(config, handler),
        refusing: protocol(&brief, refusing),
        lifecycle: lifecycle.clone(),
        connections: Arc::new(Semaphore::new(most)),
        refusals: Arc::new(Semaphore::new(REFUSALS)),
        refused: RefusalCount::default(),
    };
    let mut closed = std::pin::pin!(lifecycle.closed());
    loop {
        let accepted = tokio::select! {
            () = &mut closed => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => match stream.into_std() {
                Ok(stream) => server.serve(stream),
                Err(error) => warn!(%error, "cannot hand a connection over"),
            },
            Err(error) if is_of_the_connection(&error) => {
                debug!(%error, "a connection ended before it was accepted");
            }
            Err(error) => {
                warn!(%error, "cannot accept connections");
                sleep(DESCRIPTOR_SHORTAGE_PAUSE).await;
            }
        }
    }
    // The kernel is asked for connections directly, because the runtime may not know yet of all connections in
    // the kernel's queue.
    let Ok(listener) = listener.into_std() else {
        return;
    };
    for _ in 0..BACKLOG {
        match listener.accept() {
            Ok((stream, _)) => {
                server.serve(stream);
            }
            Err(error) if is_of_the_connection(&error) => {}
            Err(_) => return,
        }
    }
}

// === impl Server ===

impl Server {
    /// Serves a connection in a task of its own, on the worker that has the fewest connections. If there are
    /// too many connections, refuses it.
    fn serve(&self, stream: StdTcpStream) {
        let Some(permit) = take(&self.connections) else {
            return self.refuse(stream);
        };
        let protocol = Arc::clone(&self.protocol);
        let seat = self.lifecycle.workers().seat();
        let worker = seat.as_ref().map(Seat::worker);
        self.lifecycle.spawn_on(worker, async move {
            // The stream is registered here, on the worker, so that the runtime of this worker receives its
            // events.
            if let Ok(stream) = into_tokio(stream) {
                protocol.serve(stream).await;
            }
            drop((permit, seat));
        });
    }

    fn refuse(&self, stream: StdTcpStream) {
        if let Some(refused) = self.refused.note() {
            warn!(refused, "more connections came than are allowed");
        }
        if let Some(permit) = take(&self.refusals) {
            let protocol = Arc::clone(&self.refusing);
            self.lifecycle.spawn(async move {
                if let Ok(stream) = into_tokio(stream) {
                    // A client that takes longer than `REFUSED_WITHIN` to send its request and read the
                    // refusal gets no answer.
                    drop(timeout(REFUSED_WITHIN, protocol.serve(stream)).await);
                }
                drop(permit);
            });
        }
    }
}

fn take(room: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(room).try_acquire_owned().ok()
}

fn into_tokio(stream: StdTcpStream) -> io::Result<TcpStream> {
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream)
}

/// Whether the error concerns only the connection that was to be accepted.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// File descriptors that are not for callers: the store's connections and files, the logs, the runtime, and
/// connections that are just being closed.
const RESERVED_DESCRIPTORS: usize = 384;

/// How many of the wanted connections the process can have. Raises the limit of open files as far as needed
/// and allowed.
fn possible_connections(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let needed = u64::try_from(wanted + RESERVED_DESCRIPTORS).unwrap_or(u64::MAX);
    let Some(current) = limit.current.filter(|&current| current < needed) else {
        return wanted;
    };
    let raised = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised = match setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(raised),
            maximum: limit.maximum,
        },
    ) {
        Ok(()) => raised,
        Err(error) => {
            debug!(%error, "cannot raise the limit of open files");
            current
        }
    };
    let possible = possible(usize::try_from(raised).unwrap_or(usize::MAX), wanted);
    if possible < wanted {
        warn!(
            wanted,
            possible,
            "the limit of open files (ulimit -n) allows fewer connections than are configured"
        );
    }
    possible
}

/// How many of the descriptors are for connections of callers. If there are few descriptors, half of them.
fn possible(descriptors: usize, wanted: usize) -> usize {
    let left = descriptors
        .saturating_sub(RESERVED_DESCRIPTORS)
        .max(descriptors / 2);
    left.clamp(1, wanted.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_descriptors_for_others() {
        assert_eq!(possible(20_384, 20_000), 20_000);
        assert_eq!(possible(1_024, 20_000), 640);
        assert_eq!(possible(256, 20_000), 128);
        assert_eq!(possible(0, 20_000), 1);
    }
}
