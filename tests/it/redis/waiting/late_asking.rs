//! An acquire that arrives late, of an attempt that had lost its place in the queue or was granted the lock meanwhile.
//!
//! That it was sent again is known to the queue by the attempt's place. Without that knowledge it would be
//! granted the lock when it arrives, and nobody would know the token.

use std::time::Duration;

use latchgate::store::{
    Store,
    contract::{Acquisition, Attempt, Confirmation, Leaving},
    parking::News,
};

use super::gate::{GRACE, TestGateway, waiting};
use crate::{
    redis::{
        expected,
        leases::keyed,
        rig::{Rig, attempt, eventually, granted, limit, runs, ttl, write_down_everything},
    },
    support::{Fault, Proxy, RedisServer},
};

/// A lock that is held, and an attempt that is queued for it by the second copy of its acquire.
async fn queued() -> (Rig, Proxy, Attempt, Attempt) {
    let (rig, proxy) = Rig::with_proxy().await;
    let (holder, asked) = (attempt("late"), waiting(attempt("late")));
    rig.grant(&holder).await;
    proxy.strike(&asked.token.to_string(), Fault::HoldRequest);
    asks(&rig, &asked).await;
    assert_eq!(proxy.strikes(), 1, "the first copy is held");
    (rig, proxy, holder, asked)
}

async fn asks(rig: &Rig, asked: &Attempt) {
    let queued = rig.store.acquire(asked).await.unwrap();
    assert!(matches!(queued, Acquisition::Queued(_)), "{queued:?}");
}

/// Takes it out of the queue as one whose gateway has died.
async fn lose_place(rig: &Rig, asked: &Attempt) {
    let id = format!("2{}", asked.token);
    let place = ["LREM", "lg:{late}:wait", "1", &id];
    assert_eq!(rig.server.integer(&place).await, 1);
    let ticket = ["DEL", &format!("lg:{{late}}:of:{id}")];
    assert_eq!(rig.server.integer(&ticket).await, 1);
}

async fn nothing_is_granted_when_it_arrives(rig: &Rig, proxy: &Proxy, asked: &Attempt) {
    write_down_everything(&rig.server).await;
    proxy.let_go();
    eventually("the late copy arrives", async || {
        (runs(&rig.server, &asked.token).await >= 1).then_some(())
    })
    .await;
    let shown = rig.store.inspect(&asked.name).await.unwrap();
    assert_eq!(shown, expected::free());
}

#[tokio::test]
async fn one_that_has_left_although_its_place_was_lost_is_granted_nothing() {
    let (rig, proxy, holder, asked) = queued().await;
    lose_place(&rig, &asked).await;
    let left = rig.store.leave(&asked.name, &asked.token, None).await;
    assert!(matches!(left, Ok(Leaving::Left(_))), "{left:?}");
    let released = rig.store.release(&holder.name, &holder.token).await;
    released.unwrap();
    nothing_is_granted_when_it_arrives(&rig, &proxy, &asked).await;
}

#[tokio::test]
async fn one_whose_place_was_kept_until_nobody_came_is_granted_nothing() {
    let (rig, proxy) = Rig::with_proxy().await;
    let (holder, asked) = (attempt("late"), waiting(keyed("late", "k")));
    rig.grant(&holder).await;
    proxy.strike(&asked.token.to_string(), Fault::HoldRequest);
    asks(&rig, &asked).await;
    assert_eq!(proxy.strikes(), 1, "the first copy is held");
    let left = rig.store.leave(&asked.name, &asked.token, Some(GRACE));
    assert!(matches!(left.await, Ok(Leaving::Left(_))));
    // Its time is over when its turn comes, and nobody has taken it out before.
    let ticket = format!("lg:{{late}}:of:2{}", asked.token);
    let over = ["SETRANGE", &ticket, "41", "1735689600000000"];
    rig.server.run(&over).await;
    let released = rig.store.release(&holder.name, &holder.token).await;
    released.unwrap();
    nothing_is_granted_when_it_arrives(&rig, &proxy, &asked).await;
}

#[tokio::test]
async fn one_that_asked_again_for_its_lost_place_is_granted_the_lock_once() {
    for ends in ["released", "left"] {
        let (rig, proxy) = Rig::with_proxy().await;
        let (holder, asked) = (attempt("late"), waiting(attempt("late")));
        let parking = rig.store.parking();
        let mut parked = parking.park(asked.name.clone(), asked.token);
        rig.grant(&holder).await;
        proxy.strike(&asked.token.to_string(), Fault::HoldRequest);
        asks(&rig, &asked).await;
        assert_eq!(proxy.strikes(), 1, "the first copy is held");
        lose_place(&rig, &asked).await;
        parked.rearm();
        // One copy is enough now, and it knows of the other.
        asks(&rig, &asked).await;
        if ends == "left" {
            let left = rig.store.leave(&asked.name, &asked.token, None).await;
            assert!(matches!(left, Ok(Leaving::Left(_))), "{left:?}");
        }
        let released = rig.store.release(&holder.name, &holder.token).await;
        released.unwrap();
        if ends == "released" {
            let news = parked.news().await;
            assert!(matches!(news, News::Granted(_)), "{news:?}");
            let released = rig.store.release(&asked.name, &asked.token).await;
            released.unwrap();
        }
        drop(parked);
        nothing_is_granted_when_it_arrives(&rig, &proxy, &asked).await;
    }
}

