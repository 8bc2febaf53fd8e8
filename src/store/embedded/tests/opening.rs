//! The disk fails while the store is opened: each failure has a text of its own.

use crate::store::embedded::{OpenError, layout::LAYOUT};

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
