//! Two gateway processes, one of which is killed or frozen in the middle of a request. Proxies connect it to one Redis
//! server or to the nodes of a quorum.

use crate::{
    api::prelude::*,
    redlock::nodes::{self, Nodes},
    support::{Fault, Proxy},
};

/// Two gateways. The victim reaches its Redis server, or each node of its quorum, through a proxy.
pub(super) struct Pair {
    servers: Vec<RedisServer>,
    proxies: Vec<Proxy>,
    victim: Gateway,
    other: Gateway,
    _lifecycle: Lifecycle,
}

/// The point of a request at which the victim is stopped.
#[derive(Clone, Copy)]
pub(super) struct Point {
    /// Bytes that the request to the server contains.
    pub(super) needle: &'static str,
    pub(super) fault: Fault,
    /// How many servers the fault is armed for.
    pub(super) servers: usize,
    /// Whether a server that has carried out the request has accepted a fencing token.
    pub(super) accepts: bool,
}

/// The part of the keys of this lock that the scripts are given.
pub(super) const OF_LOCK: &str = "{lock}";

const TTL_MS: u64 = 2_000;
/// Ten times the sum of a TTL, the three seconds of a provisional grant, and a period of the rounds.
const FREE_AGAIN: Duration = Duration::from_secs(70);

/// How long the victim may take until it sends the request that is stopped.
const STRUCK_WITHIN: Duration = Duration::from_mins(1);

// === impl Pair ===

impl Pair {
    pub(super) async fn on_redis() -> Self {
        let (server, lifecycle) = (RedisServer::start().await, Lifecycle::new());
        let proxy = Proxy::start(server.port(), &lifecycle).await;
        let on = |url: &str| Gateway::start_with(Setup::default().with("LATCHGATE_STORE", url));
        let pair = Self {
            victim: on(&proxy.url().to_string()),
            other: on(&format!("redis://127.0.0.1:{}", server.port())),
            servers: vec![server],
            proxies: vec![proxy],
            _lifecycle: lifecycle,
        };
        pair.warm_up().await;
        pair
    }

    pub(super) async fn on_a_quorum() -> Self {
        let (quorum, lifecycle) = (Nodes::start(3).await, Lifecycle::new());
        let mut proxies = Vec::new();
        for server in &quorum.servers {
            proxies.push(Proxy::start(server.port(), &lifecycle).await);
        }
        let ports: Vec<_> = proxies
            .iter()
            .map(|proxy| proxy.url().node().port())
            .collect();
        let on = |url: &str| {
            Gateway::start_with(
                Setup::default()
                    .with("LATCHGATE_STORE", url)
                    .with("LATCHGATE_REDLOCK_PERSISTENCE", "aof-always")
                    // The gateway must be stopped before it gives up a node.
                    .with("LATCHGATE_REDLOCK_NODE_TIMEOUT_MS", "10000"),
            )
        };
        let pair = Self {
            victim: on(&nodes::url(&ports).to_string()),
            other: on(&quorum.url().to_string()),
            servers: quorum.servers,
            proxies,
            _lifecycle: lifecycle,
        };
        pair.warm_up().await;
        pair
    }

    /// Loads every script into every server, so that the next request with its hash is carried out.
    async fn warm_up(&self) {
        // A quorum keeps a lease in a hash; one Redis server keeps it in a string of numbers with leading zeros.
        let (of_fence, of_ttl) = if self.servers.len() == 1 {
            (
                "GETRANGE lg:{warm}:lock 70 85",
                "GETRANGE lg:{warm}:lock 118 125",
            )
        } else {
            ("HGET lg:{warm}:info fence", "HGET lg:{warm}:info ttl")
        };
        for gateway in [&self.victim, &self.other] {
            eventually("every server knows every script", async || {
                let mut caller = Caller::connect(gateway.address).await;
                let (status, lease) = caller.acquire("warm", &json!({})).await;
                if status != 201 {
                    return None;
                }
                let fence = lease["fencing_token"].to_string();
                let mut known = self.all_say(of_fence, &fence).await;
                let ttl = json!({ "ttl_ms": 29_000 });
                renew(gateway.address, "warm", &lease, ttl).await;
                known &= self.all_say(of_ttl, "29000").await;
                caller.release("warm", &lease).await;
                known &= self.all_say("GET lg:{warm}:lock", "").await;
                known.then_some(())
            })
            .await;
        }
    }

    async fn all_say(&self, command: &str, what: &str) -> bool {
        let command: Vec<_> = command.split(' ').collect();
        for server in &self.servers {
            if server.text(&command).await.trim_start_matches('0') != what {
                return false;
            }
        }
        true
    }

    /// Acquires the lock at the victim.
    async fn take(&self) -> Value {
        let mut caller = Caller::connect(self.victim.address).await;
        let (status, lease) = caller.acquire("lock", &json!({ "ttl_ms": TTL_MS })).await;
        assert_eq!(status, 201, "{lease}");
        lease
    }

    fn arm(&self, point: Point) {
        for proxy in &self.proxies[..point.servers] {
            proxy.strike(point.needle, point.fault);
        }
    }

