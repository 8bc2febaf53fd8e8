//! A TCP proxy between a store and its server that injects faults on demand.
//!
//! A fault hits the next request that contains given bytes, so that only the command under test is affected.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use latchgate::{config::ServersUrl, lifecycle::Lifecycle};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
};

use super::{redis_server::url, serve};

/// A proxy in front of one or several servers. It works for as long as its lifecycle lasts.
pub(crate) struct Proxy {
    port: u16,
    plan: Arc<Plan>,
}

/// A fault of the proxy: how it treats a request and its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The request is not sent to the server, and the connection ends.
    CutRequest,
    /// The server carries out the request; the connection ends without the reply.
    CutReply,
    /// Like [`Fault::CutReply`], but the connection ends with a reset.
    ResetReply,
    /// The server carries out the request; the reply is held until [`Proxy::let_go`].
    HoldReply,
    /// The request is held until [`Proxy::let_go`] and is then sent to the server, even if its sender has gone.
    HoldRequest,
}

struct Plan {
    /// Ports of the servers. New connections go to each in turn.
    servers: Mutex<Vec<u16>>,
    /// How many connections have been made.
    connections: AtomicUsize,
    /// The pending faults: the bytes to look for, the fault, and how many matching requests pass before it.
    armed: Mutex<Vec<(Vec<u8>, Fault, usize)>>,
    /// How many matching requests have passed before a pending fault.
    gone_through: watch::Sender<usize>,
    struck: watch::Sender<usize>,
    let_go: watch::Sender<bool>,
}

// === impl Proxy ===

impl Proxy {
    pub(crate) async fn start(server: u16, lifecycle: &Lifecycle) -> Self {
        let plan = Arc::new(Plan {
            servers: Mutex::new(vec![server]),
            connections: AtomicUsize::new(0),
            armed: Mutex::default(),
            gone_through: watch::Sender::new(0),
            struck: watch::Sender::new(0),
            let_go: watch::Sender::new(false),
        });
        let accepting = Arc::clone(&plan);
        // The errors of connections are what this proxy is for.
        let each = move |client| {
            let plan = Arc::clone(&accepting);
            async move { drop(carry(client, &plan).await) }
        };
        let port = serve(lifecycle, each).await;
        Self { port, plan }
    }

    pub(crate) fn url(&self) -> ServersUrl {
        url(&format!("redis://127.0.0.1:{}", self.port))
    }

    /// Sends new connections to another server, as a name does that is given to another server.
    pub(crate) fn lead_to(&self, server: u16) {
        self.lead_in_turn(&[server]);
    }

    /// Sends new connections to each of these servers in turn, as a load balancer does.
    pub(crate) fn lead_in_turn(&self, servers: &[u16]) {
        *self.plan.servers.lock().unwrap() = servers.to_vec();
    }

    /// How many connections the proxy has accepted.
    pub(crate) fn connections(&self) -> usize {
        self.plan.connections.load(Ordering::SeqCst)
    }

    /// Arms a fault for the next request that contains `needle`. Several armed faults apply one after the other.
    pub(crate) fn strike(&self, needle: &str, fault: Fault) {
        self.strike_later(needle, fault, 0);
    }

    /// Arms a fault like [`Proxy::strike`], but lets `before` matching requests pass first.
    pub(crate) fn strike_later(&self, needle: &str, fault: Fault, before: usize) {
        self.plan
            .armed
            .lock()
            .unwrap()
            .push((needle.as_bytes().to_vec(), fault, before));
    }

    /// Disarms the faults that have not been applied.
    pub(crate) fn take_back(&self) {
        self.plan.armed.lock().unwrap().clear();
    }

    /// Waits until this many faults have been applied.
    pub(crate) async fn struck(&self, times: usize) {
        until(&self.plan.struck, |&count| count >= times).await;
    }

    /// Waits until this many requests have passed before a fault of [`Proxy::strike_later`].
    pub(crate) async fn gone_through(&self, times: usize) {
        until(&self.plan.gone_through, |&count| count >= times).await;
    }

    /// How many faults have been applied.
    pub(crate) fn strikes(&self) -> usize {
        *self.plan.struck.borrow()
    }

    /// Releases the requests and replies that are held.
    pub(crate) fn let_go(&self) {
        self.plan.let_go.send_replace(true);
    }
}

// === impl Plan ===

impl Plan {
    fn fault(&self, request: &[u8]) -> Option<Fault> {
        let mut armed = self.armed.lock().unwrap();
        let hits = |(needle, ..): &(Vec<u8>, Fault, usize)| contains(request, needle);
        let hit = armed.iter().position(hits)?;
        if let (_, _, before @ 1..) = &mut armed[hit] {
            *before -= 1;
            self.gone_through.send_modify(|count| *count += 1);
            return None;
        }
        let (_, fault, _) = armed.remove(hit);
        self.struck.send_modify(|count| *count += 1);
        Some(fault)
    }
}

async fn until<T>(watched: &watch::Sender<T>, reached: impl FnMut(&T) -> bool) {
    let mut watched = watched.subscribe();
    let waited = watched.wait_for(reached).await;
    waited.expect("the plan has the sender and lives as long as the proxy and its connections");
}

async fn carry(mut client: TcpStream, plan: &Plan) -> io::Result<()> {
    let number = plan.connections.fetch_add(1, Ordering::SeqCst);
    let server = {
        let servers = plan.servers.lock().unwrap();
        servers[number % servers.len()]
    };
    let mut server = TcpStream::connect(("127.0.0.1", server)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut request, mut reply) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let len = read?;
                if len == 0 {
                    return Ok(());
                }
                let request = &request[..len];
                match plan.fault(request) {
                    None => server.write_all(request).await?,
                    Some(Fault::CutRequest) => return Ok(()),
                    Some(Fault::CutReply) => {
                        server.write_all(request).await?;
                        server.read_u8().await?;
                        return Ok(());
                    }
                    Some(Fault::ResetReply) => {
                        server.write_all(request).await?;
                        server.read_u8().await?;
                        return client.set_zero_linger();
                    }
                    Some(Fault::HoldReply) => {
                        server.write_all(request).await?;
                        until(&plan.let_go, |&let_go| let_go).await;
                    }
                    Some(Fault::HoldRequest) => {
                        until(&plan.let_go, |&let_go| let_go).await;
                        server.write_all(request).await?;
                    }
                }
            }
            read = server.read(&mut reply) => {
                let len = read?;
                if len == 0 {
                    return Ok(());
                }
                // If the client has gone, the effect of the request on the server still counts.
                drop(client.write_all(&reply[..len]).await);
            }
        }
    }
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}
