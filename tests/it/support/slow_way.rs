//! A slow TCP link to a server.

use std::{io, time::Duration};

use latchgate::lifecycle::Lifecycle;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::sleep,
};

use super::{Random, serve};

/// A TCP link to a server that delays all bytes and passes them in small pieces. It works for as long as its lifecycle
/// lasts.
pub(crate) struct SlowWay {
    port: u16,
}

/// A piece is delayed by fewer milliseconds than this.
const LATE: usize = 12;
/// A piece has at most this many bytes.
const PIECE: usize = 48;

// === impl SlowWay ===

impl SlowWay {
    pub(crate) async fn start(server: u16, random: &mut Random, lifecycle: &Lifecycle) -> Self {
        let mut random = random.fork();
        let each = move |client| {
            let (there, back) = (random.fork(), random.fork());
            // Errors of a connection do not matter: the server may have gone.
            async move { drop(carry(client, server, there, back).await) }
        };
        let port = serve(lifecycle, each).await;
        Self { port }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

async fn carry(client: TcpStream, server: u16, there: Random, back: Random) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", server)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        ended = pass(from_client, to_server, there) => ended,
        ended = pass(from_server, to_client, back) => ended,
    }
}

async fn pass(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut random: Random,
) -> io::Result<()> {
    let mut bytes = vec![0; 4_096];
    loop {
        let len = from.read(&mut bytes).await?;
        if len == 0 {
            return Ok(());
        }
        let late = u64::try_from(random.below(LATE)).expect("it is small");
        sleep(Duration::from_millis(late)).await;
        let mut rest = &bytes[..len];
        while !rest.is_empty() {
            let (piece, others) = rest.split_at(rest.len().min(1 + random.below(PIECE)));
            to.write_all(piece).await?;
            to.flush().await?;
            rest = others;
        }
    }
}
