//! Directories that cannot be used, and the files in those that can.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use latchgate::store::embedded::OpenError;
use tempfile::TempDir;

use super::place::{open, open_again, take};
use crate::support::prelude::*;

#[tokio::test]
async fn a_directory_is_made_with_its_parents_and_kept_private() {
    let parent = TempDir::new().unwrap();
    let directory = parent.path().join("a/b/data");
    let store = open(&directory).unwrap();
    take(&store, 1).await;
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(directory.clone()), 0o700);
    let files = fs::read_dir(&directory).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    // The lock file, the log, and the reserved space.
    assert_eq!(files.len(), 3, "{files:?}");
    for file in files {
        assert_eq!(mode(file.clone()), 0o600, "{file:?}");
    }
    store.close().await;
}

#[tokio::test]
async fn a_second_store_on_the_directory_is_refused_until_the_first_is_closed() {
    let directory = TempDir::new().unwrap();
    let first = open(directory.path()).unwrap();
    let refused = open(directory.path()).unwrap_err();
    assert!(matches!(refused, OpenError::InUse(_)), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("in use by another process"), "{text}");
    // A link leads to the same directory, which is in use.
    let link = directory.path().join("link");
    symlink(directory.path(), &link).unwrap();
    assert!(matches!(open(&link), Err(OpenError::InUse(_))));
    // The directory is also in use if its lock file was removed as stale.
    fs::remove_file(directory.path().join("latchgate.lock")).unwrap();
    assert!(matches!(open(&link), Err(OpenError::InUse(_))));
    first.close().await;
    assert!(open_again(directory.path()).await.is_ok());
}

#[test]
fn a_path_that_is_no_directory_or_not_ours_is_refused() {
    let parent = TempDir::new().unwrap();
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    for (path, why) in [
        (file.clone(), "is a file"),
        (file.join("below"), "is a file"),
        // Not even root may create a file there.
        ("/sys".into(), "mount it read-write"),
    ] {
        let refused = open(&path).unwrap_err().to_string();
        for part in [why, "--store embedded:DIR"] {
            assert!(refused.contains(part), "{path:?}: {refused}");
        }
    }
}

#[test]
fn a_log_or_a_reserve_that_is_a_pipe_is_refused_without_waiting_for_a_writer() {
    for name in ["latchgate.00000001.log", "latchgate.reserve"] {
        let directory = TempDir::new().unwrap();
        let pipe = directory.path().join(name);
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let refused = open(directory.path()).unwrap_err().to_string();
        assert!(
            refused.contains(&format!("{name} is not a regular file")),
            "{refused}"
        );
    }
}

#[test]
fn a_link_in_the_place_of_a_file_is_refused_and_what_it_leads_to_is_left_alone() {
    for name in [
        "latchgate.00000001.log",
        "latchgate.reserve",
        "latchgate.lock",
    ] {
        let (directory, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let (file, missing) = (
            elsewhere.path().join("file"),
            elsewhere.path().join("missing"),
        );
        fs::write(&file, "not ours").unwrap();
        for target in [&file, &missing] {
            let link = directory.path().join(name);
            symlink(target, &link).unwrap();
            let refused = open(directory.path()).unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
            assert!(refused.contains("symbolic link"), "{refused}");
            fs::remove_file(&link).unwrap();
            // A failed start leaves no log file.
            let log = directory.path().join("latchgate.00000001.log");
            assert!(!log.exists(), "{name}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "not ours");
        assert!(!missing.exists());
    }
}

#[tokio::test]
async fn a_draft_that_a_crash_left_behind_is_no_obstacle() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("latchgate.log.new"), b"half of a ").unwrap();
    let store = open(directory.path()).unwrap();
    take(&store, 1).await;
    store.close().await;
    assert!(!directory.path().join("latchgate.log.new").exists());
}
