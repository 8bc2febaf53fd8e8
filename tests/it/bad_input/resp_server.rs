//! Stands between a gateway and a real Redis, and answers in its place what no Redis would.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use latchgate::lifecycle::Lifecycle;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A server that lies on demand.
pub(super) struct RespServer {
    port: u16,
    plan: Arc<Plan>,
}

/// What is answered to whatever is asked about the victim.
#[derive(Debug, Clone)]
pub(super) enum Lie {
    /// This, and the command never reaches Redis.
    Instead(Vec<u8>),
    /// This, and behind it the answer.
    Before(Vec<u8>),
    /// The answer, and this behind it.
    Behind(Vec<u8>),
    /// So many bytes of the answer, and then nothing.
    Cut(usize),
}

struct Plan {
    server: u16,
    lie: Mutex<Option<Lie>>,
    told: AtomicUsize,
}

/// The lock that is lied about.
pub(super) const VICTIM: &str = "victim";
/// Stands in a lie for what the answer must repeat: the first id in the command.
pub(super) const ECHO: &[u8] = b"{echo}";

// === impl RespServer ===

impl RespServer {
    pub(super) async fn before(server: u16, lifecycle: &Lifecycle) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let plan = Arc::new(Plan {
            server,
            lie: Mutex::default(),
            told: AtomicUsize::new(0),
        });
        let (shared, tasks) = (Arc::clone(&plan), lifecycle.clone());
        lifecycle.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let plan = Arc::clone(&shared);
                // However it ends: a liar's connections are given up.
                tasks.spawn(async move { drop(carry(client, &plan).await) });
            }
        });
        Self { port, plan }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Lies from now on; or not any more.
    pub(super) fn lie(&self, lie: Option<Lie>) {
        self.plan.told.store(0, Ordering::SeqCst);
        *self.plan.lie.lock().unwrap() = lie;
    }

    /// How often it has lied since it was told to.
    pub(super) fn told(&self) -> usize {
        self.plan.told.load(Ordering::SeqCst)
    }
}

// === impl Plan ===

impl Plan {
    fn lie_to(&self, request: &[u8]) -> Option<Lie> {
        let about = format!("{{{VICTIM}}}");
        let lie = self.lie.lock().unwrap().clone()?;
        if !contains(request, about.as_bytes()) {
            return None;
        }
        self.told.fetch_add(1, Ordering::SeqCst);
        Some(lie)
    }
}

async fn carry(mut client: TcpStream, plan: &Plan) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", plan.server)).await?;
    let (mut request, mut reply) = (vec![0; 65_536], vec![0; 65_536]);
    let mut lie = None;
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let request = &request[..read?];
                if request.is_empty() {
                    return Ok(());
                }
                lie = plan.lie_to(request);
                match &lie {
                    Some(Lie::Instead(bytes)) => {
                        client.write_all(&filled(bytes, request)).await?;
                    }
                    Some(Lie::Before(bytes)) => {
                        client.write_all(&filled(bytes, request)).await?;
                        server.write_all(request).await?;
                    }
                    Some(Lie::Behind(_) | Lie::Cut(_)) | None => server.write_all(request).await?,
                }
            }
            read = server.read(&mut reply) => {
                let reply = &reply[..read?];
                if reply.is_empty() {
                    return Ok(());
                }
                match &lie {
                    Some(Lie::Cut(len)) => {
                        client.write_all(&reply[..reply.len().min(*len)]).await?;
                    }
                    Some(Lie::Behind(bytes)) => {
                        client.write_all(&[reply, bytes].concat()).await?;
                    }
                    _ => client.write_all(reply).await?,
                }
            }
        }
    }
}

/// The lie with what it must repeat.
fn filled(lie: &[u8], request: &[u8]) -> Vec<u8> {
    let token = request
        .split(|byte| !byte.is_ascii_hexdigit())
        .find(|word| word.len() == 65);
    let mut filled = Vec::new();
    let mut rest = lie;
    while let Some(at) = rest.windows(ECHO.len()).position(|part| part == ECHO) {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(token.unwrap_or_default());
        rest = &rest[at + ECHO.len()..];
    }
    filled.extend_from_slice(rest);
    filled
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}
