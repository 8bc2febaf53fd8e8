//! Where `latchgate run` tells its guard what to stop, and when.

use std::{
    env, fmt,
    io::{self, BufRead, Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitCode, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

use nix::sys::signal::{
    SigSet,
    Signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, Signal, kill_process_group},
};
use tokio::time::Instant;

use crate::clock::{Clock, SystemClock};

/// A second process that stops the command where this one cannot: it was killed, or it does not run.
///
/// The order to kill at a certain moment is given again whenever the lease has been renewed.
pub(super) struct Guard {
    child: Child,
}

/// How long it is waited for that the guard is there, which takes milliseconds. The command does not run
/// yet.
const READY: Duration = Duration::from_secs(5);

// === impl Guard ===

impl Guard {
    /// Starts a guard of a process group, with nothing to do yet. From now on no signal ends it that is
    /// meant for the command.
    pub(super) fn start(group: Pid) -> io::Result<Self> {
        let mut child = Command::new(own_program()?)
            .arg0(GUARD)
            .stdin(Stdio::piped())
            // Not those of the command: whoever reads what that writes does not wait for the guard.
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C is not meant for it.
            .process_group(0)
            .spawn()?;
        let ready = child.stdout.take().map_or(Ok(()), is_ready);
        if let Err(error) = ready {
            // It may stand still.
            drop(child.kill().and_then(|()| child.wait()));
            return Err(error);
        }
        let mut guard = Self { child };
        guard.order(&Order::Watch(group));
        Ok(guard)
    }

    /// The command must not run any more at that moment.
    pub(super) fn kill_at(&mut self, at: Instant) {
        let left = at.saturating_duration_since(Instant::now());
        self.order(&Order::KillAt(SystemClock.since_boot() + left));
    }

    /// Its number.
    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether it has ended before its time. It is collected then.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The command has ended: there is nothing to stop any more.
    pub(super) fn dismiss(mut self) {
        self.order(&Order::Dismiss);
        // It ends with the pipe at the latest.
        drop(self.child.stdin.take());
        let _: io::Result<_> = self.child.wait();
    }

    fn order(&mut self, order: &Order) {
        if let Some(pipe) = &mut self.child.stdin {
            // A guard that has gone guards nothing; the command goes on without.
            drop(writeln!(pipe, "{order}"));
        }
    }
}

/// Waits until a guard has said that it is there.
fn is_ready(mut says: ChildStdout) -> io::Result<()> {
    let until = Instant::now() + READY;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&says, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return says.read_exact(&mut [0; READY_WORD.len()]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// This program, even if its file was replaced since it was started.
pub(super) fn own_program() -> io::Result<PathBuf> {
    let link = Path::new("/proc/self/exe");
    if link.exists() {
        Ok(link.to_owned())
    } else {
        env::current_exe()
    }
}

// === Guard process ===
//
// The guard: a process that kills a process group at its deadline, or when `latchgate run` has ended without
// notice.

/// The name under which the program is a guard.
pub(super) const GUARD: &str = "latchgate-run-guard";
/// What it says when no signal ends it any more.
pub(super) const READY_WORD: &[u8; 1] = b".";
/// How often it looks at the clock: that of the machine goes on while the machine sleeps, the one
/// by which a process waits does not.
const LOOK: Duration = Duration::from_secs(1);

/// What a guard is told, as a line of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Order {
    /// This is the process group.
    Watch(Pid),
    /// Kill it at this time since boot, unless another order comes before.
    KillAt(Duration),
    /// Nothing is left to be killed.
    Dismiss,
}

/// Whether this process is to be a guard.
pub(in crate::cli) fn is_guard() -> bool {
    env::args_os().next().is_some_and(|name| name == GUARD)
}

/// Guards until it is dismissed or has killed.
pub(in crate::cli) fn guard() -> ExitCode {
    ignore_signals();
    // A write fails only if the other end is gone, and then the orders end too.
    let mut out = io::stdout();
    drop(out.write_all(READY_WORD).and_then(|()| out.flush()));
    let (sender, orders) = sync_channel(1);
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            // What cannot be read ends the orders.
            let Some(order) = line.ok().and_then(|line| Order::parse(&line)) else {
                return;
            };
            if sender.send(order).is_err() {
                return;
            }
        }
    });
    if let Some(group) = stand_guard(&orders, &SystemClock) {
        // All it can say is that nobody is left.
        let _: Result<_, _> = kill_process_group(group, Signal::KILL);
    }
    ExitCode::SUCCESS
}

