//! A gateway that is killed, or stands still, in the middle of a request: the real program, on a Redis
//! that it reaches by a proxy, and another one beside it.

use std::{net::SocketAddr, time::Duration};

use latchgate::lifecycle::Lifecycle;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream, task::JoinSet, time::Instant};

use crate::support::{
    Asked, Caller, Connection, Fault, Proxy, RedisServer, eventually,
    gateway::{Gateway, Setup},
};

const TTL_MS: u64 = 2_000;
/// Ten times a TTL, three seconds for a grant that nobody confirms, and a period.
const FREE_AGAIN: Duration = Duration::from_secs(70);

/// Two gateways, one of which reaches its Redis by a proxy.
struct Pair {
    server: RedisServer,
    proxy: Proxy,
    doomed: Gateway,
    other: Gateway,
    _lifecycle: Lifecycle,
}

fn on(url: &str) -> Gateway {
    Gateway::start_with(Setup::default().with("LATCHGATE_STORE", url))
}

/// What the scripts are given of this lock.
const OF_LOCK: &str = "{lock}";

// === impl Pair ===

impl Pair {
    async fn start() -> Self {
        let (server, lifecycle) = (RedisServer::start().await, Lifecycle::new());
        let proxy = Proxy::start(server.port(), &lifecycle).await;
        let doomed = on(&proxy.url().to_string());
        let other = on(&format!("redis://127.0.0.1:{}", server.port()));
        let pair = Self {
            server,
            proxy,
            doomed,
            other,
            _lifecycle: lifecycle,
        };
        // The server knows the scripts.
        for gateway in [&pair.doomed, &pair.other] {
            let mut caller = Caller::connect(gateway.address).await;
            let (_, lease) = caller.acquire("warm", &json!({})).await;
            renew(gateway.address, "warm", &lease).await;
            caller.release("warm", &lease).await;
        }
        pair
    }

    /// Takes the lock at the gateway that will be killed.
    async fn take(&self) -> Value {
        let mut caller = Caller::connect(self.doomed.address).await;
        let (status, lease) = caller.acquire("lock", &json!({ "ttl_ms": TTL_MS })).await;
        assert_eq!(status, 201, "{lease}");
        lease
    }

    /// Sends a request to it, and comes back when it was struck on its way.
    async fn strike(&self, fault: Fault, method: &str, header: &str, body: &Value) -> TcpStream {
        self.proxy.strike(OF_LOCK, fault);
        let asked = send(self.doomed.address, method, header, body).await;
        self.proxy.struck(1).await;
        asked
    }

    /// The lock is granted to the next who asks the other gateway, and nothing is left then.
    async fn is_free_again(&self, what: &str, fence: Option<u64>) {
        let start = Instant::now();
        let mut caller = Caller::connect(self.other.address).await;
        let (status, lease) = caller.acquire("lock", &json!({ "wait_ms": 50_000 })).await;
        assert_eq!(status, 201, "{what}: {lease}");
        assert!(
            start.elapsed() < FREE_AGAIN,
            "{what}: {:?}",
            start.elapsed()
        );
        assert!(fence < lease["fencing_token"].as_u64(), "{what}: {lease}");
        caller.release("lock", &lease).await;
        eventually("nothing is left", async || {
            let keys = self.server.keys().await;
            let left = keys.iter().any(|key| {
                key.contains(OF_LOCK) && !key.ends_with(":ended") && !key.ends_with(":fence")
            });
            (!left).then_some(())
        })
        .await;
    }
}

