//! A TCP proxy between a gateway and its Redis server, which does harm to all traffic.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
    time::sleep,
};

/// The harm that a proxy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Harm {
    None,
    /// All bytes are held, in both directions, until the harm ends.
    Hold,
    /// Requests pass; the connection ends instead of a reply.
    CutReply,
    /// The request is dropped, and the connection ends.
    CutRequest,
    /// Bytes pass one at a time, in both directions.
    Slice,
    /// The connection ends with a reset at the next byte.
    Reset,
}

/// A proxy in front of an address.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    harm: watch::Sender<Harm>,
    done: Arc<AtomicU64>,
}

/// One direction of a connection.
struct Way {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    replies: bool,
    harm: watch::Receiver<Harm>,
    done: Arc<AtomicU64>,
}

/// One in this many times that bytes pass, harm is done to the connection. Without some service in between, no request
/// would be on its way to be harmed.
const ONE_OF: u64 = 40;
/// The pause between the bytes of a slice.
const APART: Duration = Duration::from_micros(200);
/// How many bytes of a piece are sliced.
const SLICED: usize = 64;

// === impl Proxy ===

impl Proxy {
    pub(super) async fn start(server: SocketAddr, tasks: &mut JoinSet<()>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            harm: watch::Sender::new(Harm::None),
            done: Arc::default(),
        };
        let (harm, done) = (proxy.harm.subscribe(), Arc::clone(&proxy.done));
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (harm, done) = (harm.clone(), Arc::clone(&done));
                // Errors of the connections are what this proxy is for.
                connections.spawn(async move { drop(carry(client, server, harm, done).await) });
            }
        });
        proxy
    }

    /// Sets the harm from now on.
    pub(crate) fn does(&self, harm: Harm) {
        self.harm.send_replace(harm);
    }

    /// How often harm was done so far.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

async fn carry(
    client: TcpStream,
    server: SocketAddr,
    harm: watch::Receiver<Harm>,
    done: Arc<AtomicU64>,
) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let requests = Way {
        from: from_client,
        to: to_server,
        replies: false,
        harm: harm.clone(),
        done: Arc::clone(&done),
    };
    let replies = Way {
        from: from_server,
        to: to_client,
        replies: true,
        harm,
        done,
    };
    // When one direction ends, the other ends as well, with both sockets.
    tokio::select! {
        ended = requests.pass() => ended,
        ended = replies.pass() => ended,
    }
}

// === impl Way ===

impl Way {
    async fn pass(mut self) -> io::Result<()> {
        let mut bytes = vec![0; 65_536];
        let mut passed = 0;
        loop {
            let len = self.from.read(&mut bytes).await?;
            if len == 0 {
                return Ok(());
            }
            passed += 1;
            let (bytes, now) = (&bytes[..len], *self.harm.borrow());
            match now {
                Harm::Hold => {
                    self.count();
                    let over = self.harm.wait_for(|harm| *harm != Harm::Hold).await;
                    over.map_err(io::Error::other)?;
                    self.to.write_all(bytes).await?;
                }
                Harm::Slice => {
                    self.count();
                    let (sliced, rest) = bytes.split_at(len.min(SLICED));
                    for byte in sliced {
                        self.to.write_all(&[*byte]).await?;
                        sleep(APART).await;
                    }
                    self.to.write_all(rest).await?;
                }
                Harm::CutReply if self.replies && passed % ONE_OF == 0 => {
                    self.count();
                    return Ok(());
                }
                Harm::CutRequest if !self.replies && passed % ONE_OF == 0 => {
                    self.count();
                    return Ok(());
                }
                Harm::Reset if passed % ONE_OF == 0 => {
                    // If a reset is not possible, the connection ends in the ordinary way.
                    drop(self.to.as_ref().set_zero_linger());
                    self.count();
                    return Ok(());
                }
                _ => self.to.write_all(bytes).await?,
            }
        }
    }

    fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}
