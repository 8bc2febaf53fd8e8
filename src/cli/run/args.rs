//! What `latchgate run` takes, and when it stops its command.

#![expect(
    clippy::doc_markdown,
    reason = "these doc comments are help texts for a terminal"
)]

use std::{ffi::OsString, time::Duration};

use clap::{Args, ValueEnum};
use tokio::time::Instant;

use crate::{client::Loss, lock::LockName};

use super::super::{
    caller::{connection::ConnectionArgs, request::RequestArgs},
    terminal::text,
};

/// Run a command while holding a lock.
///
/// Waits for the lock, runs the command, and releases the lock when the command has ended. The lease
/// is renewed when a third of it has passed. If it cannot be renewed the command is stopped before
/// the lease is over: TERM to its whole process group, then KILL. If somebody has ended the lease
/// (break, or a release with its token), the next renewal reports that: KILL follows at once if
/// somebody else holds the lock by then, and otherwise a second after the TERM.
///
/// The command finds the name of the lock in LATCHGATE_NAME and the fencing token in
/// LATCHGATE_FENCING_TOKEN; of several locks those of the first, and in LATCHGATE_FENCING_TOKENS all as a JSON object,
/// fencing token by name. Hand the fencing token to whatever the lock protects. With --limit it finds its
/// slot in LATCHGATE_SLOT: a number that no other holder of the lock has. Of several locks that is the slot in the
/// first, and LATCHGATE_SLOTS has all as a JSON object, slot by name.
///
/// The signals INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to the process group of the
/// command. What the command has left running in its process group when it ends is stopped, too,
/// before the lock is released; if something lives on although it was killed, because it waits for a
/// disk, the lock is not released but ends with its TTL. Where the system does not show its processes
/// (no /proc), what the command leaves running is killed without time to end. A process that leaves the
/// group (setsid) is on its own.
///
/// If this process is killed (KILL), a second one, its guard, kills the process group of the command at
/// once; it also does so before the lease is over if this process stands still. If the guard is killed,
/// too, Linux kills the command itself, but neither what it has started nor a command that has changed
/// its user (sudo). With --on-lost continue the command goes on.
///
/// The exit code is that of the command, or 128 and the number of the signal that ended it. Where
/// there was no command, or it was stopped because the lease was lost, it is one of those below; 126
/// if the command cannot be executed, 127 if it is not found (both are looked at before the wait, too), 128 and the
/// number of the signal if one came during the wait.
#[derive(Args)]
pub(in crate::cli) struct RunArgs {
    /// The lock: letters, digits and . _ : @ ~ -. Of several, 2 to 16, all are held while the command runs
    #[arg(required = true, value_name = "NAME")]
    pub(super) names: Vec<LockName>,
    #[command(flatten)]
    pub(super) request: RequestArgs,
    /// How long to wait for a lock that is held; 0 is not at all [default: for as long as it takes]
    ///
    /// The requests that wait come and go, but keep their place in the queue. Of several locks the place is kept for one
    /// request only, of 55 s at most; the next one begins anew. On a terminal a line shows how the wait goes; elsewhere standard error has one when it begins, when the position or
    /// the holder changes, and every 30 s. A gateway that was never reached is not waited for. One that is there and
    /// does not answer is asked again for as long as the wait may take, or for 25 s with 0; then it is
    /// asked for 33 s at most to take back a grant whose answer was lost. A signal ends both.
    #[arg(long, value_name = "TIME", value_parser = text::parse_wait)]
    pub(super) wait: Option<Duration>,
    /// What becomes of the command when the lease is lost
    #[arg(long, value_enum, default_value_t)]
    pub(super) on_lost: OnLost,
    /// What becomes of the command when somebody asks for the lock (break --grace)
    ///
    /// A renewal tells of it. Standard error says who asked and why.
    #[arg(long, value_enum, default_value_t)]
    pub(super) on_request: OnRequest,
    /// How long before the KILL the command gets a TERM [default: a third of the TTL, at most 10s]
    ///
    /// At most half of the TTL: the other half is for renewals. A lease that somebody has ended leaves
    /// no more than a second.
    #[arg(long, value_name = "TIME", value_parser = text::parse_wait)]
    pub(super) kill_after: Option<Duration>,
    /// Put the token of the lease into the environment of the command, as LATCHGATE_TOKEN
    ///
    /// Whoever has the token can renew and release the lease: a release stops the command, and a renewal
    /// with a shorter TTL sets the TTL of the renewals that follow.
    #[arg(long)]
    pub(super) token_env: bool,
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}

/// What becomes of the command when the lease is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum OnLost {
    /// It is stopped before somebody else can have the lock.
    #[default]
    Terminate,
    /// It goes on: somebody else may have the lock meanwhile.
    Continue,
}

/// What becomes of the command when somebody asks for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum OnRequest {
    /// Its process group gets a TERM, and the lease is renewed while it ends; the exit code is its own.
    #[default]
    Term,
    /// It goes on until it has ended, or the lease is broken.
    Ignore,
}

// === Timing ===
//
// When a command must be stopped, so that it has ended before its lease has.

/// How the end of a lease is divided up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timing {
    /// How long the command has from TERM to KILL.
    kill_after: Duration,
    /// How long the kernel has from KILL to the end of the lease.
    margin: Duration,
}

/// The shortest lease with which a command is run: a shorter one is over whenever the machine is
/// busy for a moment.
pub(super) const SHORTEST_TTL: Duration = Duration::from_secs(1);

/// How long a command has from TERM to KILL if its lease has ended before its time, and nobody else
/// holds the lock yet: no longer than a person takes who has ended it to give it to the next.
const UNHELD: Duration = Duration::from_secs(1);

// === impl Timing ===

impl Timing {
    /// The default is a third of the TTL, because the first third is over when the lease is renewed
    /// and the second is for trying again; but not more than people wait for.
    pub(super) fn new(ttl: Duration, kill_after: Option<Duration>) -> Self {
        let default = (ttl / 3).min(Duration::from_secs(10));
        Self {
            kill_after: kill_after.unwrap_or(default).min(longest_kill_after(ttl)),
            margin: (ttl / 20).min(Duration::from_millis(500)),
        }
    }

    /// When to begin stopping the command of a lease that lasts until then.
    pub(super) fn term_at(self, until: Instant) -> Instant {
        earlier(self.kill_at(until), self.kill_after)
    }

    /// When the command must not run any more.
    pub(super) fn kill_at(self, until: Instant) -> Instant {
        earlier(until, self.margin)
    }

    /// When to kill a command whose lease is lost since now.
    pub(super) fn kill_if_lost_now(self, loss: &Loss) -> Instant {
        match loss {
            // Anybody may be granted the lock at any moment.
            Loss::Ended(problem) if problem.held != Some(true) => {
                Instant::now() + self.kill_after.min(UNHELD)
            }
            // Somebody else holds it, and what the command did to tidy up would harm them as well; or
            // the command was asked to stop while there was time. Nothing is released before it has ended.
            Loss::Ended(_)
            | Loss::Expired { .. }
            | Loss::HoldLimit
            | Loss::NotReleased
            | Loss::Released => Instant::now(),
        }
    }

    /// When to kill a command that is asked to stop now.
    pub(super) fn kill_if_stopped_now(self) -> Instant {
        Instant::now() + self.kill_after
    }
}

/// The longest time from TERM to KILL that leaves enough of the lease for renewals.
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