async fn send(to: SocketAddr, method: &str, header: &str, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let path = if method == "PUT" { "/renew" } else { "" };
    let body = body.to_string();
    let request = format!(
        "{method} /locks/lock{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n{header}\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn renew(to: SocketAddr, lock: &str, lease: &Value) -> (u16, Value) {
    let mut connection = Connection::new(TcpStream::connect(to).await.unwrap());
    let token = lease["token"].as_str().unwrap();
    let asked = Asked::new("PUT", format!("/locks/{lock}/renew")).with("Lock-Token", token);
    connection.ask(&asked).await.unwrap()
}

fn token(lease: &Value) -> String {
    format!("Lock-Token: {}\r\n", lease["token"].as_str().unwrap())
}

fn fence(lease: &Value) -> Option<u64> {
    lease["fencing_token"].as_u64()
}

#[tokio::test]
async fn killed_before_or_after_its_acquire_was_carried_out_it_leaves_nothing_for_longer_than_a_ttl()
 {
    for fault in [Fault::HoldRequest, Fault::HoldReply] {
        let mut pair = Pair::start().await;
        let body = json!({ "ttl_ms": TTL_MS });
        let _asked = pair.strike(fault, "POST", "", &body).await;
        pair.doomed.kill();
        // The request comes to the server although nobody is there any more who sent it.
        pair.proxy.let_go();
        eventually("it was carried out", async || {
            let key = pair.server.text(&["GET", "lg:{lock}:lock"]).await;
            (!key.is_empty()).then_some(())
        })
        .await;
        pair.is_free_again("acquire", None).await;
    }
}

#[tokio::test]
async fn killed_when_it_has_answered_it_leaves_the_lease_to_its_holder() {
    let mut pair = Pair::start().await;
    let lease = pair.take().await;
    pair.doomed.kill();
    let (status, renewed) = renew(pair.other.address, "lock", &lease).await;
    assert_eq!((status, fence(&renewed)), (200, fence(&lease)), "{renewed}");
    pair.is_free_again("held", fence(&lease)).await;
}

#[tokio::test]
async fn killed_while_it_renews_it_makes_the_lease_last_a_ttl_and_no_longer() {
    for fault in [Fault::HoldRequest, Fault::HoldReply] {
        let mut pair = Pair::start().await;
        let lease = pair.take().await;
        let asked = pair.strike(fault, "PUT", &token(&lease), &json!({})).await;
        pair.doomed.kill();
        pair.proxy.let_go();
        drop(asked);
        pair.is_free_again("renew", fence(&lease)).await;
    }
}

#[tokio::test]
async fn killed_before_or_after_its_release_was_carried_out_it_leaves_the_lock_free() {
    for fault in [Fault::HoldRequest, Fault::HoldReply] {
        let mut pair = Pair::start().await;
        let lease = pair.take().await;
        let asked = pair
            .strike(fault, "DELETE", &token(&lease), &json!({}))
            .await;
        pair.doomed.kill();
        pair.proxy.let_go();
        drop(asked);
        pair.is_free_again("release", fence(&lease)).await;
    }
}

#[tokio::test]
async fn killed_while_somebody_waits_there_or_before_it_confirms_a_grant_it_is_passed_over() {
    for confirms in [false, true] {
        let mut pair = Pair::start().await;
        let mut holder = Caller::connect(pair.other.address).await;
        let (_, lease) = holder.acquire("lock", &json!({})).await;
        let body = json!({ "ttl_ms": TTL_MS, "wait_ms": 50_000 });
        let asked = send(pair.doomed.address, "POST", "", &body).await;
        eventually("it is queued", async || {
            let shown = Caller::connect(pair.other.address)
                .await
                .inspect("lock")
                .await;
            (shown["waiters"].as_array()?.len() == 1).then_some(())
        })
        .await;
        if confirms {
            // Whatever it asks for next of this lock, it does not come to confirm.
            pair.proxy.strike(OF_LOCK, Fault::HoldRequest);
            holder.release("lock", &lease).await;
            pair.proxy.struck(1).await;
            pair.doomed.kill();
        } else {
            pair.doomed.kill();
            holder.release("lock", &lease).await;
        }
        drop(asked);
        pair.is_free_again("queued", fence(&lease)).await;
    }
}

#[tokio::test]
async fn standing_still_between_the_grant_and_its_answer_it_takes_the_lock_from_nobody() {
    let pair = Pair::start().await;
    pair.proxy.strike(OF_LOCK, Fault::HoldReply);
    let address = pair.doomed.address;
    let mut paused = JoinSet::new();
    paused.spawn(async move {
        let mut caller = Caller::connect(address).await;
        caller.acquire("lock", &json!({ "ttl_ms": TTL_MS })).await
    });
    pair.proxy.struck(1).await;
    pair.doomed.signal(Signal::STOP);
    pair.doomed.stands_still();
    pair.proxy.let_go();
    // Its lease ends meanwhile, and the next has the lock.
    let mut caller = Caller::connect(pair.other.address).await;
    let (status, next) = caller.acquire("lock", &json!({ "wait_ms": 50_000 })).await;
    assert_eq!(status, 201, "{next}");
    pair.doomed.signal(Signal::CONT);
    let (status, late) = paused.join_next().await.unwrap().unwrap();
    if status == 201 {
        // By the time that its caller has waited it is over, and nobody takes it for a living one.
        assert!(fence(&late) < fence(&next), "{late}, {next}");
        let (status, lost) = renew(pair.other.address, "lock", &late).await;
        assert_eq!(status, 410, "{lost}");
    } else {
        assert!([423, 503, 504].contains(&status), "{late}");
    }
    let shown = caller.inspect("lock").await;
    assert_eq!(
        shown["holder"]["fencing_token"].as_u64(),
        fence(&next),
        "{shown}"
    );
    caller.release("lock", &next).await;
    pair.is_free_again("paused", fence(&next)).await;
}
