//! Orders: what a lock remembers over restarts and failures, and until when.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    config::OrderLimits,
    lock::OrderNumber,
    store::{
        Store,
        contract::{
            Acquisition, Attempt, GrantedOrder, OrderChange, OrderGrant, OrderSetting, Release,
            Releaser,
        },
        embedded::log::check_backup,
        parking::News,
    },
};

use super::{
    disk::Fault,
    rig::{
        LONG, Rig, attempt, key, keyed, name, news, order, ordered, patient, told_of_its_grant,
        until, with,
    },
};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_hours(24);

/// A store that remembers the orders of two locks for thirty days.
async fn start() -> Rig {
    let mut rig = Rig::start();
    rig.orders = OrderLimits {
        keep_ms: 30 * 86_400_000,
        most: 2,
    };
    rig.restart().await;
    rig
}

/// Acquires the lock with an order, and releases it.
async fn deploy(rig: &Rig, lock: &str, number: u64) {
    let attempt = ordered(number, attempt(lock, LONG));
    rig.granted(&attempt).await;
    rig.released(&attempt).await;
}

async fn outdated(rig: &Rig, attempt: &Attempt) -> GrantedOrder {
    match rig.store().acquire(attempt).await {
        Ok(Acquisition::OutdatedOrder(granted)) => granted,
        other => panic!("not outdated: {other:?}"),
    }
}

async fn remembered(rig: &Rig, lock: &str) -> Option<u64> {
    let shown = rig.shown(lock).await.granted_order;
    shown.map(|order| order.number.get())
}

async fn set(rig: &Rig, lock: &str, seen: Option<u64>, new: Option<u64>) -> OrderSetting {
    let number = |it: Option<u64>| it.map(|it| OrderNumber::new(it).unwrap());
    let (seen, new) = (number(seen), number(new));
    let change = OrderChange { seen, new };
    rig.store().set_order(&name(lock), change).await.unwrap()
}

#[tokio::test]
async fn an_order_is_remembered_over_restarts_reboots_and_a_loss_of_power() {
    let mut rig = start().await;
    let asked = with(ordered(7, attempt("lock", LONG)), |it| {
        it.said.order = order(7, Some("ci"), None);
        it.said.owner = Some(crate::lock::Owner::new("run 7").unwrap());
    });
    rig.granted(&asked).await;
    rig.released(&asked).await;
    for (then, ago) in [
        ("nothing", 3),
        ("restart", 6),
        ("power", 9),
        ("reboot", 112),
    ] {
        rig.clock.advance(3 * SECOND);
        match then {
            "nothing" => {}
            "restart" => rig.restart().await,
            "power" => rig.lose_power().await,
            _ => {
                // The machine was down for a hundred seconds.
                let wall = crate::clock::Clock::wall(&*rig.clock);
                rig.close().await;
                rig.clock.reboot();
                rig.clock.step_wall(wall + 100 * SECOND);
                rig.open().unwrap();
            }
        }
        let expected = GrantedOrder {
            number: OrderNumber::new(7).unwrap(),
            grant: Some(Box::new(OrderGrant {
                ago: ago * SECOND,
                by: Some("ci".into()),
                owner: asked.terms.said.owner.clone(),
            })),
        };
        assert_eq!(
            rig.shown("lock").await.granted_order.as_ref(),
            Some(&expected),
            "{then}"
        );
        let refused = outdated(&rig, &ordered(6, attempt("lock", LONG))).await;
        assert_eq!(refused, expected, "{then}");
    }
    deploy(&rig, "lock", 7).await;
}

#[tokio::test]
async fn an_order_is_in_each_new_file_of_the_log_and_in_a_backup() {
    let mut rig = start().await;
    deploy(&rig, "lock", 7).await;
    deploy(&rig, "lock", 8).await;
    let backup = rig.store().backup().await.unwrap();
    assert_eq!(check_backup(&backup.bytes).unwrap(), 0);
    rig.clock.advance(SECOND);
    let restored = rig.restored(&backup.bytes).unwrap();
    assert_eq!(remembered(&restored, "lock").await, Some(8));
    // Each start begins a new file with all rows.
    for _ in 0..2 {
        rig.restart().await;
        assert_eq!(remembered(&rig, "lock").await, Some(8));
    }
}

