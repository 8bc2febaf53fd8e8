//! The log: files replace each other, a damaged log is refused, and a torn record is dropped.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use tempfile::TempDir;

use crate::{
    clock::SystemClock,
    config::OrderLimits,
    lock::{FencingToken, LockName, Mode},
    store::{
        Store,
        contract::{Acquisition, Health},
        embedded::{
            EmbeddedStore,
            log::{Contents, Directory, Log, LogEnd, LogError, Volume, fuzzed_row},
            records::{Meta, Rows},
            state::{Lease, Moment, State, WallClock},
        },
        parking::Parking,
    },
};

use super::{
    disk::{Disk, Fault},
    rig::{LONG, Rig, attempt, key, keyed, name},
};

/// The fencing token of each lease in a log, by the name of the lock.
type Held = Vec<(LockName, u64)>;

/// Makes a log with three records, each with the lease of one lock.
fn three_records() -> (Disk, Log, Vec<usize>) {
    let disk = Disk::default();
    let mut log = begin(&disk);
    let mut ends = vec![used(&disk.newest())];
    for number in 1..=3 {
        log.append(&meta(number), &row(number)).unwrap();
        ends.push(used(&disk.newest()));
    }
    (disk, log, ends)
}

/// Begins a new log on an empty disk.
fn begin(disk: &Disk) -> Log {
    let disk = Box::new(disk.clone());
    Log::begin(disk, LogEnd::default(), &meta(0), &State::default()).unwrap()
}

/// One lease for each of these lock numbers.
fn leases(numbers: RangeInclusive<u64>) -> impl Iterator<Item = (LockName, Lease)> {
    numbers.map(|number| {
        let asked = attempt(&format!("lock:{number}"), LONG);
        let fence = FencingToken::new(number).unwrap();
        let lease = Lease::grant(
            &asked,
            Mode::Exclusive,
            fence,
            Moment::from_micros(1),
            WallClock::default(),
        );
        (asked.name, lease)
    })
}

fn state_of(numbers: RangeInclusive<u64>) -> State {
    State::new(leases(numbers).collect(), vec![], 0, Parking::default())
}

/// Reads the log on the disk: its contents, and whether only zeros follow the last record.
fn read(disk: &Disk) -> Result<(Contents, bool), LogError> {
    match Log::read(disk) {
        Ok(read) => {
            let (contents, end) = read.expect("there is a log");
            Ok((contents, !end.is_torn))
        }
        Err(unreadable) => Err(unreadable.error),
    }
}

fn meta(rows: u64) -> Meta {
    Meta {
        fence: rows,
        boot: crate::clock::BootId::new("boot"),
        written_at: Moment::from_micros(1),
        rows,
    }
}

fn row(number: u64) -> Rows {
    rows(number..=number)
}

fn rows(numbers: RangeInclusive<u64>) -> Rows {
    let mut rows = Rows::default();
    for (name, lease) in leases(numbers) {
        rows.lease(&name, None, Some(&lease));
    }
    rows
}

fn held(contents: &Contents) -> Held {
    let mut held: Held = contents
        .leases
        .iter()
        .map(|(name, lease)| (name.clone(), lease.fence.get()))
        .collect();
    held.sort();
    held
}

fn locks(count: u64) -> Held {
    let mut locks: Held = (1..=count)
        .map(|number| (name(&format!("lock:{number}")), number))
        .collect();
    locks.sort();
    locks
}

/// The offset at which the last record of a log ends.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1
}

