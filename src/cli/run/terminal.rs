//! Who may read from the terminal: the process group of `latchgate run`, or that of its command.

use std::io;

use nix::sys::signal::{SigSet, Signal};
use rustix::{
    process::{Pid, getpgrp},
    termios::{tcgetpgrp, tcsetpgrp},
};

/// The terminal at standard input.
pub(super) struct Terminal {
    own: Pid,
    given: bool,
}

// === impl Terminal ===

impl Terminal {
    /// The terminal at standard input, if that is the one that controls this process.
    pub(super) fn of_process() -> Option<Self> {
        tcgetpgrp(io::stdin()).ok()?;
        Some(Self {
            own: getpgrp(),
            given: false,
        })
    }

    /// Gives the terminal to a group, if it is ours to give: that of a job in the background is not.
    pub(super) fn give(&mut self, group: Pid) {
        if tcgetpgrp(io::stdin()) == Ok(self.own) {
            self.given = set(group);
        }
    }

    /// Takes back what was given.
    pub(super) fn take_back(&mut self) {
        if self.given {
            // If the terminal has gone there is nothing to take.
            set(self.own);
            self.given = false;
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// Makes a group the one in the foreground. Whoever asks for that from the background is stopped by
/// the system, unless this signal is blocked.
fn set(group: Pid) -> bool {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    stop.thread_block()
        .expect("a thread may block signals for itself");
    let done = tcsetpgrp(io::stdin(), group).is_ok();
    stop.thread_unblock()
        .expect("a thread may unblock signals for itself");
    done
}
