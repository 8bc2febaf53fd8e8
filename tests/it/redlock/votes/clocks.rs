//! Nodes with wrong clocks, and clocks that are changed.

use latchgate::clock::Clock as _;

use crate::redis::server::clocks::leases_last;
use crate::redlock::prelude::*;

const HOUR: i64 = 3_600;

/// A quorum whose nodes have clocks that are this many seconds ahead.
pub(crate) async fn rig(ahead: &[i64]) -> (Rig, Vec<Clock>) {
    let clocks: Vec<_> = ahead.iter().map(|&ahead| Clock::ahead(ahead)).collect();
    let mut servers = Vec::new();
    for clock in &clocks {
        servers.push(RedisServer::start_on(clock.clone(), &[]).await);
    }
    let rig = Rig::on(Nodes { servers }, &quick());
    rig.all_vote().await;
    (rig, clocks)
}

#[tokio::test]
async fn fences_rise_and_leases_last_although_clocks_are_hours_apart() {
    let (rig, _clocks) = rig(&[HOUR, 0, -HOUR]).await;
    let mut last = 0;
    rig.rises(&mut last).await;
    // Each node is away in turn, also the one whose time the fencing tokens follow.
    for server in &rig.nodes.servers {
        server.freeze();
        for _ in 0..3 {
            rig.rises(&mut last).await;
        }
        server.thaw();
    }
    let short = with(attempt("lock"), |it| it.terms.set_ttl(ttl(600)));
    let asked = Instant::now();
    let lease = rig.grant(&short).await;
    assert!(lease.expires_in <= Duration::from_millis(600));
    let next = attempt("lock");
    rig.store.until_granted(&next).await;
    // A wrong clock does not run faster.
    assert!(asked.elapsed() >= lease.expires_in);
    for node in [0, 2] {
        let port = rig.server(node).port().to_string();
        assert_health(&rig.store, "clock", Health::Warning, &port).await;
    }
}

#[tokio::test]
async fn a_clock_that_is_set_forward_ends_leases_at_its_node_alone() {
    let (rig, clocks) = rig(&[0, 0, 0]).await;
    let (asked, lease) = rig.grant_everywhere("lock").await;
    clocks[1].set(60);
    rig.until_holds(&asked.name, 2).await;
    for _ in 0..5 {
        rig.store.must_refuse(&attempt("lock")).await;
    }
    rig.store.must_renew(&asked, None).await;
    rig.release(&asked).await;
    // The fencing tokens went forward with the clock, and do not go back with it.
    let mut last = lease.fence.get();
    rig.rises(&mut last).await;
    clocks[1].set(0);
    for _ in 0..3 {
        rig.rises(&mut last).await;
    }
}

/// A node first refuses the lease because another try is just there. When that try is gone, the node takes the lease,
/// too, so that a step of one clock does not leave the lease at a minority.
#[tokio::test]
async fn the_clock_of_one_node_does_not_end_a_lease_that_a_node_had_refused() {
    let (rig, clocks) = rig(&[0, 0, 0]).await;
    let key = "lg:{lock}:lock";
    rig.server(2).run(&["SET", key, "theirs"]).await;
    let asked = with(attempt("lock"), |it| {
        it.terms
            .set_hold_limit(HoldLimit::from_millis(60_000, ttl(30_000)).unwrap());
    });
    let lease = rig.grant(&asked).await;
    assert_eq!(rig.have_accepted(&asked.name, &lease).await, 2);
    rig.server(2).run(&["DEL", key]).await;
    until("the third node has the lease, too", async || {
        rig.have_accepted(&asked.name, &lease).await == 3
    })
    .await;
    // The lease began at the other nodes, and ends at this node when it ends at them.
    for field in ["first", "hold"] {
        let read = ["HGET", "lg:{lock}:info", field];
        let (first, last) = (
            rig.server(0).integer(&read).await,
            rig.server(2).integer(&read).await,
        );
        assert!(last <= first + 2, "{field}: {last} after {first}");
    }
    clocks[1].set(60);
    rig.until_holds(&asked.name, 2).await;
    for _ in 0..5 {
        rig.store.must_refuse(&attempt("lock")).await;
    }
    rig.keeps(&asked, &lease).await;
    rig.release_everywhere(&asked).await;
    assert!(rig.turn("lock").await > lease.fence.get());
}

#[tokio::test]
async fn a_clock_that_is_set_back_makes_leases_last_at_its_node_alone() {
    let (rig, clocks) = rig(&[0, 0, 0]).await;
    let mut last = 0;
    rig.rises(&mut last).await;
    let asked = with(attempt("lock"), |it| it.terms.set_ttl(ttl(500)));
    let lease = rig.grant(&asked).await;
    clocks[2].set(-600);
    let next = attempt("lock");
    let granted = rig.store.until_granted(&next).await;
    assert!(granted.fence > lease.fence);
}

#[tokio::test]
async fn that_of_a_gateway_decides_nothing() {
    let rig = Rig::start(3).await;
    let (wall, hour) = (SystemClock.wall(), Duration::from_hours(1));
    let redis = with(RedisConfig::default(), |it| it.deadline_ms = Millis(3_000));
    let url = rig.nodes.url();
    let gateways = [wall - hour, wall + hour].map(|time| {
        let clock = Arc::new(ManualClock::at(time));
        RedlockStore::open(&url, &redis, &quick(), clock, &rig.lifecycle)
    });
    for gateway in &gateways {
        assert_health(gateway, "clock", Health::Warning, "").await;
    }
    leases_last(800, &gateways).await;
}
