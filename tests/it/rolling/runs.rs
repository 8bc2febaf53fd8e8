//! `latchgate run` with commands that run until the test ends them.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Stdio},
    thread::panicking,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::program::program;

/// A running `latchgate run`. When dropped, it is killed, and its guard kills the command.
pub(super) struct Running {
    child: Child,
}

/// The line that `run` prints when a renewal has failed and will be repeated.
const TROUBLE: &str = "could not be renewed, trying again";

// === impl Running ===

impl Running {
    /// Starts a `latchgate run` with its own lock, and waits until its command runs.
    pub(super) fn start(urls: &str, number: usize) -> Self {
        let lock = format!("run:{number}");
        let child = program()
            .args(["run", &lock, "--ttl", "7500ms", "--url", urls])
            .args(["--", "sh", "-c", "echo up; exec sleep 600"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut running = Self {
            child: child.unwrap(),
        };
        let mut line = String::new();
        let out = running.child.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        running
    }

    /// Ends the command, which must still run. Answers how often a renewal was repeated.
    pub(super) fn end(mut self) -> usize {
        let ended = self.child.try_wait().unwrap();
        let mut said = String::new();
        if ended.is_none() {
            kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        }
        let mut err = self.child.stderr.take().unwrap();
        err.read_to_string(&mut said).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(ended, None, "it did not go on: {said}");
        // 128 plus the number of our signal: the command did not end because of its lease.
        assert_eq!(status.code(), Some(130), "{said}");
        said.matches(TROUBLE).count()
    }
}

impl Drop for Running {
    #[expect(clippy::print_stderr, reason = "whoever reads of a failure needs it")]
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
        if let (true, Some(mut err)) = (panicking(), self.child.stderr.take()) {
            let mut said = String::new();
            drop(err.read_to_string(&mut said));
            eprintln!("{said}");
        }
    }
}