#[test]
fn what_was_written_is_read() {
    let (disk, mut log, _ends) = three_records();
    let (contents, clean) = read(&disk).unwrap();
    assert!(clean);
    assert_eq!(held(&contents), locks(3));
    assert_eq!(contents.meta, meta(3));
    let mut gone = Rows::default();
    gone.lease(&name("lock:3"), None, None);
    log.append(&meta(2), &gone).unwrap();
    assert_eq!(held(&read(&disk).unwrap().0), locks(2));
    // The rows are too many for one record.
    log.rewrite(&meta(5_000), &state_of(1..=5_000)).unwrap();
    assert_eq!(held(&read(&disk).unwrap().0), locks(5_000));
    log.rewrite(&meta(5), &state_of(1..=5)).unwrap();
    log.append(&meta(6), &row(6)).unwrap();
    assert_eq!(held(&read(&disk).unwrap().0), locks(6));
}

#[test]
fn a_record_that_is_torn_is_given_up_and_one_that_others_follow_is_refused() {
    let (disk, _log, ends) = three_records();
    let sound = disk.newest();
    for at in 0..ends[3] {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = sound.clone();
            damaged[at] ^= flip;
            disk.overwrite_newest(&damaged);
            match read(&disk) {
                Ok((contents, clean)) => {
                    assert!(!clean, "byte {at} was changed, and nobody is told");
                    assert!(at >= ends[2], "byte {at}: more than the last was given up");
                    assert_eq!(held(&contents), locks(2), "byte {at}");
                }
                Err(LogError::Damaged(_) | LogError::NoLog | LogError::Layout(_)) => {
                    // Salt and length of the last record are in one sector, so no write is torn there.
                    assert!(at < ends[2] + 8, "byte {at}");
                }
                Err(LogError::CutShort) => {}
                Err(other) => panic!("byte {at}: {other}"),
            }
        }
    }
}

#[test]
fn what_no_unfinished_write_can_have_left_is_refused() {
    let (disk, _log, ends) = three_records();
    let sound = disk.newest();
    let noise = |len: usize| (0..len).map(|at| u8::try_from(at * 7 % 251).unwrap() | 1);
    // The noise begins at each byte of the last two records, and ends behind the last record.
    for from in ends[1]..ends[3] {
        for to in [ends[3], ends[3] + 8, sound.len()] {
            let mut damaged = sound.clone();
            damaged.splice(from..to, noise(to - from));
            disk.overwrite_newest(&damaged);
            match read(&disk) {
                // Only a part of the last record can be missing after a torn write.
                Ok((contents, clean)) => {
                    assert!(
                        from >= ends[2] + 8 && to == ends[3] && !clean,
                        "{from}..{to}"
                    );
                    assert_eq!(held(&contents), locks(2), "{from}..{to}");
                }
                Err(LogError::Damaged(_)) => {}
                // The noise has made a length longer than the file.
                Err(LogError::CutShort) => {
                    let lengths = [ends[1] + 4..ends[1] + 8, ends[2] + 4..ends[2] + 8];
                    assert!(lengths.iter().any(|it| it.contains(&from)), "{from}..{to}");
                }
                Err(other) => panic!("{from}..{to}: {other}"),
            }
        }
    }
}

#[test]
fn a_log_that_was_closed_in_good_order_has_lost_nothing_or_is_refused() {
    let (disk, log, ends) = three_records();
    log.close().unwrap();
    let sound = disk.newest();
    for at in 0..sound.len() {
        let mut changed = [sound.clone(), sound.clone(), sound.clone()];
        changed[0][at] = 0;
        changed[1][at..(at + 512).min(sound.len())].fill(0);
        changed[2][at] ^= 0x80;
        for (kind, damaged) in changed.iter().enumerate() {
            disk.overwrite_newest(damaged);
            match read(&disk) {
                Ok((contents, _clean)) => {
                    assert!(at >= ends[3] || *damaged == sound, "{kind} at {at}");
                    assert_eq!(held(&contents), locks(3), "{kind} at {at}");
                }
                Err(_refused) => assert!(at < ends[3] || kind == 2, "{kind} at {at}"),
            }
        }
    }
}

