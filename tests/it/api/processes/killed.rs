//! Two gateways, one of which is killed or stands still in the middle of a request: the real program, on one Redis or
//! on a quorum, which it reaches by proxies.

use crate::{
    api::prelude::*,
    redlock::nodes::{self, Nodes},
    support::{Fault, Proxy},
};

/// Two gateways, one of which reaches its Redis, or each node of its quorum, by a proxy.
pub(super) struct Pair {
    servers: Vec<RedisServer>,
    proxies: Vec<Proxy>,
    victim: Gateway,
    other: Gateway,
    _lifecycle: Lifecycle,
}

/// Where the gateway is struck.
#[derive(Clone, Copy)]
pub(super) struct Point {
    /// What the request contains.
    pub(super) needle: &'static str,
    pub(super) fault: Fault,
    /// On its way to how many servers.
    pub(super) servers: usize,
    /// Whether a server has accepted a fence when it has carried it out.
    pub(super) accepts: bool,
}

/// What the scripts are given of this lock.
pub(super) const OF_LOCK: &str = "{lock}";

const TTL_MS: u64 = 2_000;
/// Ten times a TTL, three seconds for a grant that nobody confirms, and a period.
const FREE_AGAIN: Duration = Duration::from_secs(70);

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
                    // It is struck before it gives a node up.
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

    /// Makes every script known to every server, so that the next copy of any is carried out.
    async fn warm_up(&self) {
        // A quorum keeps a lease in a hash; one Redis in a text, in which numbers begin with zeros.
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

    /// Takes the lock at the gateway that will be killed.
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
        for proxy in &self.proxies[..point.servers] {
            proxy.struck(1).await;
        }
    }

    /// Sends a request to it, and comes back when it was struck on its way.
    async fn strike(&self, point: Point, method: &str, header: &str, body: &Value) -> TcpStream {
        self.arm(point);
        let asked = send(self.victim.address, method, header, body).await;
        self.struck(point).await;
        asked
    }

    /// What it sent comes to the servers although nobody is there any more who sent it.
    fn let_go(&self) {
        for proxy in &self.proxies {
            proxy.let_go();
        }
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
        for server in &self.servers {
            eventually("nothing is left", async || {
                let keys = server.keys().await;
                // A counter stays, and the others go by themselves.
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

    // What becomes of the lock when it is killed there.

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

    /// While one waits there; at this point of getting the lock for it, if there is one.
    pub(super) async fn killed_while_one_waits(mut self, point: Option<Point>) {
        let mut holder = Caller::connect(self.other.address).await;
        let (_, lease) = holder.acquire("lock", &json!({})).await;
        let body = json!({ "ttl_ms": TTL_MS, "wait_ms": 50_000 });
        let asked = send(self.victim.address, "POST", "", &body).await;
        // Of those who wait a quorum shows the ones at the gateway that is asked.
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

    /// It stands still before it hears an answer, for longer than the lease lasts, and goes on.
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
        // Its lease ends meanwhile, and the next has the lock.
        let mut caller = Caller::connect(self.other.address).await;
        let (status, next) = caller.acquire("lock", &json!({ "wait_ms": 50_000 })).await;
        assert_eq!(status, 201, "{next}");
        self.victim.signal(Signal::CONT);
        let (status, late) = paused.join_next().await.unwrap().unwrap();
        // Nothing is left of what it was granted, and it is told so.
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

/// What the scripts are given in the second round of an acquire at a quorum, and in no other: the counter, and what
/// the node has learnt behind it.
const SECOND_ROUND: &str = "}:fence\r\n$10\r\nlg:{}:node\r\n";

/// On one Redis: before a request is carried out, and after.
const ON_REDIS: [Point; 2] = [
    Point::at(Fault::HoldRequest, 1, true),
    Point::at(Fault::HoldReply, 1, true),
];

/// On a quorum: before a majority has carried it out, and after all have.
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

/// Two gateways on one Redis for each point, one after the other; then two on a quorum for each, all at once: most of
/// the time they wait for a TTL.
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
    // Whatever it asks for next of this lock on one Redis, it does not come to confirm.
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
