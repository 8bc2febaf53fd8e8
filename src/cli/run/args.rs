//! The arguments of `latchgate run`, and the times at which it stops its command.

#![expect(
    clippy::doc_markdown,
    reason = "these doc comments are help texts for a terminal"
)]

use std::{env, ffi::OsString, time::Duration};

use clap::{Args, ValueEnum};
use tokio::time::Instant;

use crate::client::Loss;

use super::super::{
    caller::{
        connection::ConnectionArgs,
        request::{LockArg, RequestArgs},
    },
    terminal::text,
};

/// Run a command while holding a lock.
///
/// Waits for the lock, runs the command, and releases the lock when the command has ended. The lease is renewed
/// when a third of its time has passed. If it cannot be renewed, the command is stopped before the lease ends: TERM
/// to its whole process group, then KILL. If another caller has ended the lease (break, or a release with its
/// token), the next renewal reports that: KILL follows at once if another lease holds the lock by then, and
/// otherwise a second after the TERM.
///
/// The command finds the name of the lock in LATCHGATE_NAME and the fencing token in LATCHGATE_FENCING_TOKEN. Of
/// several locks these are for the first, and LATCHGATE_FENCING_TOKENS has all as a JSON object, fencing token by
/// name. Pass the fencing token to the resource that the lock protects. With --limit the command finds its slot in
/// LATCHGATE_SLOT: a number that no other holder of the lock has. Of several locks that is the slot in the first, if
/// it has one, and LATCHGATE_SLOTS has all as a JSON object, slot by name.
///
/// The signals INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to the process group of the command. Processes
/// that the command leaves running in its process group are killed before the lock is released, without time to
/// end. If such a process survives the KILL, because it waits for a disk, the lock is not released but ends with its
/// TTL. A process that leaves the group (setsid) is not stopped. In a container, use an init as the first process.
///
/// If `latchgate run` itself is killed (KILL), a second process, its guard, kills the process group of the command
/// at once. The guard also does so before the lease ends if `latchgate run` is suspended. If the guard is killed
/// too, Linux kills the command, but neither the processes that it started nor a command that has changed its user
/// (sudo). With --on-lost continue the command keeps running.
///
/// The exit code is that of the command, or 128 and the number of the signal that ended it. If the command did not
/// run, or the lease was lost before the command ended, it is one of the codes below; 126 if the command cannot be
/// executed, 127 if it or its interpreter is not found (both are checked before the wait, too), 128 and the number
/// of the signal if one came during the wait.
#[derive(Args)]
pub(in crate::cli) struct RunArgs {
    /// The lock: letters, digits and . _ : @ ~ - /. Of several, 2 to 16, all are held while the command runs
    ///
    /// NAME=shared shares this lock as --shared does, NAME=20 as --limit 20 does, and NAME=exclusive holds it alone as
    /// --exclusive does. The other locks are held as they are declared, or alone.
    #[arg(required = true, value_name = "NAME", value_parser = lock_arg)]
    pub(super) names: Vec<LockArg>,
    #[command(flatten)]
    pub(super) request: RequestArgs,
    /// How long to wait for a lock that is held; 0 is not at all [default: for as long as it takes]
    ///
    /// A wait may consist of several requests, which keep the position in the queue. Of several locks the position
    /// is kept during one request only, of at most 55 s; the next request starts again without it. On a terminal, a
    /// line shows the progress of the wait. Otherwise a line is written to standard error at the start, when the
    /// position or the holder changes, and every 30 s. The command does not wait for a gateway that it never
    /// reached. If a reached gateway does not answer, the request is repeated for as long as the wait may take, or
    /// for 25 s with 0; then the command tries for at most 33 s to take back a grant whose answer was lost. A
    /// signal ends both.
    #[arg(long, value_name = "TIME", value_parser = text::parse_wait)]
    pub(super) wait: Option<Duration>,
    /// What happens to the command when the lease is lost
    #[arg(long, value_enum, default_value_t)]
    pub(super) on_lost: OnLost,
    /// What happens to the command when a release of the lock is requested (break --grace)
    ///
    /// The next renewal reports the request. Standard error shows the caller that requested it, and the reason.
    #[arg(long, value_enum, default_value_t)]
    pub(super) on_request: OnRequest,
    /// The time from TERM to KILL for the command [default: a third of the TTL, at most 10s]
    ///
    /// At most half of the TTL: the other half is for renewals. If another caller has ended the lease, the time is
    /// at most a second.
    #[arg(long, value_name = "TIME", value_parser = text::parse_wait)]
    pub(super) kill_after: Option<Duration>,
    /// Put the token of the lease into the environment of the command, as LATCHGATE_TOKEN
    ///
    /// Every process with the token can renew and release the lease: a release stops the command, and a renewal
    /// with a shorter TTL sets the TTL of later renewals.
    #[arg(long)]
    pub(super) token_env: bool,
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}