#[tokio::test]
async fn an_order_is_forgotten_in_memory_and_in_the_log_when_its_time_is_over() {
    let mut rig = start().await;
    deploy(&rig, "lock", 7).await;
    rig.clock.advance((30 * DAY).saturating_sub(SECOND));
    rig.restart().await;
    assert_eq!(remembered(&rig, "lock").await, Some(7));
    // The time begins again with each grant that has an order.
    deploy(&rig, "lock", 7).await;
    rig.clock.advance((30 * DAY).saturating_sub(SECOND));
    outdated(&rig, &ordered(6, attempt("lock", LONG))).await;
    rig.clock.advance(SECOND);
    assert_eq!(remembered(&rig, "lock").await, None);
    until("nothing is left", async || rig.remembered() == 0).await;
    rig.restart().await;
    assert_eq!(rig.remembered(), 0);
    deploy(&rig, "lock", 6).await;
    assert_eq!(remembered(&rig, "lock").await, Some(6));
}

#[tokio::test]
async fn no_more_locks_have_an_order_than_may() {
    let mut rig = start().await;
    deploy(&rig, "one", 1).await;
    rig.clock.advance(SECOND);
    deploy(&rig, "two", 1).await;
    for restarts in [false, true] {
        if restarts {
            rig.restart().await;
        }
        for asked in [attempt("three", LONG), patient(attempt("three", LONG))] {
            let answer = rig.store().acquire(&ordered(1, asked)).await;
            assert_eq!(answer, Ok(Acquisition::TooManyOrders));
        }
        deploy(&rig, "one", 2).await;
        let rollback = with(attempt("three", LONG), |it| {
            it.said.order = order(1, None, Some("why"));
        });
        rig.granted(&rollback).await;
        rig.released(&rollback).await;
    }
    // Orders whose time is over do not count, cleared away or not.
    rig.clock.advance((30 * DAY).saturating_sub(SECOND));
    deploy(&rig, "two", 1).await;
    rig.clock.advance(SECOND);
    deploy(&rig, "three", 1).await;
    assert_eq!(set(&rig, "two", Some(1), None).await, OrderSetting::Set);
    deploy(&rig, "four", 1).await;
}

#[tokio::test]
async fn a_failed_write_of_a_grant_or_of_a_change_leaves_what_was_remembered() {
    let rig = start().await;
    deploy(&rig, "lock", 7).await;
    let before = rig.shown("lock").await.granted_order;
    rig.disk.fail(Fault::SyncLoses(1));
    let acquired = rig
        .store()
        .acquire(&ordered(8, attempt("lock", LONG)))
        .await;
    assert!(acquired.is_err(), "{acquired:?}");
    rig.writes_again().await;
    assert_eq!(rig.shown("lock").await.granted_order, before);
    rig.disk.fail(Fault::SyncLoses(1));
    let change = OrderChange {
        seen: OrderNumber::new(7).ok(),
        new: None,
    };
    let set = rig.store().set_order(&name("lock"), change).await;
    assert!(set.is_err(), "{set:?}");
    rig.writes_again().await;
    assert_eq!(rig.shown("lock").await.granted_order, before);
    outdated(&rig, &ordered(6, attempt("lock", LONG))).await;
}

#[tokio::test]
async fn an_order_that_was_set_is_remembered_after_a_loss_of_power() {
    let mut rig = start().await;
    deploy(&rig, "lock", 7).await;
    for (seen, new) in [(Some(7), Some(3)), (Some(3), None), (None, Some(4))] {
        assert_eq!(set(&rig, "lock", seen, new).await, OrderSetting::Set);
        rig.lose_power().await;
        let granted_order = new.map(|number| GrantedOrder {
            number: OrderNumber::new(number).unwrap(),
            grant: None,
        });
        assert_eq!(rig.shown("lock").await.granted_order, granted_order);
    }
}

