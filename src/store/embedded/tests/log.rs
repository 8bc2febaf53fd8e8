//! The log: segments follow each other, what is damaged is refused, and what is torn is given up.

use std::time::Duration;

use crate::{
    lock::{FencingToken, LockName},
    store::{
        Store,
        contract::Release,
        embedded::{
            OpenError,
            lease::{Lease, Moment},
            log::{Contents, Log, LogError, Volume},
            row::{Meta, Rows},
            state::{CopyCursor, State},
        },
        parking::Parking,
    },
};

use super::{
    disk::{Disk, Fault},
    rig::{Rig, attempt, name},
};

const LONG: u64 = 3_600_000;

/// The fence of each lease that a log holds, by its name.
type Held = Vec<(LockName, u64)>;

/// A log with three records: a lock each.
fn three_records() -> (Disk, Vec<usize>) {
    let disk = Disk::default();
    Log::create(&disk, &meta(0)).unwrap();
    let mut ends = vec![used(&disk.newest())];
    let mut log = open(&disk).unwrap().0;
    for number in 1..=3 {
        log.append(&meta(number), &row(number)).unwrap();
        ends.push(used(&disk.newest()));
    }
    (disk, ends)
}

fn open(disk: &Disk) -> Result<(Log, Contents, bool), LogError> {
    Log::open(Box::new(disk.clone())).map_err(|unreadable| unreadable.error)
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
    let mut rows = Rows::default();
    let asked = attempt(&format!("lock:{number}"), LONG);
    let fence = FencingToken::new(number).unwrap();
    rows.lease(
        &asked.name,
        &Lease::grant(&asked, fence, Moment::from_micros(1)),
    );
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
    (1..=count)
        .map(|number| (name(&format!("lock:{number}")), number))
        .collect()
}

/// Where the last record ends.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1
}

#[test]
fn what_was_written_is_read() {
    let (disk, _ends) = three_records();
    let (mut log, contents, clean) = open(&disk).unwrap();
    assert!(clean);
    assert_eq!(held(&contents), locks(3));
    assert_eq!(contents.meta, meta(3));
    let mut gone = Rows::default();
    gone.no_lease(&name("lock:3"));
    log.append(&meta(2), &gone).unwrap();
    assert_eq!(held(&open(&disk).unwrap().1), locks(2));
}

#[test]
fn a_record_that_is_torn_is_given_up_and_one_that_others_follow_is_refused() {
    let (disk, ends) = three_records();
    let sound = disk.newest();
    for at in 0..ends[3] {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = sound.clone();
            damaged[at] ^= flip;
            disk.overwrite_newest(&damaged);
            match open(&disk) {
                Ok((_log, contents, clean)) => {
                    assert!(!clean, "byte {at} was changed, and nobody is told");
                    assert!(at >= ends[2], "byte {at}: more than the last was given up");
                    assert_eq!(held(&contents), locks(2), "byte {at}");
                }
                Err(LogError::Damaged(_) | LogError::NoLog | LogError::Layout(_)) => {
                    assert!(at < ends[2], "byte {at}");
                }
                Err(LogError::CutShort) => {}
                Err(other) => panic!("byte {at}: {other}"),
            }
        }
    }
}

#[test]
fn a_log_that_was_closed_in_good_order_has_lost_nothing_or_is_refused() {
    let (disk, ends) = three_records();
    open(&disk).unwrap().0.close().unwrap();
    let sound = disk.newest();
    for at in 0..sound.len() {
        for lost in [at..at + 1, at..(at + 512).min(sound.len())] {
            let mut damaged = sound.clone();
            damaged[lost.clone()].fill(0);
            disk.overwrite_newest(&damaged);
            match open(&disk) {
                Ok((_log, contents, _clean)) => {
                    assert!(at >= ends[3] || damaged == sound, "{lost:?}");
                    assert_eq!(held(&contents), locks(3), "{lost:?}");
                }
                Err(_refused) => assert!(at < ends[3], "{lost:?}"),
            }
        }
    }
    // It is a lower bound: what was written since is behind it.
    disk.overwrite_newest(&sound);
    let mut log = open(&disk).unwrap().0;
    log.append(&meta(4), &row(4)).unwrap();
    assert_eq!(held(&open(&disk).unwrap().1), locks(4));
}

