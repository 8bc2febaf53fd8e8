//! A part of the cases with a Redis store, and replies that no Redis sends: of the wrong kind, too long, cut off, or
//! unrequested.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use latchgate::lifecycle::Lifecycle;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::{
    bench::{Bench, Case, RawResponse, sample},
    fields::{metadata_cases, names_cases},
    requests::json_cases,
};
use crate::support::{RedisServer, eventually, gateway::Setup};

/// A proxy in front of Redis that sends false replies on demand.
pub(super) struct RespServer {
    port: u16,
    plan: Arc<Plan>,
}

/// The false reply to every command about the victim.
#[derive(Debug, Clone)]
pub(super) enum Lie {
    /// These bytes are sent, and the command does not reach Redis.
    Instead(Vec<u8>),
    /// These bytes are sent before the reply.
    Before(Vec<u8>),
    /// These bytes are sent after the reply.
    Behind(Vec<u8>),
    /// This many bytes of the reply are sent, and no more.
    Cut(usize),
}

struct Plan {
    server: u16,
    lie: Mutex<Option<Lie>>,
    told: AtomicUsize,
}

/// The lock whose replies are false.
pub(super) const VICTIM: &str = "victim";
/// Placeholder for the first id in the command, which the reply must repeat.
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
                // Errors of these connections do not matter: the gateway closes them after false replies.
                tasks.spawn(async move { drop(carry(client, &plan).await) });
            }
        });
        Self { port, plan }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sends this false reply from now on, or true replies again.
    pub(super) fn lie(&self, lie: Option<Lie>) {
        self.plan.told.store(0, Ordering::SeqCst);
        *self.plan.lie.lock().unwrap() = lie;
    }

    /// How many false replies were sent since the last change.
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

/// The false reply with the id that it must repeat.
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

/// Replies that are not ours, or not RESP.
const REPLIES: [&str; 46] = [
    "+OK\r\n",
    "+\r\n",
    ":1\r\n",
    ":9223372036854775808\r\n",
    ":-\r\n",
    ":\r\n",
    "$-1\r\n",
    "$-2\r\n",
    "$0\r\n\r\n",
    "$3\r\nabcd\r\n",
    "$x\r\n",
    "$536870912\r\nabc",
    "$99999999999999999999\r\n",
    "$9223372036854775807\r\n",
    "*-1\r\n",
    "*-2\r\n",
    "*0\r\n",
    "*1\r\n$-1\r\n",
    "*x\r\n",
    "*2147483647\r\n",
    "*9223372036854775807\r\n",
    "*1000000\r\n:1\r\n",
    "-\r\n",
    "-ERR\r\n",
    "-NOSCRIPT No matching script\r\n",
    "-WRONGTYPE x\r\n",
    "-x\u{1b}[31m\u{9b}1m\u{202e}\r\n",
    "-ERR unknown command 'EVALSHA', with args beginning with: 's3cret-planted-7c0d9d0a2b514f0e'\r\n",
    "-MOVED\r\n",
    "-MOVED 99999 x:y\r\n",
    "-ASK 1\r\n",
    "-MOVED 1 127.0.0.1:1\r\n",
    "_\r\n",
    "#t\r\n",
    ",nan\r\n",
    ",inf\r\n",
    "(99999999999999999999999999999999\r\n",
    "~1\r\n:1\r\n",
    "%1\r\n+a\r\n:1\r\n",
    "=3\r\ntxt\r\n",
    "!3\r\nERR\r\n",
    ">2\r\n+message\r\n+x\r\n",
    "|1\r\n+a\r\n:1\r\n:2\r\n",
    "HTTP/1.1 400 Bad Request\r\n\r\n",
    "\r\n\r\n",
    "\u{0}\u{0}\u{0}\u{0}",
];
/// Replies in the form of our scripts, with fields that no script sends. `lease` stands for a valid lease, except for
/// what the line changes in it.
const FIELDS: [&str; 40] = [
    "granted",
    "granted {echo}",
    "granted {echo} ",
    "granted {echo} 0:",
    "granted {echo} 0:1:0",
    "granted {echo} 0:2:-1",
    "granted {echo} 0:16:9007199254740992",
    "granted {echo} 0:19:9223372036854775807",
    "granted {echo} 0:20:18446744073709551615",
    "granted {echo} 0:1:x",
    "granted {echo} 1:5",
    "granted x 0:1:5",
    "granted 20000000000000000000000000000000000000000000000000000000000000000 0:1:5",
    "GRANTED {echo} 0:1:5",
    " {echo} 0:1:5",
    "granted {echo} 0:01:5",
    "granted {echo} 0:+1:5",
    "granted {echo} 0:999999999:5",
    "granted {echo} 0:99999999999999999999:5",
    "granted {echo} 8:6:lapsed",
    "granted {echo} 8:6:nobody1:5",
    "granted {echo} 8:9:lapsed1:5",
    "granted {echo} 12:6:passed2:-11:5",
    "again {echo} 0:",
    "again {echo} 0:1:x1:0",
    "again {echo} 0:199:{lease}16:1795000000000000",
    "again {echo} 0:201:{lease}\n{16:1795000000000000",
    "again {echo} 0:202:{lease}\n[]16:1795000000000000",
    "again {echo} 0:200:{lease}\n2:-1",
    "again {echo} 0:200:{lease}\n20:18446744073709551616",
    "again {echo} 0:201:{lease}\u{7f}\n16:1795000000000000",
    "replayed {echo} 0:200:{lease}\n16:17950000000000001:x",
    "held {echo} 0:2:-17:foreign1:5",
    "held {echo} 0:1:06:nobody",
    "held {echo} 0:1:04:held1:5",
    "queued {echo} 0:2:-11:07:passing",
    "clock {echo} 0:",
    "clock {echo} 0:1:x",
    "broken {echo} 0:1:2",
    "held {echo} 0:19:92233720368547758077:foreign4:100040:zz",
];

