//! When a command must be stopped, so that it has ended before its lease has.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::Loss;

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