#[test]
fn a_log_that_is_cut_is_refused_or_has_lost_nothing() {
    let (disk, ends) = three_records();
    let sound = disk.newest();
    let mut whole = 0;
    for len in 0..sound.len() {
        disk.overwrite_newest(&sound[..len]);
        match open(&disk) {
            Ok((_log, contents, _clean)) => {
                assert!(len > ends[3], "{len} bytes");
                assert_eq!(held(&contents), locks(3), "{len} bytes");
                whole += 1;
            }
            Err(LogError::CutShort) => assert!(len < ends[3] + 8, "{len} bytes"),
            Err(other) => panic!("{len} bytes: {other}"),
        }
    }
    assert!(whole > 0);
}

#[test]
fn a_write_of_which_any_part_reached_the_disk_is_whole_or_given_up() {
    let (disk, ends) = three_records();
    let sound = disk.newest();
    // The third record, of which only the bytes before `from` or behind it were written.
    for from in ends[2]..=ends[3] {
        for first in [true, false] {
            let mut torn = sound.clone();
            let lost = if first { from..ends[3] } else { ends[2]..from };
            torn[lost.clone()].fill(0);
            disk.overwrite_newest(&torn);
            let (_log, contents, clean) = match open(&disk) {
                Ok(opened) => opened,
                // Less than a sector of a length: no disk tears there.
                Err(LogError::CutShort) if (ends[2]..ends[2] + 8).contains(&from) => continue,
                Err(other) => panic!("{lost:?}: {other}"),
            };
            let left = if torn == sound { 3 } else { 2 };
            assert_eq!(held(&contents), locks(left), "{lost:?}");
            assert_eq!(clean, left == 3 || used(&torn) == ends[2], "{lost:?}");
        }
    }
}

#[test]
fn what_lives_is_copied_into_the_next_segment_and_the_one_before_goes() {
    let disk = Disk::default();
    Log::create(&disk, &meta(0)).unwrap();
    let mut log = open(&disk).unwrap().0;
    let mut state = State::new(vec![], vec![], 0, Parking::default());
    let (mut number, mut begun, mut copied, mut most) = (0, 0, None, 0);
    while begun < 5 {
        number += 1;
        let fence = FencingToken::new(number).unwrap();
        let asked = attempt(&format!("lock:{}", number % 40), LONG + number % 7);
        let now = Moment::from_micros(i64::try_from(number).unwrap());
        state.set(&asked.name, Lease::grant(&asked, fence, now));
        if number % 40 == 3 {
            state.end(&asked.name, false, now);
        }
        let mut rows = state.unwritten();
        let meta = Meta {
            rows: state.len(),
            ..meta(0)
        };
        if log.is_full() {
            log.begin_segment(&meta, &rows).unwrap();
            copied = Some(CopyCursor::START);
            begun += 1;
        } else if let Some(cursor) = &copied {
            copied = state.copy(cursor, 3, &mut rows);
            if copied.is_some() {
                log.append(&meta, &rows).unwrap();
            } else {
                log.append_last_copied(&meta, &rows).unwrap();
            }
        } else {
            log.append(&meta, &rows).unwrap();
        }
        assert!(state.commit().is_empty());
        most = most.max(disk.segments());
        assert_eq!(disk.segments() == 2, copied.is_some());
        // At any time, copy or not, the log holds just what lives.
        let (again, contents, clean) = open(&disk).unwrap();
        assert!(clean);
        assert_eq!(again.is_copying(), copied.is_some());
        let mut lives: Held = (0..40)
            .filter_map(|lock| {
                let lock = name(&format!("lock:{lock}"));
                let held = state.held(&lock, now)?;
                Some((lock, held.fence.get()))
            })
            .collect();
        lives.sort();
        assert_eq!(held(&contents), lives, "after {number}");
    }
    assert_eq!(most, 2);
}

#[test]
fn a_segment_that_comes_back_is_not_read() {
    let (disk, _ends) = three_records();
    let mut log = open(&disk).unwrap().0;
    log.rewrite(&meta(1), &row(7)).unwrap();
    assert_eq!(disk.segments(), 1);
    // It was removed, and the directory was not synced since.
    disk.lose_power();
    assert_eq!(disk.segments(), 2);
    let contents = open(&disk).unwrap().1;
    assert_eq!(held(&contents), vec![(name("lock:7"), 7)]);
    assert_eq!(disk.segments(), 1);
}

