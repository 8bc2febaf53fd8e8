//! A real file system that is full: holders keep and release their locks, and no lock is granted.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    process::Stdio,
};

use tempfile::TempDir;

use super::place::{CHILD, attempt, child_directory, open, take};
use crate::support::prelude::*;
use crate::support::spawn;

/// Several times more renewals than the reserved space has room for.
const RENEWALS: usize = 6_000;
/// Less space than is reserved for one more lock.
const LITTLE: u64 = 128 * 1024;

/// The test runs in two processes: it starts itself again with a small file system.
#[tokio::test]
async fn on_a_full_file_system_locks_are_renewed_and_released_and_acquired_when_there_is_room() {
    if let Some(directory) = child_directory() {
        return fill_and_free(&directory).await;
    }
    let directory = TempDir::new().unwrap();
    let mut command = spawn::command("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let ran = command
        .args(["--mount", "--propagation", "private", "sh", "-c"])
        .arg("mount -t tmpfs -o size=2m tmpfs \"$LG_EMBEDDED_CHILD\" && exec \"$@\"")
        .arg("sh")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("embedded::full::on_a_full_file_system_locks_are_renewed_and_released_and_acquired_when_there_is_room")
        .env(CHILD, directory.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let [said, failure] = [&ran.stdout, &ran.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(ran.status.success(), "{said}{failure}");
    assert!(said.contains("1 passed"), "{said}");
}

async fn fill_and_free(directory: &Path) {
    let data = directory.join("data");
    let mut store = open(&data).unwrap();
    let held = take(&store, 200).await;
    let filler = directory.join("filler");
    fill(&filler);
    // The prepared space of the log is used first, so a restart is needed for a new file.
    for round in 0..2 {
        let renewals = (0..RENEWALS).map(|turn| &held[turn % held.len()]);
        for lease in renewals {
            store.must_renew_as(Renewer::Bearer, lease).await;
        }
        let refused = store.acquire(&attempt("wanted")).await;
        assert!(is_full(&refused), "{round}: {refused:?}");
        leaves_what_is_too_little(directory, &filler).await;
        store.close().await;
        drop(store);
        store = open(&data).unwrap();
        fill(&filler);
    }
    for lease in &held[..3] {
        store.must_release(lease).await;
    }
    std::fs::remove_file(&filler).unwrap();
    eventually("it acquires again", async || {
        store.acquire(&attempt("wanted")).await.ok()
    })
    .await;
    for (number, lease) in held.iter().enumerate() {
        let shown = store.inspect(&lease.name).await.unwrap();
        assert_eq!(shown.holder.is_some(), number >= 3, "{}", lease.name);
    }
    store.close().await;
}

/// Other programs may use the space that they free, if it is too little for an acquire.
async fn leaves_what_is_too_little(directory: &Path, filler: &Path) {
    fill(filler);
    let filler = OpenOptions::new().write(true).open(filler).unwrap();
    let len = filler.metadata().unwrap().len();
    filler.set_len(len - LITTLE).unwrap();
    // Meanwhile the store checks the free space several times.
    sleep(Duration::from_secs(1)).await;
    until("it is free", async || {
        let free = rustix::fs::statvfs(directory).unwrap();
        free.f_bfree * free.f_frsize >= LITTLE
    })
    .await;
}

/// Fills the file system to the last byte.
fn fill(path: &Path) {
    let mut file: File = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    for len in [64 * 1024, 4096, 512, 1] {
        while file.write_all(&vec![1; len]).is_ok() {}
    }
}

fn is_full(outcome: &Result<Acquisition, StoreError>) -> bool {
    matches!(
        outcome,
        Err(StoreError::Unavailable(Unavailability::DiskFull(_)))
    )
}
