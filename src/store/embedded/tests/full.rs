//! A full disk: holders renew and release their leases, and no lock is acquired.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::sleep;

use crate::{
    lock::{Reason, ReleaseRequest},
    store::{
        Store, StoreError, Unavailability,
        contract::{Acquisition, Attempt, Health, Requesting},
    },
};

use super::{
    disk::Fault,
    rig::{LONG, Rig, attempt, patient, reader, told_of_its_grant, until, waiting},
    stall::Gate,
};

/// Acquires locks until the disk stays full, whatever the store clears away.
async fn fill(rig: &Rig) -> Vec<Attempt> {
    let (mut held, mut refused) = (Vec::new(), 0);
    while refused < 80 {
        let asked = attempt(&format!("held:{}", held.len()), LONG);
        let outcome = rig.store().acquire(&asked).await;
        if let Ok(Acquisition::Granted(_)) = outcome {
            held.push(asked);
            refused = 0;
        } else {
            assert!(is_full(&outcome), "{outcome:?}");
            refused += 1;
            // All pauses together are longer than the time until the store checks for room again.
            sleep(Duration::from_millis(10)).await;
        }
        assert!(held.len() < 1_000, "it is never full");
    }
    held
}

fn is_full<T>(outcome: &Result<T, StoreError>) -> bool {
    let Err(StoreError::Unavailable(Unavailability::DiskFull(why))) = outcome else {
        return false;
    };
    why.contains("renewed and released")
}

#[tokio::test]
async fn who_holds_a_lock_renews_and_releases_it_on_a_full_disk_for_as_long_as_it_takes() {
    for capacity in (44 * 1024..80 * 1024).step_by(9 * 1024) {
        let mut rig = Rig::start();
        rig.disk.fail(Fault::Capacity(capacity));
        let mut held = fill(&rig).await;
        assert!(held.len() > 20, "{capacity}: {}", held.len());
        // The log is filled from start to end many times.
        for round in 0..30 {
            for lease in &held {
                rig.renewed(lease).await;
            }
            let refused = rig.store().acquire(&attempt("wanted", LONG)).await;
            assert!(is_full(&refused), "{capacity}, round {round}: {refused:?}");
        }
        let used = rig.disk.used();
        assert!(used <= capacity, "{used} of {capacity}");
        assert!(matches!(rig.health().await, Health::Outage(why) if why.contains("full")));

        // Every answered release survives a loss of power.
        let released = held.split_off(held.len() / 2);
        for lease in released.iter().take(3) {
            rig.released(lease).await;
        }
        rig.lose_power().await;
        for (number, lease) in held.iter().chain(&released).enumerate() {
            let is_free = rig.is_free(lease.name.as_str()).await;
            let is_released = (held.len()..held.len() + 3).contains(&number);
            assert_eq!(is_free, is_released, "{capacity}: {number}");
        }
        rig.disk.fail(Fault::None);
        rig.writes_again().await;
    }
}

