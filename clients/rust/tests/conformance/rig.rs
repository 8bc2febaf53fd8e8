//! The gateways, the proxy and the faults that a test runs against, and what it asks of them.

use std::{
    ffi::OsString,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use latchgate_client::{
    AcquireRequest, Client, ClientError, ClientOptions, Inspection, Lease, LeaseRenewer, LockName,
    LockState, Loss, Token,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    runtime::Handle,
    task::{JoinHandle, spawn_blocking},
    time::{Instant, sleep, timeout},
};

/// How long anything may take on a machine that does other things as well.
pub(crate) const LONG: Duration = Duration::from_mins(1);
/// Runs in the rig, says where that is, and ends it when this process has gone.
const SAY_WHERE: &str =
    "import os, sys; print(os.environ['LATCHGATE_RIG'], flush=True); sys.stdin.read()";

/// A rig of this test.
pub(crate) struct Rig {
    process: Child,
    /// Where it is told what to do: `127.0.0.1:PORT`.
    address: String,
    urls: Urls,
    /// A lock that nobody else has.
    pub(crate) name: LockName,
}

/// Where everybody is.
#[derive(Deserialize)]
pub(crate) struct Urls {
    pub(crate) b: String,
    pub(crate) proxy: String,
    pub(crate) nobody: String,
}

/// A request that came to the proxy.
#[derive(Debug, Deserialize)]
pub(crate) struct Logged {
    method: String,
    pub(crate) path: String,
    pub(crate) key: Option<String>,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Value,
    pub(crate) status: Option<u16>,
    pub(crate) at_ms: u64,
    pub(crate) answered_at_ms: Option<u64>,
    /// How many bytes were taken of an answer without end.
    pub(crate) sent: Option<u64>,
}

// === impl Rig ===

impl Rig {
    pub(crate) fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let built = || root.join("target/debug/latchgate").into_os_string();
        let program = environment("LATCHGATE_PROGRAM").unwrap_or_else(built);
        let mut process = Command::new("python3")
            .arg(root.join("clients/rig/rig.py"))
            .arg("--program")
            .arg(program)
            .args(["--", "python3", "-c", SAY_WHERE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is there");
        let mut url = String::new();
        let mut output = BufReader::new(process.stdout.as_mut().unwrap());
        output.read_line(&mut url).unwrap();
        let address = url.trim().strip_prefix("http://");
        let address = address.expect("the rig starts").to_owned();
        let urls = serde_json::from_value(exchange(&address, "GET", "/rig", &json!({}))).unwrap();
        Self {
            process,
            address,
            urls,
            name: LockName::new(&format!("t-{}", random_text())).unwrap(),
        }
    }

    /// A client of the proxy.
    pub(crate) fn client(&self) -> Client {
        client(&self.urls.proxy)
    }

    /// A client of the proxy with other options.
    pub(crate) fn client_with(&self, set: impl FnOnce(&mut ClientOptions)) -> Client {
        let mut options = ClientOptions {
            url: self.urls.proxy.clone(),
            ..ClientOptions::default()
        };
        set(&mut options);
        Client::new(options).unwrap()
    }

    /// A client of gateway `b`, with nothing in between.
    pub(crate) fn at_b(&self) -> Client {
        client(&self.urls.b)
    }

    pub(crate) fn urls(&self) -> &Urls {
        &self.urls
    }

    /// Lets something happen to the next requests that are like this.
    pub(crate) async fn fault(&self, kind: &str, count: u32, more: Value) {
        let mut fault = json!({ "kind": kind, "count": count });
        fault
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        self.ask("POST", "/rig/fault", fault).await;
    }

    pub(crate) async fn no_faults(&self) {
        self.ask("DELETE", "/rig/fault", json!({})).await;
    }

    /// The requests with this method to this lock, or to a group with it.
    pub(crate) async fn log(&self, method: &str) -> Vec<Logged> {
        let log = self.ask("GET", "/rig/log", json!({})).await;
        let mut log: Vec<Logged> = serde_json::from_value(log).unwrap();
        let name = self.name.as_str();
        log.retain(|it| {
            it.method == method && (it.path.contains(name) || it.body.to_string().contains(name))
        });
        log
    }

    pub(crate) async fn whole_log(&self) -> Vec<Logged> {
        serde_json::from_value(self.ask("GET", "/rig/log", json!({})).await).unwrap()
    }

    pub(crate) async fn forget_log(&self) {
        self.ask("DELETE", "/rig/log", json!({})).await;
    }

    /// Where the proxy sends what comes from now on.
    pub(crate) async fn turn_to(&self, which: &str) {
        self.ask("POST", "/rig/proxy", json!({ "to": which })).await;
    }

    /// Ends a gateway and starts it again with these settings.
    pub(crate) async fn restart(&self, which: &str, env: &Value) {
        let path = "/rig/gateway";
        self.ask("POST", path, json!({ "which": which, "do": "term" }))
            .await;
        let start = json!({ "which": which, "do": "start", "env": env });
        self.ask("POST", path, start).await;
    }

    async fn ask(&self, method: &'static str, path: &'static str, body: Value) -> Value {
        let address = self.address.clone();
        spawn_blocking(move || exchange(&address, method, path, &body))
            .await
            .unwrap()
    }

    /// How the lock stands, as `b` sees it.
    pub(crate) async fn look(&self) -> Inspection {
        self.at_b().inspect(&self.name).await.unwrap()
    }

    /// The fencing tokens of those who hold the lock.
    pub(crate) async fn fences(&self) -> Vec<u64> {
        let holders = self.look().await.holders;
        holders.iter().filter_map(|it| it.fencing_token).collect()
    }

    pub(crate) async fn is_free(&self) -> bool {
        self.look().await.state == LockState::Free
    }

    pub(crate) async fn until_free(&self, within: Duration) {
        let begun = Instant::now();
        while !self.is_free().await {
            assert!(begun.elapsed() < within, "not free within {within:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn until_waiters(&self, count: u64) {
        let begun = Instant::now();
        while self.look().await.waiter_count != count {
            assert!(begun.elapsed() < LONG, "not {count} waiters");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // If it does not end well, its guardian ends what is left.
        let _: Result<_, _> = self.process.wait();
    }
}

/// Sends a request and reads its answer.
fn exchange(address: &str, method: &str, path: &str, body: &Value) -> Value {
    let mut connection = TcpStream::connect(address).unwrap();
    let body = body.to_string();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: rig\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{method} {path}: {body}");
    serde_json::from_str(body).unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test is told by its environment what it runs against"
)]
pub(crate) fn environment(variable: &str) -> Option<OsString> {
    std::env::var_os(variable)
}

/// A client with the usual options.
pub(crate) fn client(url: &str) -> Client {
    Client::new(ClientOptions {
        url: url.to_owned(),
        ..ClientOptions::default()
    })
    .unwrap()
}

/// Something that nobody else has.
pub(crate) fn random_text() -> String {
    Token::random().expose().replace(['-', '_'], "x")[..12].to_owned()
}

// === What the cases do ===

pub(crate) fn ttl(ttl: Duration) -> AcquireRequest {
    AcquireRequest {
        ttl: Some(ttl),
        ..AcquireRequest::default()
    }
}

pub(crate) fn wait(wait: Duration) -> AcquireRequest {
    AcquireRequest {
        wait,
        ..AcquireRequest::default()
    }
}

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Acquires a lock and keeps the lease.
pub(crate) async fn keep(client: &Client, name: &LockName, request: AcquireRequest) -> Kept {
    let lease = client.acquire(name, &request).await.unwrap();
    let renewer = LeaseRenewer::start(client, lease.clone()).await.unwrap();
    Kept { lease, renewer }
}

/// A lease that is renewed.
pub(crate) struct Kept {
    pub(crate) lease: Lease,
    pub(crate) renewer: LeaseRenewer,
}

impl Kept {
    pub(crate) fn fence(&self) -> u64 {
        self.lease.fence.get()
    }

    /// Waits for the loss; answers it, and until when the lease was last said to last.
    pub(crate) async fn lost(&self) -> (Loss, Instant) {
        let mut state = self.renewer.watch();
        let mut last = Instant::now();
        let end = async {
            loop {
                let until = state.borrow_and_update().until();
                let Some(until) = until else { break };
                last = until;
                // Somebody has to look at the clock, as whoever waits for the loss does.
                tokio::select! {
                    changed = state.changed() => changed.unwrap(),
                    _ = self.renewer.lost() => {}
                }
            }
            self.renewer.lost().await
        };
        let loss = timeout(LONG, end).await.expect("it is lost");
        assert_eq!(self.renewer.until(), None);
        (loss, last)
    }
}

/// An acquire in the background, and when it was granted.
pub(crate) fn acquire(
    client: &Client,
    name: &LockName,
    request: AcquireRequest,
) -> JoinHandle<(Lease, Instant)> {
    let (client, name) = (client.clone(), name.clone());
    Handle::current().spawn(async move {
        let lease = client.acquire(&name, &request).await.unwrap();
        (lease, Instant::now())
    })
}

/// What comes of something in the background.
pub(crate) async fn result<T>(of: JoinHandle<T>) -> T {
    timeout(LONG, of).await.expect("it ends").unwrap()
}

pub(crate) fn is_held<T>(result: &Result<T, ClientError>) -> bool {
    matches!(result, Err(ClientError::Held(_)))
}
