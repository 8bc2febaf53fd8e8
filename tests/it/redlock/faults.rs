//! A quorum whose nodes fail all the time, are slow, cut off or moved, always a minority at once: no two callers hold
//! the lock together, and fencing tokens rise.

use std::sync::atomic::AtomicU64;

use super::nodes::{open, url};
use crate::{
    redis::server::moved::{connections_at, kill_one},
    redlock::prelude::*,
    support::SlowWay,
};

/// What the clients observe themselves, without asking a store.
#[derive(Default)]
pub(super) struct Seen {
    inside: AtomicBool,
    fence: AtomicU64,
    visits: AtomicU64,
    over: AtomicBool,
}

// === impl Seen ===

impl Seen {
    /// A client with this fencing token begins to hold the lock, alone, until `leaves`.
    pub(super) fn enters(&self, fence: u64) {
        assert!(!self.inside.swap(true, Ordering::SeqCst), "two are inside");
        let before = self.fence.swap(fence, Ordering::SeqCst);
        assert!(before < fence, "{fence} after {before}");
    }

    pub(super) fn leaves(&self) {
        self.visits.fetch_add(1, Ordering::SeqCst);
        self.inside.store(false, Ordering::SeqCst);
    }

    pub(super) fn visits(&self) -> u64 {
        self.visits.load(Ordering::SeqCst)
    }

    /// Waits until clients have held the lock this many times.
    async fn until_visits(&self, visits: u64) {
        until("so many were inside", async || self.visits() >= visits).await;
    }

    /// Ends the clients, none of which may have observed an error.
    async fn end(&self, mut clients: JoinSet<()>, how_to_repeat: &str) {
        self.over.store(true, Ordering::SeqCst);
        while let Some(client) = clients.join_next().await {
            client.unwrap_or_else(|error| panic!("{error}, {how_to_repeat}"));
        }
    }
}

