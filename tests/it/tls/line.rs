//! A line to a gateway that can die.

use std::{net::SocketAddr, time::Duration};

use latchgate::lifecycle::Lifecycle;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// A line. When it is dead nothing passes, and each end is told that the other has it: so does a
/// load balancer before a machine that is gone.
pub(crate) struct Line {
    pub(crate) address: SocketAddr,
    is_alive: watch::Sender<bool>,
    lifecycle: Lifecycle,
}

// === impl Line ===

impl Line {
    pub(crate) async fn to(gateway: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (is_alive, alive) = watch::channel(true);
        let lifecycle = Lifecycle::new();
        let tasks = lifecycle.clone();
        lifecycle.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(gateway).await.unwrap();
                let (from_client, to_client) = split(client);
                let (from_server, to_server) = split(server);
                tasks.spawn(carry(from_client, to_server, alive.clone()));
                tasks.spawn(carry(from_server, to_client, alive.clone()));
            }
        });
        Self {
            address,
            is_alive,
            lifecycle,
        }
    }

    pub(crate) fn die(&self) {
        self.is_alive.send_replace(false);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Without a runtime that goes on nothing is left of it.
        drop(self.lifecycle.stop(Duration::ZERO));
    }
}

async fn carry(
    mut from: ReadHalf<TcpStream>,
    mut to: WriteHalf<TcpStream>,
    mut alive: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if alive.wait_for(|&is_alive| is_alive).await.is_err()
            || to.write_all(&bytes[..read]).await.is_err()
        {
            return;
        }
    }
}
