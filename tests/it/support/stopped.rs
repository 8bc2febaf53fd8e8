//! Waits until a stopped process does nothing any more.

use std::{thread, time::Duration};

use tokio::time::Instant;

/// Waits until every thread of a process is stopped: a thread may get the signal in the middle of a system call.
#[track_caller]
pub(super) fn stands_still(process: u32, within: Duration) {
    let deadline = Instant::now() + within;
    let is_stopped = |entry: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(entry.unwrap().path().join("stat"));
        // A thread that has ended does nothing either.
        stat.is_ok_and(|stat| stat.rsplit_once(") ").unwrap().1.starts_with('T'))
    };
    let threads = format!("/proc/{process}/task");
    while !std::fs::read_dir(&threads).unwrap().all(is_stopped) {
        assert!(Instant::now() < deadline, "it goes on");
        thread::sleep(Duration::from_millis(1));
    }
}
