//! A TCP link to a server that a test can cut: no byte passes, and neither side is told.

use std::sync::Arc;

use latchgate::lifecycle::Lifecycle;
use tokio::{io::copy_bidirectional, net::TcpStream, sync::watch};

use super::serve;

/// A link to a server. It works for as long as its lifecycle lasts.
pub(crate) struct Cable {
    port: u16,
    plugged: Arc<watch::Sender<bool>>,
}

// === impl Cable ===

impl Cable {
    pub(crate) async fn to(server: u16, lifecycle: &Lifecycle) -> Self {
        let plugged = Arc::new(watch::Sender::new(true));
        let accepting = Arc::clone(&plugged);
        let each = move |client| carry(client, server, accepting.subscribe());
        let port = serve(lifecycle, each).await;
        Self { port, plugged }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Cuts the link: no byte passes any more.
    pub(crate) fn cut(&self) {
        self.plugged.send_replace(false);
    }

    /// Mends the link for new connections. The connections from before the cut have ended.
    pub(crate) fn mend(&self) {
        self.plugged.send_replace(true);
    }
}

async fn carry(mut client: TcpStream, server: u16, mut plugged: watch::Receiver<bool>) {
    if *plugged.borrow_and_update() {
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", server)).await else {
            return;
        };
        tokio::select! {
            _ended = copy_bidirectional(&mut client, &mut server) => return,
            _cut = plugged.wait_for(|plugged| !plugged) => {}
        }
        // While the link is cut, both sides stay connected and receive nothing.
        drop(plugged.wait_for(|&plugged| plugged).await);
    } else {
        drop(plugged.wait_for(|&plugged| plugged).await);
    }
}
