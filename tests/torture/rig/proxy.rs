//! A TCP proxy between a gateway and its Redis, which does harm to everything that passes.

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

/// What the proxy does to what passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Harm {
    None,
    /// Nothing passes, in either direction, until it is over; then all of it does.
    Hold,
    /// Requests pass; instead of bringing a reply the connection ends.
    CutReply,
    /// A request does not pass, and the connection ends.
    CutRequest,
    /// Both ways a byte at a time.
    Slice,
    /// The connection ends with a reset as soon as anything passes.
    Reset,
}

/// A proxy in front of an address.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    harm: watch::Sender<Harm>,
    done: Arc<AtomicU64>,
}

/// One way of a connection.
struct Way {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    replies: bool,
    harm: watch::Receiver<Harm>,
    done: Arc<AtomicU64>,
}

/// How often harm is done to a connection, of so many times that something passes: in between there is some
/// service, or nothing would be under way to be harmed.
const ONE_OF: u64 = 40;
/// How long the bytes of a slice are apart.
const APART: Duration = Duration::from_micros(200);
/// How many bytes are sliced, of what passes at once.
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
                // However it ends: that is what this proxy is for.
                connections.spawn(async move { drop(carry(client, server, harm, done).await) });
            }
        });
        proxy
    }

    /// Does this from now on.
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
    // Where one way ends the other does, and both sockets with them.
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
                    // If it cannot be reset it ends in another way.
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
