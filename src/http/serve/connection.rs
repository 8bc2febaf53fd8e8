//! One connection.

use std::sync::Arc;

use axum::Router;
use tokio::net::TcpStream;
use tracing::debug;

use crate::{
    config::HttpConfig,
    http::tls::{Certificates, HTTP_2},
    lifecycle::Lifecycle,
    telemetry::metrics::Metrics,
};

use super::{
    carrier::CarryingRoom,
    connections::Place,
    handshake::Handshake,
    http1::Http1,
    http2::Http2,
    lasting::Lasting,
    paced::Patience,
    peer::Peer,
    refusal::Refusals,
    silence_limit::{SilenceLimit, SocketLimit},
    socket::Socket,
};

/// The most that a connection buffers of a request head, at least. Well above the limits that are
/// answered with a problem, so that those answer.
pub(super) const HEAD_BUFFER: usize = 128 * 1024;

/// How connections are served.
pub(super) struct Protocol {
    /// What comes first, if the gateway speaks TLS.
    handshake: Option<Handshake>,
    http1: Http1,
    http2: Http2,
    lasting: Lasting,
    pub(super) refusals: Arc<Refusals>,
}

/// A connection of which handlers may know.
pub(super) struct Opened {
    /// Unknown only if the client has gone already.
    peer: Option<Peer>,
    /// That of the connection itself.
    pub(super) silence_limit: SocketLimit,
    lasting: Lasting,
}

// === impl Protocol ===

impl Protocol {
    /// `most` connections may be open.
    pub(super) fn new(
        config: &HttpConfig,
        certificates: Option<Certificates>,
        most: usize,
        metrics: Metrics,
        lifecycle: &Lifecycle,
    ) -> Self {
        let patience = Patience {
            idle: config.idle_timeout_ms.duration(),
            head: config.header_timeout_ms.duration(),
        };
        let refusals = Arc::new(Refusals::new(config));
        let carrying = CarryingRoom::new(config.reserved_requests, metrics, lifecycle);
        let carry = || carrying.clone();
        let refuse = || Arc::clone(&refusals);
        let shaken_within = config.tls.handshake_timeout_ms.duration();
        Self {
            handshake: certificates
                .map(|certificates| Handshake::new(certificates, shaken_within, refuse())),
            http1: Http1::new(config, patience, refuse(), carry(), lifecycle),
            http2: Http2::new(config, patience, refuse(), carry(), most, lifecycle),
            lasting: Lasting::of(most),
            refusals,
        }
    }

    /// Whether the gateway speaks TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.handshake.is_some()
    }

    /// Serves one connection until it ends, or until it is to make room or `closed`, and what is
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
        let opened = Opened {
            peer: stream.peer_addr().ok().map(Peer::new),
            silence_limit: SocketLimit::default(),
            lasting: self.lasting.clone(),
        };
        let pace = Arc::clone(&seat.pace);
        let socket = Socket::new(stream, pace, opened.silence_limit.clone());
        let Some(handshake) = &self.handshake else {
            return self.http1.serve(socket, opened, router, seat, closed).await;
        };
        // In a box: a plain connection has no room for it, and there are many of those.
        let encrypted = self.serve_encrypted(handshake, socket, opened, router, seat, closed);
        Box::pin(encrypted).await;
    }

    async fn serve_encrypted(
        &self,
        handshake: &Handshake,
        socket: Socket,
        opened: Opened,
        router: Router,
        seat: &Place,
        closed: impl Future<Output = ()>,
    ) {
        let mut closed = std::pin::pin!(closed);
        let shaken = tokio::select! {
            shaken = handshake.shake(socket, opened.peer) => shaken,
            () = seat.needed() => return,
            () = &mut closed => return,
        };
        let Some(stream) = shaken else { return };
        if stream.get_ref().1.alpn_protocol() == Some(HTTP_2) {
            self.http2.serve(stream, opened, router, seat, closed).await;
        } else {
            self.http1.serve(stream, opened, router, seat, closed).await;
        }
    }
}

// === impl Opened ===

impl Opened {
    /// One that came from nowhere.
    #[cfg(test)]
    pub(super) fn unknown() -> Self {
        Self {
            peer: None,
            silence_limit: SocketLimit::default(),
            lasting: Lasting::of(1),
        }
    }

    /// Tells a handler where its request comes from.
    pub(super) fn tell<B>(&self, request: &mut http::Request<B>, silence_limit: SilenceLimit) {
        request.extensions_mut().insert(self.lasting.clone());
        request.extensions_mut().insert(silence_limit);
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
    }
}

#[cfg(test)]
mod tests;