/// Acquires and releases the lock until the test is over. Leases of unknown outcome are left to their TTL.
async fn client(store: Arc<impl Store>, seen: Arc<Seen>) {
    while !seen.over.load(Ordering::SeqCst) {
        let asked = with(attempt("lock"), |it| it.terms.set_ttl(ttl(20_000)));
        let Ok(Acquisition::Granted(lease)) = store.acquire(&asked).await else {
            sleep(Duration::from_millis(5)).await;
            continue;
        };
        seen.enters(lease.fence.get());
        seen.leaves();
        while store.release(&asked.name, &asked.token).await.is_err() {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_fails_all_the_time_costs_nothing_but_time() {
    let mut random = Random::seeded();
    let mut rig = Rig::start(5).await;
    let store = Arc::new(rig.nodes.open(&rig.lifecycle));
    let seen = Arc::new(Seen::default());
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        clients.spawn(client(Arc::clone(&store), Arc::clone(&seen)));
    }
    let rounds = if full() { 60 } else { 8 };
    for _ in 0..rounds {
        let before = seen.visits();
        let first = random.below(5);
        let second = (first + 1 + random.below(4)) % 5;
        rig.server(first).freeze();
        // When the node is back, it still has all that it answered.
        rig.server_mut(second).kill();
        sleep(Duration::from_millis(random.next() % 300)).await;
        rig.server_mut(second).start_again().await;
        rig.server(first).thaw();
        seen.until_visits(before + 4).await;
    }
    seen.end(clients, &random.how_to_repeat()).await;
    rig.nothing_left(&attempt("lock").name).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_late_fences_rise_and_nobody_is_inside_together() {
    let mut random = Random::seeded();
    let rig = Rig::start(5).await;
    let (seen, mut clients) = (Arc::new(Seen::default()), JoinSet::new());
    for _ in 0..2 {
        let mut ports = Vec::new();
        for server in &rig.nodes.servers {
            let way = SlowWay::start(server.port(), &mut random, &rig.lifecycle).await;
            ports.push(way.port());
        }
        let gateway = Arc::new(open(&url(&ports), &quick(), &rig.lifecycle));
        for _ in 0..3 {
            clients.spawn(client(Arc::clone(&gateway), Arc::clone(&seen)));
        }
    }
    let visits = if full() { 400 } else { 40 };
    seen.until_visits(visits).await;
    seen.end(clients, &random.how_to_repeat()).await;
    rig.nothing_left(&attempt("lock").name).await;
}

/// A gateway with a cable to each of the nodes.
struct ProxiedGateway {
    cables: Vec<Cable>,
    store: Arc<RedlockStore>,
}

// === impl ProxiedGateway ===

impl ProxiedGateway {
    async fn start(rig: &Rig) -> Self {
        let mut cables = Vec::new();
        for server in &rig.nodes.servers {
            cables.push(Cable::to(server.port(), &rig.lifecycle).await);
        }
        let ports: Vec<_> = cables.iter().map(Cable::port).collect();
        Self {
            cables,
            store: Arc::new(open(&url(&ports), &quick(), &rig.lifecycle)),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_ring_where_each_gateway_reaches_another_majority_nobody_is_inside_together() {
    let rig = Rig::start(3).await;
    let (seen, mut clients) = (Arc::new(Seen::default()), JoinSet::new());
    let mut gateways: Vec<ProxiedGateway> = Vec::new();
    for _ in 0..3 {
        let gateway = ProxiedGateway::start(&rig).await;
        granted(
            gateway
                .store
                .acquire(&attempt(&format!("warm-{}", gateways.len())))
                .await,
        );
        gateways.push(gateway);
    }
    // Any two of the gateways reach one node in common.
    for (place, gateway) in gateways.iter().enumerate() {
        gateway.cables[place].cut();
    }
    for gateway in &gateways {
        clients.spawn(client(Arc::clone(&gateway.store), Arc::clone(&seen)));
    }
    seen.until_visits(seen.visits() + 30).await;
    for (place, gateway) in gateways.iter().enumerate() {
        gateway.cables[place].mend();
    }
    seen.until_visits(seen.visits() + 30).await;
    seen.end(clients, "").await;
    rig.nothing_left(&attempt("lock").name).await;
}

#[tokio::test]
async fn whoever_is_cut_off_from_a_majority_is_granted_nothing_and_loses_nothing_of_others() {
    let rig = Rig::start(3).await;
    let apart = ProxiedGateway::start(&rig).await;
    let held = attempt("held");
    let lease = granted(apart.store.acquire(&held).await);
    for cable in &apart.cables[1..] {
        cable.cut();
    }
    let cut_off = apart.store.acquire(&attempt("lock")).await;
    let expected = matches!(
        cut_off,
        Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_))
    );
    assert!(expected, "{cut_off:?}");
    // The other gateways go on, and the lease of the cut-off gateway still counts.
    let other = attempt("lock");
    rig.store.until_granted(&other).await;
    rig.store.must_refuse(&attempt("held")).await;

    for cable in &apart.cables {
        cable.mend();
    }
    eventually("it is told that the lock is held", async || {
        match apart.store.acquire(&attempt("lock")).await {
            Ok(Acquisition::Held(_)) => Some(()),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        }
    })
    .await;
    let renewed = eventually("it renews what it holds", async || {
        match apart.store.renew(&held.name, &held.token, None).await {
            Ok(Renewal::Renewed(renewed, _)) => Some(renewed.fence),
            Ok(lost) => panic!("{lost:?}"),
            Err(_) => None,
        }
    })
    .await;
    assert_eq!(renewed, lease.fence);
    rig.release_everywhere(&other).await;
}

#[tokio::test]
async fn a_node_whose_address_has_moved_votes_at_the_new_server_alone() {
    let (rig, proxies) = Rig::with_proxies(3).await;
    rig.grant(&attempt("before")).await;
    let spare = RedisServer::start().await;
    proxies[0].lead_to(spare.port());
    kill_one(rig.server(0), false).await;
    until("no connection leads to the first server", async || {
        connections_at(rig.server(0)).await == [0, 0]
    })
    .await;
    rig.all_vote().await;
    for number in 0..50 {
        let asked = attempt(&format!("name-{number}"));
        rig.grant(&asked).await;
        let key = format!("lg:{{{}}}:lock", asked.name);
        assert_eq!(rig.server(0).integer(&["EXISTS", &key]).await, 0);
    }
    assert_eq!(connections_at(rig.server(0)).await, [0, 0]);
}