    async fn struck(&self, point: Point) {
        for (number, proxy) in self.proxies[..point.servers].iter().enumerate() {
            let struck = timeout(STRUCK_WITHIN, proxy.struck(1)).await;
            assert!(struck.is_ok(), "server {number} has not got the request");
        }
    }

    /// Sends a request to the victim. Returns when the request is stopped at the point.
    async fn strike(&self, point: Point, method: &str, header: &str, body: &Value) -> TcpStream {
        self.arm(point);
        let asked = send(self.victim.address, method, header, body).await;
        tokio::select! {
            biased;
            () = self.struck(point) => asked,
            _ = asked.readable() => {
                let mut answer = vec![0; 4_096];
                let read = asked.try_read(&mut answer).unwrap_or_default();
                let answer = String::from_utf8_lossy(&answer[..read]);
                panic!("the victim has answered before it was stopped: {answer}");
            }
        }
    }

    /// Lets the stopped requests reach the servers, although the victim has ended.
    fn let_go(&self) {
        for proxy in &self.proxies {
            proxy.let_go();
        }
    }

    /// Asserts that the lock is granted to the next caller of the other gateway, and that its keys are removed after
    /// the release.
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
        for server in &self.servers {
            eventually("nothing is left", async || {
                let keys = server.keys().await;
                // The counter of the fencing tokens stays; the other keys expire.
                let others = [":fence", ":ended", ":wanted", ":of:", ":key:"];
                let is_other = |key: &str| others.iter().any(|kind| key.contains(kind));
                let left = keys
                    .iter()
                    .any(|key| key.contains(OF_LOCK) && !is_other(key));
                (!left).then_some(())
            })
            .await;
        }
    }

    // The cases: what happens to the lock when the victim is killed at a point.

    pub(super) async fn killed_while_it_acquires(mut self, point: Point) {
        let body = json!({ "ttl_ms": TTL_MS });
        let _asked = self.strike(point, "POST", "", &body).await;
        self.victim.kill();
        self.let_go();
        for server in &self.servers[..point.servers] {
            eventually("it was carried out", async || {
                let fence = match self.servers.len() {
                    1 => server.text(&["GETRANGE", "lg:{lock}:lock", "70", "85"]),
                    _ => server.text(&["HGET", "lg:{lock}:info", "fence"]),
                };
                let fence: u64 = fence.await.parse().ok()?;
                (fence > u64::from(point.accepts)).then_some(())
            })
            .await;
        }
        self.is_free_again("acquire", None).await;
    }

    pub(super) async fn killed_when_it_has_answered(mut self) {
        let lease = self.take().await;
        self.victim.kill();
        let (status, renewed) = renew(self.other.address, "lock", &lease, json!({})).await;
        assert_eq!((status, fence(&renewed)), (200, fence(&lease)), "{renewed}");
        self.is_free_again("held", fence(&lease)).await;
    }

    pub(super) async fn killed_while_it_renews(mut self, point: Point) {
        let lease = self.take().await;
        let header = token(&lease);
        let asked = self.strike(point, "PUT", &header, &json!({})).await;
        self.victim.kill();
        self.let_go();
        drop(asked);
        self.is_free_again("renew", fence(&lease)).await;
    }

    pub(super) async fn killed_while_it_releases(mut self, point: Point) {
        let lease = self.take().await;
        let header = token(&lease);
        let asked = self.strike(point, "DELETE", &header, &json!({})).await;
        self.victim.kill();
        self.let_go();
        drop(asked);
        self.is_free_again("release", fence(&lease)).await;
    }

    /// Kills the victim while a caller waits there; if there is a point, while the victim gets the lock for this
    /// caller.
    pub(super) async fn killed_while_one_waits(mut self, point: Option<Point>) {
        let mut holder = Caller::connect(self.other.address).await;
        let (_, lease) = holder.acquire("lock", &json!({})).await;
        let body = json!({ "ttl_ms": TTL_MS, "wait_ms": 50_000 });
        let asked = send(self.victim.address, "POST", "", &body).await;
        // Each gateway of a quorum shows only its own waiters.
        let shown_by = match self.servers.len() {
            1 => self.other.address,
            _ => self.victim.address,
        };
        eventually("it is queued", async || {
            let shown = Caller::connect(shown_by).await.inspect("lock").await;
            (shown["waiters"].as_array()?.len() == 1).then_some(())
        })
        .await;
        if let Some(point) = point {
            self.arm(point);
            holder.release("lock", &lease).await;
            self.struck(point).await;
            self.victim.kill();
        } else {
            self.victim.kill();
            holder.release("lock", &lease).await;
        }
        drop(asked);
        self.is_free_again("queued", fence(&lease)).await;
    }

    /// Freezes the victim before it reads a reply, for longer than the lease lives, and lets it run again.
    pub(super) async fn standing_still_while_it_acquires(self, point: Point) {
        self.arm(point);
        let address = self.victim.address;
        let mut paused = JoinSet::new();
        paused.spawn(async move {
            let mut caller = Caller::connect(address).await;
            caller.acquire("lock", &json!({ "ttl_ms": TTL_MS })).await
        });
        self.struck(point).await;
        self.victim.freeze();
        self.let_go();
        // The lease of the victim ends meanwhile, and the next caller is granted the lock.
        let mut caller = Caller::connect(self.other.address).await;
        let (status, next) = caller.acquire("lock", &json!({ "wait_ms": 50_000 })).await;
        assert_eq!(status, 201, "{next}");
        self.victim.signal(Signal::CONT);
        let (status, late) = paused.join_next().await.unwrap().unwrap();
        // No lease of the victim is left, and its caller is told so.
        assert!([423, 503, 504].contains(&status), "{status} {late}");
        let shown = caller.inspect("lock").await;
        assert_eq!(
            shown["holders"][0]["fencing_token"].as_u64(),
            fence(&next),
            "{shown}"
        );
        caller.release("lock", &next).await;
        self.is_free_again("paused", fence(&next)).await;
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

async fn renew(to: SocketAddr, lock: &str, lease: &Value, body: Value) -> (u16, Value) {
    let mut connection = Connection::new(TcpStream::connect(to).await.unwrap());
    let token = lease["token"].as_str().unwrap();
    let asked = HttpRequest::new("PUT", format!("/locks/{lock}/renew")).with("Lock-Token", token);
    connection.ask(&asked.body(body)).await.unwrap()
}

fn token(lease: &Value) -> String {
    format!("Lock-Token: {}\r\n", lease["token"].as_str().unwrap())
}

fn fence(lease: &Value) -> Option<u64> {
    lease["fencing_token"].as_u64()
}

/// Bytes that only the second round of an acquire at a quorum contains: the keys of the counter and of the node's
/// record.
const SECOND_ROUND: &str = "}:fence\r\n$10\r\nlg:{}:node\r\n";

/// Points on one Redis server: before a request is carried out, and after it.
const ON_REDIS: [Point; 2] = [
    Point::at(Fault::HoldRequest, 1, true),
    Point::at(Fault::HoldReply, 1, true),
];

/// Points on a quorum: before a majority has carried out a request, and after all nodes have.
const ON_A_QUORUM: [Point; 2] = [
    Point::at(Fault::HoldRequest, 2, false),
    Point::at(Fault::HoldReply, 3, false),
];

impl Point {
    const fn at(fault: Fault, servers: usize, accepts: bool) -> Self {
        Self {
            needle: OF_LOCK,
            fault,
            servers,
            accepts,
        }
    }

    const fn in_second_round(self) -> Self {
        Self {
            needle: SECOND_ROUND,
            accepts: true,
            ..self
        }
    }
}

/// Runs a case at each point: on one Redis server one after the other, then on a quorum all at once, because the cases
/// mostly wait for a TTL.
async fn at_each<P, F: Future<Output = ()>>(
    on_redis: impl IntoIterator<Item = P>,
    on_a_quorum: impl IntoIterator<Item = P>,
    killed: impl Fn(Pair, P) -> F,
) {
    for point in on_redis {
        killed(Pair::on_redis().await, point).await;
    }
    let killed = &killed;
    let points = on_a_quorum.into_iter();
    let all = points.map(|point| async move { killed(Pair::on_a_quorum().await, point).await });
    join_all(all).await;
}

#[tokio::test]
async fn killed_before_or_after_its_acquire_was_carried_out_it_leaves_nothing_for_longer_than_a_ttl()
 {
    let rounds = ON_A_QUORUM.map(Point::in_second_round);
    let rounds = ON_A_QUORUM.into_iter().chain(rounds);
    at_each(ON_REDIS, rounds, Pair::killed_while_it_acquires).await;
}

#[tokio::test]
async fn killed_when_it_has_answered_it_leaves_the_lease_to_its_holder() {
    at_each([()], [()], |pair, ()| pair.killed_when_it_has_answered()).await;
}

#[tokio::test]
async fn killed_while_it_renews_it_makes_the_lease_last_a_ttl_and_no_longer() {
    at_each(ON_REDIS, ON_A_QUORUM, Pair::killed_while_it_renews).await;
}

#[tokio::test]
async fn killed_before_or_after_its_release_was_carried_out_it_leaves_the_lock_free() {
    at_each(ON_REDIS, ON_A_QUORUM, Pair::killed_while_it_releases).await;
}

#[tokio::test]
async fn killed_while_somebody_waits_there_or_before_a_grant_is_confirmed_it_is_passed_over() {
    // On one Redis server, the next request of the victim about this lock is stopped, whatever it is. So the victim
    // cannot confirm the grant.
    let on_redis = [None, Some(ON_REDIS[0])];
    let accepting = ON_A_QUORUM.map(|point| Some(point.in_second_round()));
    let on_a_quorum = [None].into_iter().chain(accepting);
    at_each(on_redis, on_a_quorum, Pair::killed_while_one_waits).await;
}

#[tokio::test]
async fn standing_still_between_the_grant_and_its_answer_it_takes_the_lock_from_nobody() {
    let second_round = ON_A_QUORUM[1].in_second_round();
    at_each(
        [ON_REDIS[1]],
        [second_round],
        Pair::standing_still_while_it_acquires,
    )
    .await;
}
