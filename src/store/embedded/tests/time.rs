//! The passing of time: while the store runs, while it is closed, and over a reboot.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use super::{
    disk::Fault,
    rig::{
        Rig, attempt, cooling, key, keyed, limited, patient, told_of_its_grant, ttl, until, with,
    },
};
use crate::{
    clock::{Clock, ManualClock},
    lock::{Ends, HeldLease, Reason, Reservation},
    store::{
        Store,
        contract::{Acquisition, Attempt, Holder, Release, Renewal},
        embedded::state::Moment,
    },
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_restart_keeps_exactly_what_was_left() {
    let mut rig = Rig::start();
    rig.granted(&attempt("lock", 30_000)).await;
    rig.clock.advance(7 * SECOND);
    rig.close().await;
    rig.clock.advance(5 * SECOND);
    rig.open().unwrap();
    assert_eq!(rig.left("lock").await, 18 * SECOND);
    rig.clock
        .advance((18 * SECOND).saturating_sub(Duration::from_micros(1)));
    assert!(!rig.is_free("lock").await);
    rig.clock.advance(Duration::from_micros(1));
    assert!(rig.is_free("lock").await);
    // A lease also ends while the store is closed.
    rig.granted(&attempt("lock", 30_000)).await;
    rig.close().await;
    rig.clock.advance(30 * SECOND);
    rig.open().unwrap();
    assert!(rig.is_free("lock").await);
}

#[tokio::test]
async fn a_step_of_the_wall_clock_changes_nothing() {
    let mut rig = Rig::start();
    rig.granted(&attempt("lock", 30_000)).await;
    for step in [3_600, 0] {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(step);
        rig.clock.step_wall(wall);
        rig.restart().await;
        assert_eq!(rig.left("lock").await, 30 * SECOND);
    }
}

#[tokio::test]
async fn a_reboot_gives_the_full_ttl_again() {
    let mut rig = Rig::start();
    rig.granted(&attempt("lock", 30_000)).await;
    rig.clock.advance(20 * SECOND);
    rig.close().await;
    rig.clock.reboot();
    rig.open().unwrap();
    assert_eq!(rig.left("lock").await, 30 * SECOND);
    // A later restart in the new boot extends nothing.
    rig.clock.advance(SECOND);
    rig.restart().await;
    assert_eq!(rig.left("lock").await, 29 * SECOND);
}

#[tokio::test]
async fn a_reboot_gives_no_more_than_the_hold_limit_left() {
    let mut rig = Rig::start();
    let first = limited("lock", 30_000, 50_000);
    rig.granted(&first).await;
    rig.clock.advance(25 * SECOND);
    let renewal = rig.store().renew(&first.name, &first.token, None).await;
    assert!(matches!(renewal, Ok(Renewal::Renewed(..))), "{renewal:?}");
    rig.close().await;
    rig.clock.reboot();
    rig.clock.advance(3 * SECOND);
    rig.open().unwrap();
    assert_eq!(rig.left("lock").await, 25 * SECOND);
    let again = rig
        .store()
        .renew(&first.name, &first.token, Some(ttl(60_000)));
    let Ok(Renewal::Renewed(held, _)) = again.await else {
        panic!("it lives")
    };
    assert_eq!(held.expires_in, 25 * SECOND);
    assert_eq!(held.held_for, 25 * SECOND);
}

#[tokio::test]
async fn a_reservation_ends_at_its_wall_time_even_after_a_reboot() {
    let mut rig = Rig::start();
    let until = rig.clock.wall() + 90 * SECOND;
    let first = reserving(until, attempt("lock", 30_000));
    rig.granted(&first).await;
    assert_eq!(rig.left("lock").await, 90 * SECOND);
    rig.clock.advance(20 * SECOND);
    rig.restart().await;
    assert_eq!(rig.left("lock").await, 70 * SECOND);
    rig.close().await;
    rig.clock.reboot();
    // The machine was down for half a minute.
    rig.clock.step_wall(until - 40 * SECOND);
    rig.open().unwrap();
    assert_eq!(rig.left("lock").await, 40 * SECOND);
    let renewal = rig.store().renew(&first.name, &first.token, None).await;
    assert!(matches!(renewal, Ok(Renewal::Renewed(..))), "{renewal:?}");
    assert_eq!(rig.left("lock").await, 40 * SECOND);
    rig.close().await;
    rig.clock.reboot();
    rig.clock.step_wall(until);
    rig.open().unwrap();
    assert!(rig.is_free("lock").await);
}

fn reserving(until: SystemTime, asked: Attempt) -> Attempt {
    let until_ms = until.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let reservation = Reservation {
        until_ms: until_ms.as_millis().try_into().unwrap(),
        reason: Reason::new("load test").unwrap(),
        by: None,
    };
    with(asked, |it| it.ends = Ends::At(Box::new(reservation)))
}

async fn shown(rig: &Rig, lock: &str) -> HeldLease {
    match rig.shown(lock).await.holder {
        Some(Holder::Lease(held)) => held,
        other => panic!("not held: {other:?}"),
    }
}

/// Asserts that a reservation ends at its time, whatever an answer shows.
fn assert_ends_in(left: Duration, held: &HeldLease) {
    assert_eq!(
        (held.expires_in, held.hold_expires_in),
        (left, Some(left)),
        "{held:?}"
    );
}

#[tokio::test]
async fn a_reservation_follows_the_wall_clock_wherever_it_is_set() {
    const HOUR: Duration = Duration::from_hours(1);
    for stays in [
        "runs on",
        "is closed",
        "is closed over a reboot",
        "loses power",
    ] {
        let mut rig = Rig::start();
        let began = rig.clock.wall();
        let until = began + 10 * HOUR;
        let first = reserving(until, attempt("lock", 30_000));
        rig.granted(&first).await;
        let ordinary = attempt("ordinary", 86_400_000);
        rig.granted(&ordinary).await;
        for wall in [began + 2 * HOUR, began - 30 * HOUR, began + 7 * HOUR] {
            match stays {
                "runs on" => rig.clock.step_wall(wall),
                "loses power" => {
                    rig.clock.step_wall(wall);
                    rig.lose_power().await;
                }
                _ => {
                    rig.close().await;
                    if stays != "is closed" {
                        rig.clock.reboot();
                    }
                    rig.clock.step_wall(wall);
                    rig.open().unwrap();
                }
            }
            let left = until.duration_since(wall).unwrap();
            let store = rig.store();
            assert_ends_in(left, &shown(&rig, "lock").await);
            let renewal = store.renew(&first.name, &first.token, None).await;
            let Ok(Renewal::Renewed(held, _)) = renewal else {
                panic!("{stays}: {renewal:?}")
            };
            assert_ends_in(left, &held);
            assert_ends_in(left, &shown(&rig, "lock").await);
            assert_eq!(rig.left("ordinary").await, 24 * HOUR, "{stays}");
        }
        rig.clock.advance((3 * HOUR).saturating_sub(SECOND));
        assert!(!rig.is_free("lock").await, "{stays}");
        rig.clock.step_wall(until);
        assert!(rig.is_free("lock").await, "{stays}");
        // What has ended stays so.
        rig.clock.step_wall(began);
        assert!(rig.is_free("lock").await, "{stays}");
    }
}

#[tokio::test]
async fn a_reservation_that_waits_and_one_that_is_granted_follow_the_same_clock() {
    let rig = Rig::start();
    let until = rig.clock.wall() + 100 * SECOND;
    let first = attempt("lock", 30_000);
    rig.granted(&first).await;
    let second = patient(reserving(until, attempt("lock", 30_000)));
    let mut second_hears = rig.queued(&second).await;
    let third = patient(reserving(until + 50 * SECOND, attempt("lock", 30_000)));
    let mut third_hears = rig.queued(&third).await;
    rig.clock.step_wall(until - 40 * SECOND);
    rig.released(&first).await;
    assert_ends_in(40 * SECOND, &told_of_its_grant(&mut second_hears).await);
    // The machine's clock is set to after the end, and the writer notices that by itself.
    rig.clock.step_wall(until + SECOND);
    assert_ends_in(49 * SECOND, &told_of_its_grant(&mut third_hears).await);
}

#[tokio::test]
async fn a_failed_write_brings_no_reservation_back_with_its_former_end() {
    let rig = Rig::start();
    let until = rig.clock.wall() + 100 * SECOND;
    let first = reserving(until, attempt("lock", 30_000));
    rig.granted(&first).await;
    let (clock, state) = (Arc::clone(&rig.clock), Arc::clone(&rig.store().state));
    rig.disk.on_sync(move || {
        clock.step_wall(until - 70 * SECOND);
        // Meanwhile another caller looks at a lock. (The writer itself reads the state while it writes all rows anew.)
        if let Some(mut state) = state.try_write() {
            state.follow_wall(&*clock, Moment::now(&*clock));
        }
    });
    rig.disk.fail(Fault::SyncLoses(1));
    let released = rig.store().release(&first.name, &first.token).await;
    assert!(released.is_err(), "{released:?}");
    assert_ends_in(70 * SECOND, &shown(&rig, "lock").await);
}

#[tokio::test]
async fn a_rest_survives_restarts_and_ends_in_time_and_a_reboot_makes_it_no_shorter() {
    let mut rig = Rig::start();
    let first = cooling(20_000, attempt("lock", 30_000));
    let lease = rig.granted(&first).await;
    rig.clock.advance(5 * SECOND);
    let released = rig.store().release(&first.name, &first.token).await;
    assert!(matches!(released, Ok(Release::Released(_))), "{released:?}");
    assert_eq!(rig.left("lock").await, 15 * SECOND);
    rig.clock.advance(5 * SECOND);
    rig.restart().await;
    assert_eq!(rig.left("lock").await, 10 * SECOND);
    rig.close().await;
    rig.clock.reboot();
    rig.open().unwrap();
    assert_eq!(rig.left("lock").await, 10 * SECOND);
    rig.clock.advance(9 * SECOND);
    assert!(!rig.is_free("lock").await);
    rig.clock.advance(SECOND);
    assert!(rig.is_free("lock").await);
    let next = rig.granted(&attempt("lock", 30_000)).await;
    assert!(next.fence > lease.fence);
}

#[tokio::test]
async fn the_end_of_a_lease_is_remembered_until_a_minute_after_its_rest() {
    let rig = Rig::start();
    let first = cooling(300_000, keyed("lock", 300_000, key()));
    rig.granted(&first).await;
    let store = rig.store();
    for seconds in [0, 150, 149, 60] {
        rig.clock.advance(seconds * SECOND);
        let released = store.release(&first.name, &first.token).await;
        assert!(
            matches!(released, Ok(Release::Released(_))),
            "{seconds}: {released:?}"
        );
        let again = store.acquire(&first).await;
        assert_eq!(again, Ok(Acquisition::IdempotencyExpired), "{seconds}");
    }
    rig.clock.advance(2 * SECOND);
    rig.granted(&first).await;
}

#[tokio::test]
async fn a_reboot_does_not_bring_back_what_was_over() {
    let mut rig = Rig::start();
    rig.granted(&attempt("over", 10_000)).await;
    rig.clock.advance(11 * SECOND);
    // A record of any other command also stores the current time in the log.
    rig.granted(&attempt("other", 60_000)).await;
    rig.close().await;
    rig.clock.reboot();
    rig.open().unwrap();
    assert!(rig.is_free("over").await);
    assert!(!rig.is_free("other").await);
}

#[tokio::test]
async fn an_idle_store_tells_its_file_how_late_it_is() {
    let mut rig = Rig::start();
    rig.granted(&limited("lock", 30_000, 35_000)).await;
    let syncs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&syncs);
    rig.disk.on_sync(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    rig.clock.advance(20 * SECOND);
    let is_told = async || syncs.load(Ordering::SeqCst) > 0;
    until("the file is told", is_told).await;
    rig.lose_power().await;
    assert_eq!(rig.left("lock").await, 15 * SECOND);
}

#[tokio::test]
async fn a_clock_that_went_back_counts_as_a_reboot() {
    let mut rig = Rig::start();
    rig.clock.advance(100 * SECOND);
    rig.granted(&attempt("lock", 30_000)).await;
    rig.close().await;
    // The boot id is the same, and the time since boot is smaller: a container with a clock of its own.
    rig.clock = Arc::new(ManualClock::at(rig.clock.wall()));
    rig.open().unwrap();
    assert_eq!(rig.left("lock").await, 30 * SECOND);
}

#[tokio::test]
async fn fences_rise_whatever_the_wall_clock_says() {
    let mut rig = Rig::start();
    let mut last = rig.granted(&attempt("lock:0", 10_000)).await.fence;
    let epoch = SystemTime::UNIX_EPOCH;
    let walls = [
        0,
        1_000,
        1_700_000_000,
        1_900_000_000,
        1_800_000_000,
        9_999_999_999,
    ];
    for (turn, wall) in (1..).zip(walls) {
        rig.clock.step_wall(epoch + Duration::from_secs(wall));
        rig.restart().await;
        let fence = rig
            .granted(&attempt(&format!("lock:{turn}"), 10_000))
            .await
            .fence;
        assert!(fence > last, "{fence} after {last} at {wall}");
        last = fence;
    }
    // A plausible wall clock raises the fencing tokens; an implausible clock is ignored, so no numbers are
    // wasted.
    assert!(last.get() > 1_900_000_000_000_000);
    assert!(last.get() < 1_900_000_000_001_000);
}