#[test]
fn a_log_that_is_cut_is_refused_or_has_lost_nothing() {
    let (disk, _log, ends) = three_records();
    let sound = disk.newest();
    for len in 0..sound.len() {
        disk.overwrite_newest(&sound[..len]);
        match read(&disk) {
            Ok((contents, _clean)) => {
                assert!(len > ends[3], "{len} bytes");
                assert_eq!(held(&contents), locks(3), "{len} bytes");
            }
            Err(LogError::CutShort) => assert!(len < ends[3] + 8, "{len} bytes"),
            Err(other) => panic!("{len} bytes: {other}"),
        }
    }
}

#[test]
fn a_write_of_which_any_part_reached_the_disk_is_whole_or_given_up() {
    let (disk, _log, ends) = three_records();
    let sound = disk.newest();
    // The third record, with only the bytes before `from` or only the bytes from `from` on written.
    for from in ends[2]..=ends[3] {
        for first in [true, false] {
            let mut torn = sound.clone();
            let lost = if first { from..ends[3] } else { ends[2]..from };
            torn[lost.clone()].fill(0);
            disk.overwrite_newest(&torn);
            let (contents, clean) = match read(&disk) {
                Ok(opened) => opened,
                // The salt and the length are in one sector, so no disk tears a write there.
                Err(LogError::CutShort | LogError::Damaged(_))
                    if (ends[2]..ends[2] + 8).contains(&from) =>
                {
                    continue;
                }
                Err(other) => panic!("{lost:?}: {other}"),
            };
            let left = if torn == sound { 3 } else { 2 };
            assert_eq!(held(&contents), locks(left), "{lost:?}");
            assert_eq!(clean, left == 3 || used(&torn) == ends[2], "{lost:?}");
        }
    }
}

#[test]
fn a_lock_with_an_exclusive_lease_and_shared_leases_is_refused() {
    let (now, asked) = (Moment::from_micros(1), attempt("lock", LONG));
    let lease_of = |mode, fence| {
        let fence = FencingToken::new(fence).unwrap();
        Lease::grant(&asked, mode, fence, now, WallClock::default())
    };
    let shared = [lease_of(slotted(0), 1), lease_of(slotted(1), 2)];
    for (exclusive, is_right) in [("lock", false), ("other", true)] {
        let (disk, mut rows) = (Disk::default(), Rows::default());
        let lease = lease_of(Mode::Exclusive, 3);
        rows.lease(&name(exclusive), None, Some(&lease));
        for lease in &shared {
            rows.lease(&asked.name, lease.row(), Some(lease));
        }
        let mut log = begin(&disk);
        log.append(&meta(3), &rows).unwrap();
        match read(&disk) {
            Ok((contents, _clean)) => assert!(is_right && contents.leases.len() == 3),
            Err(error) => assert!(!is_right && error.to_string().contains("its lock is shared")),
        }
    }
}

#[test]
fn a_lease_under_the_key_of_another_is_refused() {
    let (now, asked) = (Moment::from_micros(1), attempt("lock", LONG));
    let fence = FencingToken::new(0x1234).unwrap();
    let mut rows = Rows::default();
    let lease = Lease::grant(&asked, slotted(0), fence, now, WallClock::default());
    rows.lease(&asked.name, Some(fence), Some(&lease));
    let mut record = Vec::new();
    meta(1).encode(&mut record);
    record.extend_from_slice(&1_u64.to_le_bytes());
    let key = record.len() + 6;
    record.extend_from_slice(rows.as_bytes());
    assert!(fuzzed_row(&record).contains("lock"));
    for at in [key, key + 8] {
        let mut other = record.clone();
        // The key names an exclusive lease, or a lease with another fencing token.
        other[at] = if at == key { b'l' } else { 1 };
        let read = fuzzed_row(&other);
        assert!(!read.contains("leases"), "{at}: {read}");
    }
    let mut other = record.clone();
    other[key + 8] = 1;
    let read = fuzzed_row(&other);
    assert!(read.contains("mode or fencing token"), "{read}");
}