#[tokio::test]
async fn a_lease_that_was_not_used_forgets_its_order_even_after_a_restart() {
    let mut rig = start().await;
    deploy(&rig, "lock", 7).await;
    let unused = ordered(9, attempt("lock", LONG));
    rig.granted(&unused).await;
    rig.restart().await;
    assert_eq!(remembered(&rig, "lock").await, Some(9));
    let release = rig
        .store()
        .release_as(Releaser::Unused, &unused.name, &unused.token, true);
    let release = release.await;
    assert!(matches!(release, Ok(Release::Released(_))), "{release:?}");
    let expected = GrantedOrder {
        number: OrderNumber::new(7).unwrap(),
        grant: None,
    };
    assert_eq!(rig.shown("lock").await.granted_order, Some(expected));
    deploy(&rig, "lock", 8).await;
}

/// The waiter is not there any more when the news of its grant should be delivered.
#[tokio::test]
async fn a_grant_that_is_not_delivered_forgets_its_order() {
    let rig = start().await;
    let holder = ordered(1, attempt("lock", LONG));
    rig.granted(&holder).await;
    let gone = rig
        .queued(&patient(ordered(9, attempt("lock", LONG))))
        .await;
    let mut next = rig
        .queued(&patient(ordered(8, attempt("lock", LONG))))
        .await;
    // The waiter hangs up after it was granted the lock, before the grant is durable.
    let gone = Mutex::new(Some(gone));
    rig.disk.on_sync(move || drop(gone.lock().take()));
    rig.released(&holder).await;
    told_of_its_grant(&mut next).await;
    assert_eq!(remembered(&rig, "lock").await, Some(8));
}

#[tokio::test]
async fn a_kept_position_that_is_granted_counts_when_it_is_collected_even_after_a_restart() {
    for collected in [true, false] {
        let mut rig = start().await;
        let holder = ordered(1, attempt("lock", LONG));
        rig.granted(&holder).await;
        let hash = key();
        let kept = patient(ordered(5, keyed("lock", LONG, hash)));
        drop(rig.queued(&kept).await);
        let left = rig
            .store()
            .leave(&kept.name, &kept.token, Some(60 * SECOND));
        left.await.unwrap();
        rig.released(&holder).await;
        rig.restart().await;
        assert_eq!(remembered(&rig, "lock").await, Some(1));
        let again = Attempt {
            token: attempt("lock", LONG).token,
            ..kept
        };
        if collected {
            let answer = rig.store().acquire(&again).await;
            assert!(
                matches!(answer, Ok(Acquisition::Collected(..))),
                "{answer:?}"
            );
            assert_eq!(remembered(&rig, "lock").await, Some(5));
        } else {
            set(&rig, "lock", Some(1), Some(6)).await;
            outdated(&rig, &again).await;
            assert!(rig.is_free("lock").await);
            assert_eq!(remembered(&rig, "lock").await, Some(6));
        }
    }
}

#[tokio::test]
async fn waiters_that_are_outdated_leave_at_the_hand_off_and_hear_of_it() {
    let rig = start().await;
    let holder = ordered(7, attempt("lock", LONG));
    let lease = rig.granted(&holder).await;
    let mut places = Vec::new();
    for number in [3, 4, 9] {
        set(&rig, "lock", Some(7), Some(number)).await;
        set(&rig, "lock", None, None).await;
        let waiter = patient(ordered(number, attempt("lock", LONG)));
        places.push(rig.queued(&waiter).await);
        set(&rig, "lock", Some(number), Some(7)).await;
    }
    rig.released(&holder).await;
    for place in &mut places[..2] {
        assert_eq!(news(place).await, News::Forgotten);
    }
    let next = told_of_its_grant(&mut places[2]).await;
    assert_eq!(
        next.fence.get(),
        lease.fence.get() + 1,
        "none was drawn for the others"
    );
}

#[tokio::test]
async fn a_store_that_remembers_only_orders_writes_seldom() {
    let rig = start().await;
    deploy(&rig, "lock", 7).await;
    assert_eq!(rig.remembered(), 1);
    let syncs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&syncs);
    rig.disk.on_sync(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    rig.clock.advance(Duration::from_mins(59));
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(syncs.load(Ordering::SeqCst), 0);
    rig.clock.advance(Duration::from_mins(1));
    until("the file is told", async || {
        syncs.load(Ordering::SeqCst) > 0
    })
    .await;
}
