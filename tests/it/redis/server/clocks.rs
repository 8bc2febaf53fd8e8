//! The clock of the server is changed while locks are held and waited for, and the clock of a gateway is wrong.

use latchgate::clock::Clock as _;

use crate::redis::prelude::*;

/// How many seconds the clock is moved: more than a lease of these tests lives.
const STEP: i64 = 60;
/// Ten times the few seconds for which a gateway may count as dead, and the next period.
const NOTICED: Duration = Duration::from_mins(1);

async fn rig() -> (Rig, Clock) {
    let clock = Clock::ahead(0);
    let rig = Rig::on(RedisServer::start_on(clock.clone(), &[]).await);
    (rig, clock)
}

#[tokio::test]
async fn set_forward_it_ends_leases_early_and_fences_rise() {
    let (rig, clock) = rig().await;
    let held = attempt("held");
    let lease = rig.grant(&held).await;
    clock.set(STEP);
    let next = rig.grant(&attempt("held")).await;
    assert!(next.fence > lease.fence);
    rig.must_lose(&held, Loss::HeldByAnother).await;
    // The clock is right again: the store goes on from the values of the wrong time.
    clock.set(0);
    assert!(turn(&rig.store, "turn").await > lease.fence.get());
    rig.must_refuse(&attempt("held")).await;
}

#[tokio::test]
async fn set_back_it_makes_leases_last_longer_and_fences_rise_all_the_same() {
    let (rig, clock) = rig().await;
    let mut last = turn(&rig.store, "turn").await;
    let brief = with(attempt("brief"), |it| it.terms.set_ttl(ttl(500)));
    let lease = rig.grant(&brief).await;
    let granted_at = Instant::now();
    clock.set(-STEP);
    let fresh = open(&rig.server.url());
    for store in [&rig.store, &fresh, &rig.store] {
        let next = turn(store, "turn").await;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
    while granted_at.elapsed() < Duration::from_secs(1) {
        fresh.must_refuse(&attempt("brief")).await;
    }
    // Callers need not wait that long: an operator can break the lease.
    let meant = Some(lease.fence.into());
    fresh.must_break(&brief.name, meant).await;
    let next = granted(fresh.acquire(&attempt("brief")).await);
    assert!(next.fence > lease.fence);
}

#[tokio::test]
async fn a_fence_comes_again_only_if_data_and_time_are_lost_and_the_gateway_was_started_anew() {
    let (rig, clock) = rig().await;
    let before = turn(&rig.store, "turn").await;
    rig.run(&["FLUSHALL"]).await;
    clock.set(-STEP);
    // This gateway has seen the earlier grants.
    let after = turn(&rig.store, "turn").await;
    assert!(after > before, "{after} after {before}");
    rig.run(&["FLUSHALL"]).await;
    let fresh = open(&rig.server.url());
    // This gap is documented (docs/stores/redis.md, "Fencing tokens").
    assert!(turn(&fresh, "turn").await < before);
}

#[tokio::test]
async fn nobody_waits_for_ever_although_it_is_set() {
    for (step, at_once) in [(STEP, true), (-STEP, false)] {
        let clock = Clock::ahead(0);
        let server = RedisServer::start_on(clock.clone(), &[]).await;
        let gates = gateways_on(&server).await;
        let lease = gates[0].take("clock").await;
        let first = gates[1].queue(request("clock")).await;
        let second = gates[0].queue(request("clock")).await;
        clock.set(step);
        let start = Instant::now();
        if !at_once {
            gates[0].release(&lease).await;
        }
        // The clock moves forward: the lease has ended, and the gateways count as dead.
        let (one, other) = tokio::join!(
            async {
                let lease = first.lease().await;
                gates[1].release(&lease).await;
                lease.held.fence
            },
            async {
                let lease = second.lease().await;
                gates[0].release(&lease).await;
                lease.held.fence
            }
        );
        assert!(start.elapsed() < NOTICED, "{step}: {:?}", start.elapsed());
        assert!(one != other && one.min(other) > lease.held.fence);
    }
}

#[tokio::test]
async fn that_of_a_gateway_decides_nothing() {
    let server = RedisServer::start().await;
    let lifecycle = Lifecycle::new();
    let (wall, hour) = (SystemClock.wall(), Duration::from_hours(1));
    let gateway = |clock| {
        RedisStore::open(
            &server.url(),
            &quick(),
            Arc::new(clock),
            &lifecycle,
            latchgate::config::OrderLimits::default(),
        )
    };
    let gateways = [
        gateway(ManualClock::at(wall - hour)),
        gateway(ManualClock::at(wall + hour)),
    ];
    leases_last(400, &gateways).await;
}

/// Two gateways take turns. Each must be granted the lock when the lease of the other, of `ms` milliseconds, has ended,
/// and not earlier.
pub(crate) async fn leases_last(ms: u64, gateways: &[impl Store; 2]) {
    let (lasts, mut last) = (Duration::from_millis(ms), 0);
    for turn in 0..4 {
        let (here, there) = (&gateways[turn % 2], &gateways[1 - turn % 2]);
        let brief = with(attempt("lock"), |it| it.terms.set_ttl(ttl(ms)));
        let asked = Instant::now();
        let lease = granted(here.acquire(&brief).await);
        assert!(lease.fence.get() > last, "{} after {last}", lease.fence);
        last = lease.fence.get();
        assert!(lease.expires_in <= lasts);
        let next = attempt("lock");
        let next_lease = eventually("the lease is over", async || {
            match there.acquire(&next).await {
                Ok(Acquisition::Granted(lease)) => Some(lease),
                Ok(Acquisition::Held(_)) => None,
                other => panic!("{other:?}"),
            }
        })
        .await;
        assert!(asked.elapsed() >= lasts);
        last = last.max(next_lease.fence.get());
        there.must_release(&next).await;
    }
}

#[tokio::test]
async fn one_that_is_impossible_spoils_no_lease_that_is_renewed() {
    let (rig, clock) = rig().await;
    let asked = attempt("spoilt");
    let lease = rig.grant(&asked).await;
    let now = SystemClock.wall().duration_since(std::time::UNIX_EPOCH);
    let now = i64::try_from(now.unwrap().as_secs()).unwrap();
    // Half a minute after the beginning of 1970.
    clock.set(30 - now);
    let renewed = rig.must_renew(&asked, None).await;
    assert_eq!(renewed.fence, lease.fence);
    rig.must_be_held(&asked.name).await;
    rig.must_release(&asked).await;
}

#[tokio::test]
async fn of_another_server_makes_no_lease_longer_than_it_lasts() {
    let rig = Rig::start().await;
    let asked = rig.must_hold(attempt("moved")).await;
    // A server to which the slot was moved has taken over the time left, and its clock is behind.
    rig.run(&["PEXPIRE", "lg:{moved}:lock", "5000"]).await;
    let again = granted(rig.acquire(&asked).await);
    assert!(again.expires_in <= Duration::from_secs(5), "{again:?}");
}
