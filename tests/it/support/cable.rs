//! A TCP link to a server that can be cut as a network is: nothing comes through, and nobody is told.

use std::sync::Arc;

use latchgate::lifecycle::Lifecycle;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// A link to a server; it works as long as its lifecycle.
pub(crate) struct Cable {
    port: u16,
    plugged: Arc<watch::Sender<bool>>,
}

// === impl Cable ===

impl Cable {
    pub(crate) async fn to(server: u16, lifecycle: &Lifecycle) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let plugged = Arc::new(watch::Sender::new(true));
        let (accepting, tasks) = (Arc::clone(&plugged), lifecycle.clone());
        lifecycle.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let plugged = accepting.subscribe();
                tasks.spawn(async move { carry(client, server, plugged).await });
            }
        });
        Self {
            port: address.port(),
            plugged,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Lets nothing through any more.
    pub(crate) fn cut(&self) {
        self.plugged.send_replace(false);
    }

    /// Lets new connections through. Those that were there before it was cut have ended.
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
        // Both ends stay open, and hear nothing.
        drop(plugged.wait_for(|&plugged| plugged).await);
    } else {
        drop(plugged.wait_for(|&plugged| plugged).await);
    }
}