#[tokio::test]
async fn a_holder_is_asked_to_release_on_a_full_disk_while_renewals_have_room_beside() {
    let mut rig = Rig::start();
    rig.disk.fail(Fault::Capacity(128 * 1024));
    let held = fill(&rig).await;
    let request = ReleaseRequest {
        by: Some("k".repeat(64).into()),
        reason: Reason::new(&"ä".repeat(Reason::MAX_CHARS)).unwrap(),
        within: Duration::from_mins(10),
    };
    let (mut asked, mut refused) = (0, 0);
    for lease in &held {
        let store = rig.store();
        match store.request_release(&lease.name, None, &request).await {
            Ok(Requesting::Requested(_)) => asked += 1,
            full if is_full(&full) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(asked > 0 && refused > 0, "{asked}, {refused}");
    for lease in held.iter().cycle().take(3 * held.len()) {
        rig.renewed(lease).await;
    }
    rig.lose_power().await;
    for lease in &held {
        rig.released(lease).await;
    }
}

#[tokio::test]
async fn space_that_is_freed_is_used_again() {
    let rig = Rig::start();
    rig.disk.fail(Fault::Capacity(48 * 1024));
    let held = fill(&rig).await;
    // The releases free space: old rows are not kept.
    for lease in &held {
        rig.released(lease).await;
    }
    rig.writes_again().await;
    let again = fill(&rig).await;
    assert!(again.len() * 2 > held.len(), "{} again", again.len());
    // Another program frees space.
    rig.disk.fail(Fault::Capacity(96 * 1024));
    rig.writes_again().await;
    assert_eq!(rig.health().await, Health::Passing);
}

#[tokio::test]
async fn a_lock_that_is_released_on_a_full_disk_passes_to_who_waits_for_it() {
    let rig = Rig::start();
    let first = attempt("wanted", LONG);
    rig.granted(&first).await;
    let mut place = rig.queued(&waiting("wanted")).await;
    rig.disk.fail(Fault::Capacity(48 * 1024));
    fill(&rig).await;
    rig.released(&first).await;
    told_of_its_grant(&mut place).await;
}

#[tokio::test]
async fn of_those_who_stand_together_no_more_are_granted_a_lock_than_gave_one_back_until_there_is_room()
 {
    let rig = Rig::start();
    let alone = attempt("wanted", LONG);
    rig.granted(&alone).await;
    let readers: Vec<_> = (0..5).map(|_| patient(reader("wanted", LONG))).collect();
    let mut places = Vec::new();
    for reader in &readers {
        places.push(rig.queued(reader).await);
    }
    rig.disk.fail(Fault::Capacity(48 * 1024));
    let held = fill(&rig).await;
    for (turn, gone) in [&alone, &readers[0], &readers[1]].into_iter().enumerate() {
        rig.released(gone).await;
        told_of_its_grant(&mut places[turn]).await;
        for place in &mut places[turn + 1..] {
            assert_eq!(place.try_news(), None, "turn {turn}");
        }
        let shown = rig.shown("wanted").await;
        let count = shown.holder.map(|holder| holder.count());
        assert_eq!((count, shown.waiters), (Some(1), 4 - turn as u64));
    }
    // The leases that share the lock can be renewed, too.
    rig.renewed(&readers[2]).await;
    // Another program frees space.
    rig.disk.fail(Fault::None);
    for place in &mut places[3..] {
        told_of_its_grant(place).await;
    }
    for lease in &held {
        assert!(!rig.is_free(lease.name.as_str()).await);
    }
}

#[tokio::test]
async fn a_process_that_is_killed_at_any_step_on_a_full_disk_starts_again_on_it() {
    let mut rig = Rig::start();
    rig.disk.fail(Fault::Capacity(48 * 1024));
    let held = fill(&rig).await;
    // Other programs use all the remaining space of the disk.
    let capacity = rig.disk.used();
    // Enough steps to fill a file and more. A step is a write, a sync or a change of the directory.
    for steps in 1..200 {
        rig.disk.fail(Fault::CapacityThenDies(capacity, steps));
        let mut turn = 0;
        while rig.disk.fault() != Fault::Dead {
            let Attempt { name, token, .. } = &held[turn % held.len()];
            rig.clock.advance(Duration::from_millis(1));
            let renewed = rig.store().renew(name, token, None).await;
            turn += 1;
            assert!(turn < 10_000, "{steps}: {renewed:?}");
        }
        rig.kill_on(Fault::Capacity(capacity)).await;
        for lease in &held {
            rig.renewed(lease).await;
        }
    }
    rig.disk.fail(Fault::None);
    rig.writes_again().await;
}

#[tokio::test]
async fn what_lives_and_what_is_kept_for_a_full_disk_is_written_in_pieces() {
    let rig = Rig::start();
    let held = rig.hold(400).await;
    let live = usize::try_from(rig.store().state.read().live_bytes()).unwrap();
    // The renewals fill several files.
    for lease in held.iter().cycle().take(2_000) {
        rig.renewed(lease).await;
    }
    let (fill, sync) = rig.disk.longest_fill_and_sync();
    assert!(fill <= 16 * 1024, "{fill} bytes at once");
    // No renewal waits until all rows are copied into the next file.
    assert!(sync <= 24 * 1024, "{sync} bytes in one sync");
    // The reserve and the file reach their full length soon while no command arrives.
    let kept = || rig.disk.newest().len().min(rig.disk.kept());
    until("it is there", async || kept() >= 2 * live).await;
    assert!(live > 30_000, "{live} bytes are too few for the test");
}

#[tokio::test]
async fn a_disk_that_fills_up_while_a_file_is_made_still_renews() {
    // The disk fills up at any time in the life of a file, also while the next file is being made.
    for step in (0..120).step_by(3) {
        let rig = Rig::start();
        let held = rig.hold(60).await;
        for lease in held.iter().cycle().take(step) {
            rig.renewed(lease).await;
        }
        rig.disk.fail(Fault::Capacity(rig.disk.used()));
        for lease in held.iter().cycle().take(300) {
            rig.renewed(lease).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_acquires_a_lock_once_the_log_goes_on_in_the_space_that_was_kept() {
    let rig = Rig::start();
    let held = rig.hold(60).await;
    // The file has room until the next file is due, and the disk has no room for the next file.
    let kept = || rig.disk.newest().len().min(rig.disk.kept());
    until("space is kept", async || kept() >= 20 * 1024).await;
    rig.disk.fail(Fault::Capacity(rig.disk.used()));
    let gate = Gate::close_when(&rig, |disk| disk.kept() == 0);
    let nothing = attempt("nothing", LONG);
    let wanted = attempt("wanted", LONG);
    for lease in held.iter().cycle().take(1_000) {
        rig.renewed(lease).await;
        // This release changes nothing. It is answered after the writer has finished the work that follows the
        // renewal.
        tokio::select! {
            biased;
            release = rig.store().release(&nothing.name, &nothing.token) => {
                release.unwrap();
            }
            () = gate.wait() => {
                let mut acquire = std::pin::pin!(rig.store().acquire(&wanted));
                let answered = acquire.as_mut().now_or_never();
                assert!(answered.is_none(), "the writer stands still");
                gate.open();
                let refused = acquire.await;
                assert!(is_full(&refused), "{refused:?}");
                return;
            }
        }
    }
    panic!("no file was ever due");
}