/// The bytes of a reply that a line of [`FIELDS`] describes.
fn reply(line: &str) -> Vec<u8> {
    let (id, rest) = ("2".repeat(65), "0003000000000000000000000");
    let lease = format!(
        "{id}hx000179500000000000017950000000000001795000030000000{rest}{:64}",
        ""
    );
    let text = line.replace("{lease}", &lease);
    // The id is longer than its placeholder.
    let length = text.len() + text.matches("{echo}").count() * (65 - "{echo}".len());
    format!("${length}\r\n{text}\r\n").into_bytes()
}

fn lies() -> Vec<Lie> {
    let nested = |depth: usize| "*1\r\n".repeat(depth).into_bytes();
    let instead = REPLIES.iter().map(|reply| reply.as_bytes().to_vec());
    let fields = FIELDS.iter().map(|line| reply(line));
    let mut lies: Vec<_> = instead
        .chain(fields)
        .chain([nested(10), nested(100), nested(10_000)])
        .chain([b"x".repeat(1 << 20), b":1\r\n".repeat(10_000)])
        .map(Lie::Instead)
        .collect();
    for unasked in ["+OK\r\n", "*0\r\n", ">1\r\n+x\r\n", "-ERR x\r\n"] {
        lies.push(Lie::Before(unasked.into()));
        lies.push(Lie::Behind(unasked.into()));
    }
    lies.extend([0, 1, 4, 20, 80].map(Lie::Cut));
    lies
}

/// The requests during the false replies. Any caller may hold the lock.
const ASKED: [(&str, &str); 4] = [
    ("POST /locks/victim", ""),
    ("GET /locks/victim", ""),
    (
        "PUT /locks/victim/renew",
        "Lock-Token: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\r\n",
    ),
    (
        "DELETE /locks/victim",
        "Lock-Token: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\r\n",
    ),
];