#[test]
fn a_log_of_which_a_segment_is_missing_is_refused() {
    let (disk, _ends) = three_records();
    let mut log = open(&disk).unwrap().0;
    log.begin_segment(&meta(4), &row(4)).unwrap();
    assert_eq!(held(&open(&disk).unwrap().1), locks(4));
    disk.remove(1).unwrap();
    let missing = open(&disk).map(|_log| ());
    assert!(
        matches!(missing, Err(LogError::Count { .. })),
        "{missing:?}"
    );
}

#[test]
fn a_log_of_which_the_first_of_two_segments_is_from_a_backup_is_refused() {
    let (disk, ends) = three_records();
    let mut older = disk.newest();
    older[ends[2]..].fill(0);
    let mut log = open(&disk).unwrap().0;
    log.begin_segment(&meta(4), &row(4)).unwrap();
    let newest = disk.newest();
    disk.remove(2).unwrap();
    disk.overwrite_newest(&older);
    disk.draft(&newest).unwrap();
    disk.put_in_place(2).unwrap();
    let gap = open(&disk).map(|_log| ());
    assert!(matches!(gap, Err(LogError::Gap(3))), "{gap:?}");
}

#[tokio::test]
async fn power_that_fails_at_any_time_loses_nothing_that_was_answered() {
    for rounds in 0..25 {
        let mut rig = Rig::start();
        let mut kept = Vec::new();
        for turn in 0..rounds * 12 {
            let asked = attempt(&format!("turn:{turn}"), LONG);
            rig.granted(&asked).await;
            if turn % 6 == 0 {
                kept.push(asked);
            } else {
                let release = rig.store().release(&asked.name, &asked.token).await;
                assert_eq!(release, Ok(Release::Released));
            }
        }
        rig.lose_power().await;
        for turn in 0..rounds * 12 {
            let lock = format!("turn:{turn}");
            assert_eq!(rig.is_free(&lock).await, turn % 6 != 0, "{rounds}: {lock}");
        }
        assert!(rig.disk.segments() <= 2);
    }
}

#[tokio::test]
async fn a_copy_that_was_interrupted_goes_on_after_a_restart() {
    let mut rig = Rig::start();
    for turn in 0..600 {
        rig.granted(&attempt(&format!("kept:{turn}"), LONG)).await;
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    let mut turn = 0;
    while rig.disk.segments() < 2 {
        assert!(tokio::time::Instant::now() < deadline, "no segment is full");
        turn += 1;
        rig.granted(&attempt(&format!("more:{turn}"), 100)).await;
        rig.clock.advance(Duration::from_millis(100));
    }
    rig.restart().await;
    while rig.disk.segments() > 1 {
        assert!(tokio::time::Instant::now() < deadline, "it never ends");
        turn += 1;
        rig.granted(&attempt(&format!("more:{turn}"), 100)).await;
        rig.clock.advance(Duration::from_millis(100));
    }
    rig.lose_power().await;
    for turn in 0..600 {
        assert!(!rig.is_free(&format!("kept:{turn}")).await, "{turn}");
    }
}

#[tokio::test]
async fn a_disk_that_is_full_when_a_segment_is_due_refuses_and_then_goes_on() {
    let mut rig = Rig::start();
    let mut turn = 0;
    let mut refused = false;
    // Room for what overwrites, and none for what is new.
    while !refused {
        turn += 1;
        rig.disk.fail(Fault::Full(1));
        let asked = rig
            .store()
            .acquire(&attempt(&format!("t:{turn}"), LONG))
            .await;
        refused = asked.is_err();
        assert!(turn < 1_000, "nothing was ever due");
    }
    rig.disk.fail(Fault::None);
    rig.writes_again().await;
    rig.lose_power().await;
    for held in 1..turn {
        assert!(!rig.is_free(&format!("t:{held}")).await, "{held}");
    }
    assert!(rig.is_free(&format!("t:{turn}")).await);
}

#[tokio::test]
async fn a_damaged_log_is_named_with_its_file() {
    let mut rig = Rig::start();
    rig.granted(&attempt("kept", LONG)).await;
    rig.close().await;
    let mut damaged = rig.disk.newest();
    damaged[60] ^= 1;
    rig.disk.overwrite_newest(&damaged);
    let refused = rig.open().unwrap_err();
    let OpenError::Corrupt { path, what } = refused else {
        panic!("{refused:?}")
    };
    assert!(path.ends_with("latchgate.00000001.log"), "{path:?}");
    assert!(what.contains("at byte 40"), "{what}");
}
