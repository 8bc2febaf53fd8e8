//! `latchgate demo`: what its page has to show, and that nothing is left at its end.

use latchgate::clock::{Clock, SystemClock, rfc3339};

use super::{metrics::get, run::Running};
use crate::{cli::prelude::*, support::until as until_so};

/// Starts a demo whose temporary files are in this directory, in an environment that would configure a gateway. Answers
/// the demo and its URL.
fn demo(files: &TempDir) -> (Running, String) {
    let mut command = program();
    command
        .args(["demo", "--listen", "127.0.0.1:0"])
        .env("TMPDIR", files.path())
        .env("LATCHGATE_STORE", "redis://192.0.2.1")
        .env("LATCHGATE_CONFIG", "/nonexistent");
    let demo = start("http://192.0.2.1", command);
    demo.printed("(Ctrl-C)");
    let out = demo.out();
    let (_, url) = out.split_once("dashboard: ").unwrap();
    let (url, _) = url.split_once("/dashboard\n").unwrap();
    let curl = format!("curl {url}/locks/deploy:web\n");
    assert!(out.contains(&curl) && out.contains("All data is simulated"));
    let url = url.to_owned();
    (demo, url)
}

/// Waits until the answer to a GET passes a check.
async fn shows(url: &str, path: &str, check: impl Fn(&Value) -> bool) {
    let url = format!("{url}{path}");
    let ask = || async {
        let (_, _, body) = get(&url, None).await;
        serde_json::from_str(&body).is_ok_and(|answer| check(&answer))
    };
    until_so(path, ask).await;
}

/// Whether one of the entries of a history passes a check.
fn has_entry(history: &Value, check: impl Fn(&Value) -> bool) -> bool {
    let mut entries = history["entries"].as_array().unwrap().iter();
    entries.any(check)
}

#[track_caller]
fn ends_by(mut demo: Running, files: &TempDir, signal: Signal) {
    let count = || fs::read_dir(files.path()).unwrap().count();
    assert_eq!(count(), 1);
    demo.signal(signal);
    let ran = demo.wait().ends(0);
    assert_eq!(ran.err, "");
    assert_eq!(count(), 0);
}

#[tokio::test]
async fn every_part_of_the_page_has_something_to_show_and_nothing_is_left_of_it() {
    let files = tempfile::tempdir().unwrap();
    let now = SystemClock.wall();
    let [past, began] =
        [now.checked_sub(Duration::from_mins(40)), Some(now)].map(|time| rfc3339(time).to_string());
    let (demo, url) = demo(&files);
    for lock in [
        "deploy:web",
        "pool:browsers",
        "import:orders",
        "nightly:report",
    ] {
        shows(&url, &format!("/locks/{lock}/history"), |history| {
            has_entry(history, |lease| {
                let owner = lease["owner"].as_str().unwrap();
                owner.ends_with(" (simulated)") && lease["acquired_at"].as_str() < Some(&*past)
            })
        })
        .await;
    }
    shows(&url, "/locks/deploy:web", |lock| {
        let job = &lock["holders"][0]["metadata"]["job"];
        let is_link = job.as_str().is_some_and(|job| job.starts_with("https://"));
        is_link && lock["waiter_count"] == 2 && lock["granted_order"].as_u64() >= Some(1_846)
    })
    .await;
    shows(&url, "/locks/pool:browsers", |lock| {
        lock["holder_count"] == 3 && lock["waiter_count"] != 0
    })
    .await;
    shows(&url, "/locks/deploy:payments", |lock| {
        !lock["holders"][0]["reservation"].is_null() && lock["waiter_count"] == 2
    })
    .await;
    shows(&url, "/locks/nightly:report", |lock| {
        lock["state"] == "resting"
    })
    .await;
    // The process that has crashed, whose lease ends.
    shows(&url, "/locks/backup:photos/history", |history| {
        has_entry(history, |lease| {
            lease["ended"] == "expired" && lease["ended_at"].as_str() > Some(&*began)
        })
    })
    .await;
    // The late write; then the old run, which the order refuses.
    shows(&url, "/locks/import:orders/history", |history| {
        has_entry(history, |lease| {
            lease["notes"][0]["kind"] == "stale-write-refused"
        })
    })
    .await;
    shows(&url, "/stats", |stats| {
        let totals = &stats["totals"];
        totals["stale_writes_refused"] != 0 && totals["acquires"]["refused"] != 0
    })
    .await;
    ends_by(demo, &files, Signal::TERM);
}

#[test]
fn ctrl_c_leaves_nothing() {
    let files = tempfile::tempdir().unwrap();
    let (demo, _url) = demo(&files);
    ends_by(demo, &files, Signal::INT);
}

#[test]
fn a_port_that_is_taken_is_110_and_leaves_nothing() {
    let (files, taken) = (
        tempfile::tempdir().unwrap(),
        TcpListener::bind("127.0.0.1:0"),
    );
    let address = taken.as_ref().unwrap().local_addr().unwrap().to_string();
    let ran =
        typed(&format!("demo --listen {address}")).env("TMPDIR", files.path().to_str().unwrap());
    ran.ends(110).says("Name another address with --listen");
    assert_eq!(fs::read_dir(files.path()).unwrap().count(), 0);
}
