//! `latchgate events`.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdout, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use crate::support::{
    RedisServer,
    gateway::{Gateway, Setup},
    program::{latchgate, program},
};

/// The command, running. Dropped, it is killed.
struct Following {
    child: Child,
    /// `None`: nobody reads it any more.
    out: Option<BufReader<ChildStdout>>,
}

// === impl Following ===

impl Following {
    fn start(url: &str, arguments: &[&str]) -> Self {
        let mut child = program()
            .args(["events", "--url", url])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.take().map(BufReader::new);
        Self { child, out }
    }

    /// The next line. The test hangs, and is found to, if none comes.
    fn line(&mut self) -> String {
        let mut line = String::new();
        let out = self.out.as_mut().unwrap();
        out.read_line(&mut line).unwrap();
        line
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it has ended; answers the exit code and what it said.
    fn end(&mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + Duration::from_mins(1);
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut said = String::new();
        let err = self.child.stderr.as_mut().unwrap();
        err.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Acquires locks until one of them is heard of; answers what is.
fn heard(following: &mut Following, gateway: &Gateway) -> String {
    let url = gateway.url();
    let (stop, stopped) = std::sync::mpsc::sync_channel::<()>(0);
    let acquiring = std::thread::spawn(move || {
        let quarter = Duration::from_millis(250);
        let timed_out = Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        while stopped.recv_timeout(quarter) == timed_out {
            latchgate(&["acquire", "deploy", "--ttl", "200ms", "--url", &url]).read();
        }
    });
    let line = following.line();
    drop(stop);
    acquiring.join().unwrap();
    line
}

#[test]
fn it_follows_until_it_is_told_to_stop() {
    for signal in [Signal::INT, Signal::TERM] {
        let gateway = Gateway::start();
        let mut following = Following::start(&gateway.url(), &["--prefix", "deploy"]);
        let line = heard(&mut following, &gateway);
        assert!(line.contains("acquired  deploy  fencing token "), "{line}");
        following.signal(signal);
        assert_eq!(following.end().0, Some(0));
    }
}

#[test]
fn with_json_each_line_is_an_event() {
    let gateway = Gateway::start();
    let mut following = Following::start(&gateway.url(), &["--json"]);
    let event: serde_json::Value = serde_json::from_str(&heard(&mut following, &gateway)).unwrap();
    assert_eq!(
        (&event["kind"], &event["name"]),
        (&"acquired".into(), &"deploy".into())
    );
}

#[test]
fn it_ends_when_nobody_reads_it_any_more() {
    let gateway = Gateway::start();
    let mut following = Following::start(&gateway.url(), &[]);
    heard(&mut following, &gateway);
    // The other end of the pipe is gone with its reader.
    following.out = None;
    let child = &mut following.child;
    let url = gateway.url();
    let deadline = Instant::now() + Duration::from_mins(1);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it does not end");
        latchgate(&["acquire", "deploy", "--ttl", "200ms", "--url", &url]).read();
    }
    assert_eq!(following.end(), (Some(0), String::new()));
}

#[test]
fn a_gateway_that_is_not_there_or_refuses_ends_it() {
    let ran = latchgate(&["events", "--url", "http://127.0.0.1:1"]).read();
    assert_eq!(ran.code, Some(103), "{ran:?}");
    let gateway = Gateway::start();
    let elsewhere = format!("{}/elsewhere", gateway.url());
    let ran = latchgate(&["events", "--url", &elsewhere]).read();
    assert_eq!(ran.code, Some(106), "{ran:?}");
    let ran = latchgate(&["events", "--prefix", "a*", "--url", &gateway.url()]).read();
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("has '*' in it"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_goes_on_at_another_gateway_and_shows_the_gap() {
    let server = RedisServer::start().await;
    let store = format!("redis://127.0.0.1:{}", server.port());
    let start = || Gateway::start_with(Setup::default().with("LATCHGATE_STORE", &store));
    let (mut one, two) = (start(), start());
    let url = format!("{},{}", one.url(), two.url());
    let mut following = Following::start(&url, &[]);
    heard(&mut following, &one);
    one.kill();
    loop {
        let line = following.line();
        if line.contains("  gap  ") {
            assert!(line.contains("(unknown-id)"), "{line}");
            break;
        }
    }
    let line = heard(&mut following, &two);
    assert!(line.contains("deploy"), "{line}");
    following.signal(Signal::INT);
    let (code, said) = following.end();
    assert_eq!(code, Some(0), "{said}");
    let lost = format!("latchgate: the connection to {} is lost (", one.url());
    assert_eq!(said.matches(&lost).count(), 1, "{said}");
    assert!(said.contains("); connecting again\n"), "{said}");
    assert!(
        said.ends_with(&format!("latchgate: connected again, to {}\n", two.url())),
        "{said}"
    );
    // What the HTTP client calls it.
    assert!(!said.contains("error decoding"), "{said}");
}
