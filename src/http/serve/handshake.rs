//! The beginning of a connection over TLS.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tracing::{debug, info};

use crate::http::tls::Certificates;

use super::{peer::Peer, refusal::Refusals, socket::Socket, turned_away::tell};

/// Brings connections to TLS.
pub(super) struct Handshake {
    certificates: Certificates,
    patience: Duration,
    refusals: Arc<Refusals>,
}

/// The first byte of whatever begins a TLS connection.
const TLS: u8 = 22;

// === impl Handshake ===

impl Handshake {
    pub(super) fn new(
        certificates: Certificates,
        patience: Duration,
        refusals: Arc<Refusals>,
    ) -> Self {
        Self {
            certificates,
            patience,
            refusals,
        }
    }

    /// Brings a connection to TLS; `None` if that is not to be. Nothing is done for a connection
    /// until then, so it can be dropped at any moment.
    pub(super) async fn shake(
        &self,
        socket: Socket,
        peer: Option<Peer>,
    ) -> Option<TlsStream<Socket>> {
        let peer = peer.map(|peer| peer.ip());
        match timeout(self.patience, self.begin(socket)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                info!(?peer, %error, "a connection did not come to TLS");
                None
            }
            Err(_elapsed) => {
                info!(?peer, "a connection did not come to TLS in time");
                None
            }
        }
    }

    async fn begin(&self, socket: Socket) -> std::io::Result<Option<TlsStream<Socket>>> {
        let mut first = [0];
        if socket.peek(&mut first).await? == 0 {
            debug!("a connection ended before it began");
            return Ok(None);
        }
        // So does a method; what begins in no way that is known is left to TLS to refuse.
        if first[0] != TLS && first[0].is_ascii_alphabetic() {
            tell(socket.into_inner(), &self.refusals.plain()).await;
            return Ok(None);
        }
        self.certificates.acceptor().accept(socket).await.map(Some)
    }
}