async fn ask(bench: &Bench, line: &str, header: &str) -> RawResponse {
    let mut stream = TcpStream::connect(bench.gateway.address).await.unwrap();
    // Without an answer to the release, the gateway counts the lease until its TTL ends.
    let body = if line.starts_with("POST") {
        "{\"ttl_ms\": 1000}"
    } else {
        ""
    };
    let request = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n{header}\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    // The deadline of the store, and the work of its reaper.
    let answer = timeout(Duration::from_mins(1), RawResponse::read_whole(&mut stream)).await;
    let answer = answer.unwrap_or_else(|_| panic!("no answer to {line}"));
    answer.unwrap_or_else(|error| panic!("{line}: {error}"))
}

async fn lied_to(number: usize, told: &Lie, bench: &Bench, server: &RespServer) {
    let (line, header) = ASKED[number % ASKED.len()];
    server.lie(Some(told.clone()));
    let answer = ask(bench, line, header).await;
    assert!(server.told() > 0, "{line}: it was not asked");
    server.lie(None);
    let shown = format!("{line} {told:?}");
    assert!(!answer.body.contains("s3cret"), "{shown}: {answer:?}");
    if answer.status >= 400 {
        let code = answer.problem();
        assert_ne!(code, "internal", "{shown}: {answer:?}");
    }
    if answer.status == 201 {
        // The reply was true, or cannot be told from a true one.
        let token = format!(
            "Lock-Token: {}\r\n",
            answer.json()["token"].as_str().unwrap()
        );
        let released = eventually("the release is answered", || async {
            let released = ask(bench, &format!("DELETE /locks/{VICTIM}"), &token).await;
            // The store has only half a second here, which may not be enough on a busy machine.
            (!matches!(released.status, 503 | 504)).then_some(released)
        })
        .await;
        assert!(
            matches!(released.status, 204 | 410),
            "{shown}: {released:?}"
        );
    }
    // The gateway believes true replies again, and a lock that it may have been granted is released.
    let again = format!("after {shown}: the lock can be taken again");
    eventually(&again, || async {
        let acquired = ask(bench, &format!("POST /locks/{VICTIM}"), "").await;
        if acquired.status != 201 {
            return None;
        }
        let lease = acquired.json();
        let token = format!("Lock-Token: {}\r\n", lease["token"].as_str().unwrap());
        let released = ask(bench, &format!("DELETE /locks/{VICTIM}"), &token).await;
        (released.status == 204).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reply_of_the_store_ends_the_gateway_or_grants_a_lock() {
    let redis = RedisServer::start().await;
    let lifecycle = Lifecycle::new();
    let server = RespServer::before(redis.port(), &lifecycle).await;
    let setup = Setup::default()
        .with("LATCHGATE_STORE", &server.url())
        .with("LATCHGATE_REDIS_COMMAND_TIMEOUT_MS", "300")
        .with("LATCHGATE_REDIS_DEADLINE_MS", "500");
    let bench = Bench::start_with(setup, "").await;
    let lies = lies().into_iter().enumerate().collect();
    for (number, lie) in &sample(lies, 12) {
        // Each false reply is sent to an acquire, and to one of the other requests.
        lied_to(0, lie, &bench, &server).await;
        lied_to(1 + number % 3, lie, &bench, &server).await;
    }
    bench.unharmed().await;
}

#[tokio::test]
async fn nothing_is_written_for_what_is_refused() {
    let server = RedisServer::start().await;
    let setup = Setup::on(&server);
    let bench = Bench::start_with(setup, "").await;
    let cases: Vec<Case> = [names_cases(), json_cases(), metadata_cases()]
        .into_iter()
        .flatten()
        .collect();
    bench.run(cases).await;
    let keys = server.keys().await;
    // The granted and released locks have left only counters, and the history of the witness.
    let others = keys.iter().filter(|key| {
        !key.ends_with(":fence") && !key.contains("{witness}") && !key.contains("{}:history:")
    });
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new());
}
