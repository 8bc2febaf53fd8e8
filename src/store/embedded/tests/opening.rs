//! Failures of the disk or the process while the store opens: each failure has its own text, and none prevents
//! a later start.

use crate::store::embedded::{OpenError, log::LAYOUT};

use super::{
    disk::Fault,
    rig::{LONG, Rig, attempt},
};

#[tokio::test]
async fn starts_that_fail_say_why_and_leave_no_file() {
    let mut rig = Rig::start();
    rig.granted(&attempt("kept", LONG)).await;
    rig.close().await;
    for (fault, keeps_space, why) in [
        (
            Fault::ForeignReserve,
            true,
            "latchgate.reserve\": permission denied; give this user",
        ),
        (Fault::Full(0), true, "free some"),
        // There is no reserve, as on the first start.
        (Fault::Full(0), false, "free some"),
        (Fault::ReadOnly, false, "mount it read-write"),
        (Fault::Dead, false, "the disk is dead; look at the disk"),
    ] {
        rig.disk.fail(fault);
        if !keeps_space {
            rig.disk.remove_reserve();
        }
        for _ in 0..3 {
            let refused = rig.open().unwrap_err().to_string();
            assert!(refused.contains(why), "{fault:?}: {refused}");
            assert_eq!(rig.disk.logs(), 1, "{fault:?}");
        }
    }
    rig.disk.fail(Fault::None);
    rig.open().unwrap();
    assert!(!rig.is_free("kept").await);
}

#[tokio::test]
async fn starts_that_are_killed_at_the_same_step_do_not_stop_the_next_start() {
    for (step, loses_power) in (1..=15).flat_map(|step| [(step, false), (step, true)]) {
        let mut rig = Rig::start();
        let held = rig.hold(5).await;
        rig.close().await;
        for _ in 0..5 {
            rig.disk.fail(Fault::DiesAfter(step));
            // It does not matter whether this start got as far as returning a store.
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
        for lease in &held {
            rig.renewed(lease).await;
        }
    }
}

#[tokio::test]
async fn a_log_that_is_not_ours_is_refused_and_not_rewritten() {
    let mut rig = Rig::start();
    rig.granted(&attempt("kept", LONG)).await;
    rig.close().await;
    let mut newer = rig.disk.newest();
    let mut damaged = newer.clone();
    damaged[60] ^= 1;
    newer[8..12].copy_from_slice(&(LAYOUT + 1).to_le_bytes());
    let sum = crc32fast::hash(&newer[..16]);
    newer[16..20].copy_from_slice(&sum.to_le_bytes());
    let foreign = b"SQLite format 3\0".repeat(1_000);
    for (log, why) in [
        (
            newer,
            format!(
                "the layout version {}, this program knows {LAYOUT}",
                LAYOUT + 1
            ),
        ),
        (damaged, "damaged at byte 40".to_owned()),
        (
            foreign,
            "it does not begin as a log does; restore a backup".to_owned(),
        ),
    ] {
        rig.disk.overwrite_newest(&log);
        for _ in 0..2 {
            let refused = rig.open().unwrap_err();
            let (OpenError::NewerLayout { path, .. } | OpenError::Corrupt { path, .. }) = &refused
            else {
                panic!("not refused for its content: {refused:?}")
            };
            assert!(path.ends_with("latchgate.00000001.log"), "{path:?}");
            assert!(refused.to_string().contains(&why), "{refused}");
            assert!(rig.disk.newest() == log, "{why}");
        }
    }
}
