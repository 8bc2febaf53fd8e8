//! `latchgate run` with commands that run for as long as they are let.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Stdio},
    thread::panicking,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::program::program;

/// One of them. Dropped, it is killed, and its guard kills the command.
pub(super) struct Running {
    child: Child,
}

/// What it says of a renewal that failed, before the next one.
const TROUBLE: &str = "could not be renewed, trying again";

// === impl Running ===

impl Running {
    /// Starts one on a lock of its own and waits until its command runs.
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

    /// Ends the command, which must still run, and says how often a renewal had to be tried again.
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
        // 128 and the signal that we sent: it was not the lease.
        assert_eq!(status.code(), Some(130), "{said}");
        said.matches(TROUBLE).count()
    }
}

impl Drop for Running {
    #[expect(clippy::print_stderr, reason = "whoever reads of a failure needs it")]
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
        if let (true, Some(mut err)) = (panicking(), self.child.stderr.take()) {
            let mut said = String::new();
            drop(err.read_to_string(&mut said));
            eprintln!("{said}");
        }
    }
}