fn slotted(slot: u64) -> Mode {
    let slot = u16::try_from(slot).ok();
    Mode::Shared { slot }
}

/// Ends the lease of this lock with the smallest fencing token, if there is one.
fn end_one(state: &mut State, lock: &str, now: Moment) {
    let lock = name(lock);
    let leases = state.durable_leases(&lock, now);
    let first = leases.map(|lease| lease.fence).min();
    if let Some(fence) = first {
        state.end(&lock, fence, true, now);
    }
}

#[test]
fn what_lives_is_copied_into_the_next_file_and_the_one_before_goes() {
    let disk = Disk::default();
    let mut log = begin(&disk);
    let mut state = State::new(vec![], vec![], 0, Parking::default());
    let (mut number, mut replaced, mut parts) = (0, 0, 0);
    while replaced < 5 {
        number += 1;
        let fence = FencingToken::new(number).unwrap();
        // Some of the locks are shared.
        let (lock, mode) = match number % 40 {
            shared @ ..6 => (format!("shared:{}", shared % 2), slotted(number % 9)),
            alone => (format!("lock:{alone}"), Mode::Exclusive),
        };
        let asked = keyed(&lock, LONG + number % 7, key());
        let now = Moment::from_micros(i64::try_from(number).unwrap());
        let lease = Lease::grant(&asked, mode, fence, now, WallClock::default());
        // Changes that are undone were never written, and must not appear in the copy.
        state.put(&name("undone"), lease.clone());
        end_one(&mut state, &format!("lock:{}", number % 7), now);
        end_one(&mut state, "shared:0", now);
        state.rollback();
        state.put(&asked.name, lease);
        if number % 40 == 8 {
            // The ended lease leaves tombstones for its key and its token for a minute.
            state.end(&asked.name, fence, true, now);
        }
        if state.durable_leases(&name("shared:1"), now).count() > 30 {
            end_one(&mut state, "shared:1", now);
            end_one(&mut state, "shared:1", now);
            end_one(&mut state, "shared:0", now);
        }
        let rows = state.unwritten();
        let meta = Meta {
            rows: state.len(),
            ..meta(0)
        };
        log.append(&meta, &rows).unwrap();
        assert!(state.commit().is_empty());
        if log.needs_next() {
            parts += 1;
            replaced += usize::from(log.go_on_with_next(&meta, &state).unwrap());
        }
        assert_eq!(disk.logs(), 1);
        // At any time, also during a copy, the log holds exactly the living rows.
        let (contents, clean) = read(&disk).unwrap();
        assert!(clean);
        let remembered = contents.leases.len() + contents.tombstones.len();
        assert_eq!(remembered as u64, state.len(), "after {number}");
        let locks = (0..40).map(|lock| format!("lock:{lock}"));
        let locks = locks.chain([0, 1].map(|lock| format!("shared:{lock}")));
        let mut lives = Held::new();
        for lock in locks.map(|lock| name(&lock)) {
            let leases = state.durable_leases(&lock, now);
            lives.extend(leases.map(|it| (lock.clone(), it.fence.get())));
        }
        lives.sort();
        assert_eq!(held(&contents), lives, "after {number}");
    }
    assert!(
        parts > 3 * replaced,
        "{parts} parts are too few for the test"
    );
}

#[test]
fn the_next_file_is_completed_although_each_batch_adds_more_than_a_file_grows_by() {
    let disk = Disk::default();
    let mut log = begin(&disk);
    let (state, batch, meta) = (state_of(1..=100), rows(1..=100), meta(100));
    for _ in 0..3 {
        let mut passes = 0;
        loop {
            log.append(&meta, &batch).unwrap();
            if log.needs_next() {
                passes += 1;
                if log.go_on_with_next(&meta, &state).unwrap() {
                    break;
                }
            }
            assert!(passes < 100, "the next file never takes its place");
        }
        assert_eq!(held(&read(&disk).unwrap().0), locks(100));
    }
}

