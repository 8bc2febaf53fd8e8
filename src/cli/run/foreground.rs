//! Sets the terminal's foreground process group: that of `latchgate run`, or that of its command.

use std::io;

use nix::sys::signal::{SigSet, Signal};
use rustix::{
    process::{Pid, getpgid, getpgrp},
    termios::{tcgetpgrp, tcsetpgrp},
};

/// The terminal at standard input.
pub(super) struct Terminal {
    own: Pid,
    given: bool,
}

// === impl Terminal ===

impl Terminal {
    /// The terminal at standard input, if it is the controlling terminal of this process. If this process is in the
    /// foreground, the command will be.
    pub(super) fn of_process() -> Option<Self> {
        let foreground = tcgetpgrp(io::stdin()).ok()?;
        // Without a terminal, this process may have no group that its container knows.
        let own = getpgrp();
        Some(Self {
            own,
            given: foreground == own,
        })
    }

    /// Makes `group` the foreground group of the terminal, if this process is in the foreground. If this process is a
    /// background job, nothing changes.
    pub(super) fn give(&mut self, group: Pid) {
        if tcgetpgrp(io::stdin()) == Ok(self.own) {
            self.given = set_foreground(group);
        }
    }

    /// Makes the process group of this process the foreground group of the terminal again.
    pub(super) fn take_back(&mut self) {
        if self.given {
            // A failure is ignored: it means that the terminal is gone.
            set_foreground(self.own);
            self.given = false;
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// Makes the process group of this process the foreground group of the terminal, if that is the group of its parent.
pub(super) fn take_terminal_of(parent: Option<Pid>) {
    let foreground = tcgetpgrp(io::stdin()).ok();
    if foreground.is_some() && foreground == getpgid(parent).ok() {
        set_foreground(getpgrp());
    }
}

/// Makes `group` the foreground group of the terminal. TTOU is blocked meanwhile, because the system suspends a
/// background process that changes the foreground group.
fn set_foreground(group: Pid) -> bool {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    stop.thread_block()
        .expect("a thread may block signals for itself");
    let done = tcsetpgrp(io::stdin(), group).is_ok();
    stop.thread_unblock()
        .expect("a thread may unblock signals for itself");
    done
}
