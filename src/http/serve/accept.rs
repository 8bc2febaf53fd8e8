//! The accept loop.
//!
//! Our own and not [`axum::serve`], which sets no timer: a client could then take for ever to send
//! its request.

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use tokio::{net::TcpListener, time::sleep};
use tracing::{debug, warn};

use crate::{config::HttpConfig, lifecycle::Lifecycle};

use super::connection::Protocol;

/// How long the loop rests when the process has no file descriptor left: accepting again at once
/// would only burn what the connections need to end.
const REST: Duration = Duration::from_millis(100);

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
    let protocol = Arc::new(Protocol::new(config));
    let mut closed = std::pin::pin!(lifecycle.closed());
    loop {
        let accepted = tokio::select! {
            () = &mut closed => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (protocol, router) = (Arc::clone(&protocol), router.clone());
                let closed = lifecycle.closed();
                lifecycle.spawn(async move { protocol.serve(stream, router, closed).await });
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

/// Whether only this one connection failed.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}