/// Hands a lock over to an attempt that waits at the first gateway, through the second one.
async fn hand_over(gates: &[TestGateway; 2], asked: &Attempt) {
    let [here, there] = gates;
    let lease = there.take(asked.name.as_str()).await;
    let parking = here.store.parking();
    let mut parked = parking.park(asked.name.clone(), asked.token);
    let queued = here.store.acquire(asked).await.unwrap();
    assert!(matches!(queued, Acquisition::Queued(_)), "{queued:?}");
    there.release(&lease).await;
    assert_eq!(parked.news().await, News::GrantedProvisionally);
}

#[tokio::test]
async fn a_lease_that_was_renewed_is_neither_longer_nor_shorter_when_its_attempt_is_late() {
    let server = RedisServer::start().await;
    let gates = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    let store = &gates[0].store;
    for late in ["confirms", "asks"] {
        let asked = waiting(attempt(late));
        hand_over(&gates, &asked).await;
        let confirmed = store.confirm(&asked.name, &asked.token).await;
        assert!(matches!(confirmed, Ok(Confirmation::Confirmed(_))));
        let renewed = store.renew(&asked.name, &asked.token, Some(ttl(3_600_000)));
        renewed.await.unwrap();
        let lock = format!("lg:{{{late}}}:lock");
        let before = server.text(&["GET", &lock]).await;
        // A copy of what it has sent before.
        let held = match late {
            "confirms" => match store.confirm(&asked.name, &asked.token).await {
                Ok(Confirmation::Confirmed(held)) => held,
                other => panic!("{other:?}"),
            },
            _ => granted(store.acquire(&asked).await),
        };
        assert!(held.expires_in > Duration::from_mins(59), "{held:?}");
        assert_eq!(server.text(&["GET", &lock]).await, before, "{late}");
        let left = server.integer(&["PTTL", &lock]).await;
        assert!((3_540_000..=3_600_000).contains(&left), "{late}: {left}");
    }
}

#[tokio::test]
async fn a_provisional_grant_gets_its_own_ttl_and_limit_once() {
    let server = RedisServer::start().await;
    let gates = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    let mut asked = waiting(attempt("own"));
    asked.ttl = ttl(40_000);
    asked.hold_limit = Some(limit(60_000));
    hand_over(&gates, &asked).await;
    let state = ["GETRANGE", "lg:{own}:lock", "65", "65"];
    let left = async || server.integer(&["PTTL", "lg:{own}:lock"]).await;
    assert_eq!(server.text(&state).await, "p");
    assert!(left().await <= 3_000, "it lasts until it is confirmed");
    let confirmed = gates[0].store.confirm(&asked.name, &asked.token).await;
    let Ok(Confirmation::Confirmed(held)) = confirmed else {
        panic!("{confirmed:?}");
    };
    assert_eq!(server.text(&state).await, "h");
    assert_eq!((held.ttl, held.held_for), (asked.ttl, Duration::ZERO));
    assert_eq!(held.hold_expires_in, Some(Duration::from_mins(1)));
    let first = left().await;
    assert!((30_000..=40_000).contains(&first), "{first}");
    let again = gates[0].store.confirm(&asked.name, &asked.token).await;
    assert!(matches!(again, Ok(Confirmation::Confirmed(_))), "{again:?}");
    assert!(left().await <= first, "it does not begin anew");
}

#[tokio::test]
async fn a_confirmation_does_not_touch_a_lease_that_a_newer_request_keeps() {
    let server = RedisServer::start().await;
    let gates = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    let [older, newer] = ["k"; 2].map(|key| waiting(keyed("kept", key)));
    hand_over(&gates, &older).await;
    let collected = gates[1].store.acquire(&newer).await.unwrap();
    assert!(
        matches!(collected, Acquisition::Collected(..)),
        "{collected:?}"
    );
    let before = server.text(&["GET", "lg:{kept}:lock"]).await;
    let confirmed = gates[0].store.confirm(&older.name, &older.token).await;
    assert_eq!(confirmed, Ok(Confirmation::Superseded));
    assert_eq!(server.text(&["GET", "lg:{kept}:lock"]).await, before);
}
