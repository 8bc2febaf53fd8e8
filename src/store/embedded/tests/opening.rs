//! The disk or the process fails while the store is opened: each failure has a text of its own, and none stops a
//! later start.

use crate::store::embedded::{OpenError, log::LAYOUT};

use super::{
    disk::Fault,
    rig::{Rig, attempt},
};

#[tokio::test]
async fn a_full_a_read_only_and_a_dead_disk_are_told_apart() {
    let mut rig = Rig::start();
    rig.granted(&attempt("kept", 3_600_000)).await;
    rig.close().await;

    rig.disk.fail(Fault::Full(0));
    let refused = rig.open().unwrap_err();
    assert!(matches!(refused, OpenError::DiskFull { .. }), "{refused:?}");
    assert!(refused.to_string().contains("free some"), "{refused}");

    // As on the first start: nothing is kept.
    rig.disk.remove_reserve();
    let refused = rig.open().unwrap_err();
    assert!(matches!(refused, OpenError::DiskFull { .. }), "{refused:?}");

    rig.disk.fail(Fault::ReadOnly);
    let refused = rig.open().unwrap_err();
    assert!(
        matches!(refused, OpenError::NotWritable { .. }),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("read-write"), "{refused}");

    rig.disk.fail(Fault::Dead);
    let refused = rig.open().unwrap_err();
    assert!(matches!(refused, OpenError::Io { .. }), "{refused:?}");
    assert!(
        refused.to_string().contains("the disk is dead"),
        "{refused}"
    );

    rig.disk.fail(Fault::None);
    rig.open().unwrap();
    assert!(!rig.is_free("kept").await);
}

#[tokio::test]
async fn starts_that_are_refused_for_the_reserve_name_it_and_leave_no_file() {
    let mut rig = Rig::start();
    rig.granted(&attempt("kept", 3_600_000)).await;
    rig.close().await;
    rig.disk.fail(Fault::ForeignReserve);
    for _ in 0..3 {
        let refused = rig.open().unwrap_err();
        let OpenError::NotWritable { path, .. } = refused else {
            panic!("{refused:?}")
        };
        assert!(path.ends_with("latchgate.reserve"), "{path:?}");
        assert_eq!(rig.disk.logs(), 1);
    }
    rig.disk.fail(Fault::None);
    rig.open().unwrap();
    assert!(!rig.is_free("kept").await);
}

#[tokio::test]
async fn starts_that_are_killed_at_the_same_step_do_not_stop_the_next_start() {
    const LOCKS: usize = 5;
    for (step, loses_power) in (1..=15).flat_map(|step| [(step, false), (step, true)]) {
        let mut rig = Rig::start();
        for number in 0..LOCKS {
            let held = attempt(&format!("held:{number}"), 3_600_000);
            rig.granted(&held).await;
        }
        rig.close().await;
        for _ in 0..5 {
            rig.disk.fail(Fault::DiesAfter(step));
            // Whether this start got so far that it returned a store does not matter.
            rig.open().ok();
            rig.close().await;
            if loses_power {
                rig.disk.lose_power();
            }
            rig.disk.fail(Fault::None);
            let logs = rig.disk.logs();
            assert!((1..=2).contains(&logs), "step {step}: {logs}");
        }
        rig.open()
            .unwrap_or_else(|refused| panic!("step {step}: {refused}"));
        assert_eq!(rig.disk.logs(), 1, "step {step}");
        for number in 0..LOCKS {
            let is_free = rig.is_free(&format!("held:{number}")).await;
            assert!(!is_free, "step {step}: {number}");
        }
    }
}

#[tokio::test]
async fn a_newer_layout_is_refused_and_not_rewritten() {
    let mut rig = Rig::start();
    rig.close().await;
    let mut newer = rig.disk.newest();
    newer[8..12].copy_from_slice(&(LAYOUT + 1).to_le_bytes());
    let sum = crc32fast::hash(&newer[..16]);
    newer[16..20].copy_from_slice(&sum.to_le_bytes());
    rig.disk.overwrite_newest(&newer);
    for _ in 0..2 {
        let refused = rig.open().unwrap_err();
        let OpenError::NewerLayout { found, known, .. } = refused else {
            panic!("not refused for its layout: {refused:?}")
        };
        assert_eq!((found, known), (LAYOUT + 1, LAYOUT));
        assert_eq!(rig.disk.newest(), newer);
    }
}
