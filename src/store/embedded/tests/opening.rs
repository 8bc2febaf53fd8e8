//! The disk fails while the store is opened: each failure has a text of its own.

use crate::store::embedded::{
    OpenError,
    file::{TABLE, Witness},
    row::{Meta, RowKey},
};

use super::{
    disk::{Disk, Fault},
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
    let newer = Meta::LAYOUT + 1;
    write_row(&rig, RowKey::META, &[newer, 1, 2, 3]);
    for _ in 0..2 {
        let refused = rig.open().unwrap_err();
        let OpenError::NewerLayout { found, known, .. } = refused else {
            panic!("not refused for its layout: {refused:?}")
        };
        assert_eq!((found, known), (newer, Meta::LAYOUT));
    }
}

#[tokio::test]
async fn a_row_that_makes_no_sense_is_refused() {
    let rows: [(&[u8], &[u8]); 6] = [
        (b"x", b"of an unknown kind"),
        (b"lshort", b""),
        (b"l\0\0\0\0\0\0\0\0lock", b"has no fence"),
        (b"l\0\0\0\0\0\0\0\x01no spaces", b""),
        (b"l\0\0\0\0\0\0\0\x01lock", b"\x01too short"),
        (RowKey::META, b""),
    ];
    for (key, value) in rows {
        let mut rig = Rig::start();
        rig.close().await;
        write_row(&rig, key, value);
        let refused = rig.open().unwrap_err();
        assert!(matches!(refused, OpenError::Corrupt { .. }), "{refused:?}");
    }
}

#[tokio::test]
async fn a_database_without_a_row_about_itself_is_refused() {
    let mut rig = Rig::start();
    rig.close().await;
    rig.disk = Disk::default();
    drop(rig.disk.open(Witness::default()).unwrap());
    let refused = rig.open().unwrap_err();
    assert!(matches!(refused, OpenError::Corrupt { .. }), "{refused:?}");
}

fn write_row(rig: &Rig, key: &[u8], value: &[u8]) {
    let database = rig.disk.open(Witness::default()).unwrap();
    let write = database.begin_write().unwrap();
    let mut table = write.open_table(TABLE).unwrap();
    table.insert(key, value).unwrap();
    drop(table);
    write.commit().unwrap();
}
