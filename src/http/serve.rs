//! The accept loop: sockets in, requests to the router.

use std::{io, time::Duration};

use axum::{Router, body::Body};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    time::sleep,
};
use tower::Service;
use tracing::{debug, warn};

use crate::{config::HttpConfig, lifecycle::Lifecycle};

use super::{silence_limit::SilenceLimit, socket::Socket};

/// How long the loop rests when the process has no file descriptor left: accepting again at once
/// would only burn what the connections need to end.
const REST: Duration = Duration::from_millis(100);
/// The most that a connection buffers of a request head. Well above the limits that are answered
/// with a problem, so that those answer.
const HEAD_BUFFER: usize = 128 * 1024;

/// Serves connections until the lifecycle closes them.
///
/// Draining does not end it: renew and release go on working, on new connections too. When the
/// lifecycle closes, no more connections are taken, idle ones end, and those with a request under
/// way end after it.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    config: &HttpConfig,
    lifecycle: &Lifecycle,
) {
    let http = protocol(config);
    let mut closed = std::pin::pin!(lifecycle.closed());
    loop {
        let accepted = tokio::select! {
            () = &mut closed => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = connection(http.clone(), stream, router.clone(), lifecycle);
                lifecycle.spawn(connection);
            }
            Err(error) if is_of_the_connection(&error) => {
                debug!(%error, "a connection ended before it was accepted");
            }
            Err(error) => {
                warn!(%error, "cannot accept connections");
                sleep(REST).await;
            }
        }
    }
}

fn protocol(config: &HttpConfig) -> http1::Builder {
    let mut http = http1::Builder::new();
    let most = config.max_uri_bytes + config.max_header_bytes;
    http.timer(TokioTimer::new())
        .header_read_timeout(config.header_timeout_ms.duration())
        .max_buf_size(HEAD_BUFFER.max(2 * most));
    http
}

fn connection(
    http: http1::Builder,
    stream: TcpStream,
    router: Router,
    lifecycle: &Lifecycle,
) -> impl Future<Output = ()> + Send + 'static {
    let closed = lifecycle.closed();
    async move {
        // An answer is one small write that nobody should wait for.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "cannot set TCP_NODELAY");
        }
        let silence_limit = SilenceLimit::default();
        let socket = TokioIo::new(Socket::new(stream, silence_limit.clone()));
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(silence_limit.clone());
            router.clone().call(request.map(Body::new))
        });
        let mut connection = std::pin::pin!(http.serve_connection(socket, service));
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = closed => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            debug!(%error, "a connection ended early");
        }
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