#[test]
fn a_file_that_comes_back_is_neither_read_nor_kept() {
    let (disk, mut log, _ends) = three_records();
    let before = disk.newest();
    log.rewrite(&meta(1), &state_of(7..=7)).unwrap();
    assert_eq!(disk.logs(), 1);
    // A removal was not synced, so the old file came back; or a part of an old file is left.
    for came_back in [before, vec![0xa5; 100]] {
        disk.draft(&came_back).unwrap();
        disk.put_in_place(1).unwrap();
        let (contents, end) = Log::read(&disk).unwrap().unwrap();
        assert_eq!(held(&contents), vec![(name("lock:7"), 7)]);
        Log::begin(Box::new(disk.clone()), end, &meta(1), &state_of(7..=7)).unwrap();
        assert_eq!(disk.logs(), 1);
    }
}

#[tokio::test]
async fn files_that_come_and_go_are_not_missed_and_no_more_than_two() {
    let directory = TempDir::new().unwrap();
    let start = || {
        let orders = OrderLimits::default();
        let taken = Directory::take(directory.path()).unwrap();
        let files = taken.files().unwrap().with_sizes(4 * 1024, 16 * 1024);
        EmbeddedStore::start(taken, Box::new(files), Arc::new(SystemClock), orders).unwrap()
    };
    let logs = || {
        let entries = std::fs::read_dir(directory.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut logs: Vec<_> = paths
            .filter(|path| path.extension().is_some_and(|it| it == "log"))
            .collect();
        logs.sort();
        logs
    };
    let store = start();
    let (first, mut seen) = (logs(), std::collections::BTreeSet::new());
    for turn in 0..1_500 {
        let asked = attempt(&format!("turn:{turn}"), LONG);
        let granted = store.acquire(&asked).await;
        let is_granted = matches!(granted, Ok(Acquisition::Granted(_)));
        assert!(is_granted, "{turn}: {granted:?}");
        if turn % 10 > 0 {
            store.release(&asked.name, &asked.token).await.unwrap();
        }
        let logs = logs();
        assert!((1..=2).contains(&logs.len()), "{logs:?}");
        seen.extend(logs);
        if turn % 300 == 0 {
            // This pause is longer than the time until the store checks its files.
            tokio::time::sleep(Duration::from_millis(400)).await;
            assert_eq!(store.check().await.remove(0).health, Health::Passing);
        }
    }
    assert!(seen.len() > 5, "{seen:?}");
    assert_ne!(first, logs());
    store.close().await;
    drop(store);
    let store = start();
    assert_eq!(logs().len(), 1);
    for turn in 0..1_500 {
        let shown = store.inspect(&name(&format!("turn:{turn}"))).await.unwrap();
        assert_eq!(shown.holder.is_some(), turn % 10 == 0, "{turn}");
    }
    store.close().await;
}

#[tokio::test]
async fn a_disk_that_is_full_of_what_has_ended_is_usable_again_by_itself() {
    // With less space there is no room for a lock and the reserve.
    for capacity in (32 * 1024..64 * 1024).step_by(1024) {
        let mut rig = Rig::start();
        let held = attempt("held", LONG);
        rig.granted(&held).await;
        rig.disk.fail(Fault::Capacity(capacity));
        let mut refused = 0;
        for turn in 0..400 {
            let asked = attempt(&format!("t:{turn}"), LONG);
            if rig.store().acquire(&asked).await.is_ok() {
                // If the release is refused, the lease stays until it ends, so the release is repeated.
                while rig
                    .store()
                    .release(&asked.name, &asked.token)
                    .await
                    .is_err()
                {
                    refused += 1;
                    assert!(refused < 400, "{capacity}: for good");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            } else {
                refused += 1;
            }
        }
        assert!(refused < 40, "{capacity}: {refused} refused");
        rig.restart().await;
        assert!(!rig.is_free("held").await);
    }
}
