//! An acquire that arrives late, of an attempt that had lost its place in the queue meanwhile.
//!
//! That it was sent again is known to the queue by the attempt's place. Without that knowledge it would be
//! granted the lock when it arrives, and nobody would know the token.

use latchgate::store::{
    Store,
    contract::{Acquisition, Attempt, Leaving},
    parking::News,
};

use super::gate::waiting;
use crate::{
    redis::{
        expected,
        rig::{Rig, attempt, eventually, runs, write_down_everything},
    },
    support::{Fault, Proxy},
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

#[tokio::test]
async fn one_that_was_renewed_is_not_made_longer_by_a_late_confirmation() {
    let rig = Rig::start().await;
    let (holder, asked) = (attempt("renewed"), waiting(attempt("renewed")));
    rig.grant(&holder).await;
    let parking = rig.store.parking();
    let _place = parking.park(asked.name.clone(), asked.token);
    asks(&rig, &asked).await;
    let released = rig.store.release(&holder.name, &holder.token).await;
    released.unwrap();
    let state = ["GETRANGE", "lg:{renewed}:lock", "65", "65"];
    assert_eq!(rig.server.text(&state).await, "u");
    let renewed = rig.store.renew(&asked.name, &asked.token, None).await;
    renewed.unwrap();
    // Confirmed or asked again, it stays as it is.
    assert_eq!(rig.server.text(&state).await, "h");
}
