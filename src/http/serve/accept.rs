//! The accept loop.
//!
//! Our own and not [`axum::serve`], which sets no timer: a client could then take for ever to send
//! its request.

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, sleep},
};
use tracing::{debug, warn};

use crate::{
    config::HttpConfig, http::tls::Certificates, lifecycle::Lifecycle, telemetry::metrics::Metrics,
};

use super::{
    connection::Protocol,
    connections::{Connections, Crowd},
    descriptors,
    turned_away::Doorman,
};

/// How long the loop rests when the process has no file descriptor left: accepting again at once
/// would only burn what the connections need to end.
const REST: Duration = Duration::from_millis(100);

/// As many connections as the kernel may have taken for us that we have not, when we take no more:
/// dropped with the listener they would be reset, and those who have sent a request already could not
/// tell whether it was heard.
const BACKLOG: usize = 1024;

/// How often at most it is logged that there are too many connections.
const NOTICE: Duration = Duration::from_secs(10);

/// Says that there are too many connections, once in a while.
#[derive(Default)]
struct Notice {
    told: Crowd,
    at: Option<Instant>,
}

/// Serves connections until the lifecycle closes them.
///
/// Draining does not end it: renew and release go on working, on new connections too. When the
/// lifecycle closes, no more connections are taken but those that are there already, idle ones end,
/// and those with a request under way end after it. With certificates every connection begins with TLS;
/// one that has not done so when the lifecycle closes ends without it, and has asked for nothing.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    config: &HttpConfig,
    certificates: Option<Certificates>,
    metrics: &Metrics,
    lifecycle: &Lifecycle,
) {
    let most = descriptors::connections(config.max_connections);
    let protocol = Arc::new(Protocol::new(
        config,
        certificates,
        most,
        metrics.clone(),
        lifecycle,
    ));
    let connections = Connections::new(most);
    let doorman = Doorman::new(Arc::clone(&protocol.refusals), protocol.is_tls());
    let mut notice = Notice::default();
    let mut serve = |stream: TcpStream| {
        let place = connections.admit();
        notice.tell(|| connections.crowd());
        let Some(place) = place else {
            doorman.turn_away(stream, lifecycle);
            return;
        };
        let (protocol, router) = (Arc::clone(&protocol), router.clone());
        let closed = lifecycle.closed();
        lifecycle.spawn(async move {
            protocol.serve(stream, router, &place, closed).await;
        });
    };
    let mut closed = std::pin::pin!(lifecycle.closed());
    loop {
        let accepted = tokio::select! {
            () = &mut closed => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => serve(stream),
            Err(error) if is_of_the_connection(&error) => {
                debug!(%error, "a connection ended before it was accepted");
            }
            Err(error) => {
                warn!(%error, "cannot accept connections");
                sleep(REST).await;
            }
        }
    }
    // Asked of the kernel: what the runtime knows of the listener may be older than they are.
    let Ok(listener) = listener.into_std() else {
        return;
    };
    for _ in 0..BACKLOG {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Ok(stream) = into_tokio(stream) {
                    serve(stream);
                }
            }
            Err(error) if is_of_the_connection(&error) => {}
            Err(_) => return,
        }
    }
}

fn into_tokio(stream: std::net::TcpStream) -> io::Result<TcpStream> {
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream)
}

// === impl Notice ===

impl Notice {
    fn tell(&mut self, crowd: impl FnOnce() -> Crowd) {
        if self.at.is_some_and(|at| at.elapsed() < NOTICE) {
            return;
        }
        let now = crowd();
        if now == self.told {
            return;
        }
        let (closed, refused) = (
            now.closed - self.told.closed,
            now.refused - self.told.refused,
        );
        warn!(
            closed,
            refused,
            "more connections came than are allowed: silent ones were closed, the others refused"
        );
        (self.told, self.at) = (now, Some(Instant::now()));
    }
}

/// Whether only this one connection failed.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}