/// What happens to the command when the lease is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum OnLost {
    /// The command is stopped before another caller can get the lock.
    #[default]
    Terminate,
    /// The command keeps running, although another caller may get the lock.
    Continue,
}

/// What happens to the command when a release of the lock is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum OnRequest {
    /// The command gets a TERM, and the lease is renewed while it ends; the exit code is that of the command.
    #[default]
    Term,
    /// The command keeps running until it ends or the lease is broken.
    Ignore,
}

/// Parses the name of a lock. A text that is no name is most likely the command, if no `--` stands before it.
fn lock_arg(text: &str) -> Result<LockArg, String> {
    LockArg::parse(text).map_err(|error| {
        if env::args_os().any(|argument| argument == "--") {
            return error;
        }
        format!("-- is missing before the command: latchgate run NAME -- {text} (as the name of a lock, {text} {error})")
    })
}

// === Timing ===
//
// The times at which a command must be stopped, so that it ends before its lease.

/// The time from TERM to KILL, and the time from KILL to the end of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timing {
    /// The time from TERM to KILL.
    kill_after: Duration,
    /// The time from KILL to the end of the lease, in which the kernel ends the processes.
    margin: Duration,
}

/// The shortest TTL with which `run` starts a command. With a shorter lease, a machine that is busy for a moment would
/// renew too late, and the command would be stopped.
pub(super) const SHORTEST_TTL: Duration = Duration::from_secs(1);

/// The time from TERM to KILL if another caller has ended the lease and no new lease holds the lock yet. The time is
/// short, because the caller that ended the lease probably wants the lock for another user soon.
const UNHELD: Duration = Duration::from_secs(1);

// === impl Timing ===

impl Timing {
    /// The default time from TERM to KILL is a third of the TTL: the first third passes before the renewal, and the
    /// second third is for repeated renewals. The default is never longer than a person would wait.
    pub(super) fn new(ttl: Duration, kill_after: Option<Duration>) -> Self {
        let default = (ttl / 3).min(Duration::from_secs(10));
        Self {
            kill_after: kill_after.unwrap_or(default).min(longest_kill_after(ttl)),
            margin: (ttl / 20).min(Duration::from_millis(500)),
        }
    }

    /// When to send TERM to the command of a lease that lasts until `until`.
    pub(super) fn term_at(self, until: Instant) -> Instant {
        earlier(self.kill_at(until), self.kill_after)
    }

    /// When the command of a lease that lasts until `until` must be killed.
    pub(super) fn kill_at(self, until: Instant) -> Instant {
        earlier(until, self.margin)
    }

    /// When to kill a command whose lease was lost just now.
    pub(super) fn kill_if_lost_now(self, loss: &Loss) -> Instant {
        match loss {
            // The lock is free, so it may be granted to another caller at any moment.
            Loss::Ended(problem) if problem.held != Some(true) => {
                Instant::now() + self.kill_after.min(UNHELD)
            }
            // Either another lease holds the lock, so that cleanup by the command could harm the other holder; or the
            // command has already had its TERM before the lease ended. In both cases the command is killed now.
            Loss::Ended(_)
            | Loss::Expired { .. }
            | Loss::HoldLimit
            | Loss::NotReleased
            | Loss::Released => Instant::now(),
        }
    }
}

/// The longest time from TERM to KILL that leaves half of the TTL for renewals.
pub(super) fn longest_kill_after(ttl: Duration) -> Duration {
    ttl / 2
}

fn earlier(instant: Instant, by: Duration) -> Instant {
    instant.checked_sub(by).unwrap_or(instant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_command_is_stopped_after_the_second_third_and_killed_before_the_end() {
        let now = Instant::now() + Duration::from_hours(1);
        let ttl = Duration::from_secs(30);
        let timing = Timing::new(ttl, None);
        let left = |at: Instant| (now + ttl - at).as_millis();
        assert_eq!(left(timing.term_at(now + ttl)), 10_500);
        assert_eq!(left(timing.kill_at(now + ttl)), 500);
    }

    #[test]
    fn half_of_a_lease_is_for_renewals() {
        let ttl = Duration::from_secs(10);
        let long = Timing::new(ttl, Some(Duration::from_secs(9)));
        assert_eq!(long, Timing::new(ttl, Some(Duration::from_secs(5))));
        assert_ne!(long, Timing::new(ttl, Some(Duration::from_secs(4))));
    }
}
