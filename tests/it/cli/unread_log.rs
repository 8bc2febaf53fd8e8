//! A log that nobody reads: a terminal that was stopped, a collector that hangs.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use crate::support::program::program;

/// Killed if the test ends early.
struct Unread(Child);

impl Drop for Unread {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_gateway_whose_log_nobody_reads_goes_on_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    let mut gateway = Unread(
        program()
            .env("LATCHGATE_LOG_LEVEL", "trace")
            .env("LATCHGATE_LOG_REQUESTS", "all")
            .args(["serve", "--listen", "127.0.0.1:0", "--store"])
            .arg(format!("embedded:{}", directory.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(gateway.0.stdout.take().unwrap()).lines();
    let line = lines
        .find(|line| line.as_ref().unwrap().contains("http://"))
        .unwrap()
        .unwrap();
    let (_, address) = line.split_once("http://").unwrap();
    let end = address
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':')
        .unwrap_or(address.len());
    let mut caller = TcpStream::connect(&address[..end]).unwrap();
    caller
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    // Far more lines than a pipe holds, which is 64 KiB.
    let mut answer = [0; 4_096];
    for _ in 0..1_500 {
        let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        caller.write_all(request.as_bytes()).unwrap();
        let read = caller.read(&mut answer).unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 200"));
    }
    kill_process(Pid::from_child(&gateway.0), Signal::TERM).unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    let status = loop {
        if let Some(status) = gateway.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(0));
    let mut log = Vec::new();
    gateway
        .0
        .stderr
        .take()
        .unwrap()
        .read_to_end(&mut log)
        .unwrap();
    assert!(
        log.len() >= 32 * 1024,
        "the pipe was never full: {}",
        log.len()
    );
}