/// Whoever ends a whole session, as a service manager does, means the command and not what sees to it that
/// it ends. For every thread that is started from here.
fn ignore_signals() {
    let mut signals = SigSet::empty();
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2] {
        signals.add(signal);
    }
    // A guard that can be ended is better than none.
    let _: Result<_, _> = signals.thread_block();
}

/// Waits for the moment to kill, and says whom.
fn stand_guard(orders: &Receiver<Order>, clock: &dyn Clock) -> Option<Pid> {
    let mut group = None;
    let mut kill_at = Duration::MAX;
    loop {
        let left = kill_at.saturating_sub(clock.since_boot());
        if left.is_zero() {
            return group;
        }
        match orders.recv_timeout(left.min(LOOK)) {
            Ok(Order::Watch(watched)) => group = Some(watched),
            Ok(Order::KillAt(at)) => kill_at = at,
            Ok(Order::Dismiss) => return None,
            Err(RecvTimeoutError::Timeout) => {}
            // `latchgate run` was killed.
            Err(RecvTimeoutError::Disconnected) => return group,
        }
    }
}

// === impl Order ===

impl Order {
    fn parse(line: &str) -> Option<Self> {
        match line.split_once(' ') {
            Some(("watch", group)) => Some(Self::Watch(Pid::from_raw(group.parse().ok()?)?)),
            Some(("kill-at", ms)) => Some(Self::KillAt(Duration::from_millis(ms.parse().ok()?))),
            Some(_) => None,
            None => (line == "dismiss").then_some(Self::Dismiss),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Watch(group) => write!(f, "watch {}", group.as_raw_pid()),
            Self::KillAt(at) => write!(f, "kill-at {}", at.as_millis()),
            Self::Dismiss => f.write_str("dismiss"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use crate::clock::ManualClock;

    use super::*;

    fn group() -> Pid {
        Pid::from_raw(4711).unwrap()
    }

    fn killed(orders: &[Order], clock: &ManualClock) -> Option<Pid> {
        let (sender, receiver) = sync_channel(orders.len());
        for order in orders {
            sender.send(order.clone()).unwrap();
        }
        drop(sender);
        stand_guard(&receiver, clock)
    }

    #[test]
    fn an_order_is_read_as_it_was_written() {
        for order in [
            Order::Watch(group()),
            Order::KillAt(Duration::from_millis(5)),
            Order::Dismiss,
        ] {
            assert_eq!(Order::parse(&order.to_string()), Some(order));
        }
        for bad in ["", "watch", "watch 0", "watch x", "kill-at -1", "kill 1"] {
            assert_eq!(Order::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn kills_when_nobody_gives_orders_any_more() {
        let clock = ManualClock::at(SystemTime::UNIX_EPOCH);
        let later = clock.since_boot() + Duration::from_hours(1);
        let orders = [Order::Watch(group()), Order::KillAt(later)];
        assert_eq!(killed(&orders, &clock), Some(group()));
    }

    #[test]
    fn kills_nobody_once_it_is_dismissed() {
        let clock = ManualClock::at(SystemTime::UNIX_EPOCH);
        let later = clock.since_boot() + Duration::from_hours(1);
        let orders = [Order::Watch(group()), Order::KillAt(later), Order::Dismiss];
        assert_eq!(killed(&orders, &clock), None);
    }

    #[test]
    fn kills_at_its_time_although_orders_may_still_come() {
        let clock = ManualClock::at(SystemTime::UNIX_EPOCH);
        let (sender, receiver) = sync_channel(2);
        sender.send(Order::Watch(group())).unwrap();
        sender.send(Order::KillAt(clock.since_boot())).unwrap();
        assert_eq!(stand_guard(&receiver, &clock), Some(group()));
        drop(sender);
    }
}
