//! Sends a script until its outcome is known or the deadline has passed.
//!
//! What certainly did not happen is tried again for a short while. What may have happened is sent
//! again until the deadline: every script recognises its own repetition.

use bb8_redis::redis::{Cmd, Pipeline, Value};
use tokio::time::{Duration, Instant, sleep};

use crate::{
    config::RedisConfig,
    store::{StoreError, Unavailability, Uncertainty},
};

use super::{
    Slot,
    failure::Failure,
    foreign,
    keys::Keys,
    link::Link,
    scripts::{Reply, Script},
    topology::Topology,
};

/// Carries commands to the servers of a store.
pub(super) struct Dispatch {
    pub(super) topology: Topology,
    command_timeout: Duration,
    deadline: Duration,
}

/// Which copy of a command is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    /// No earlier copy can arrive.
    First,
    /// An earlier copy may have been carried out, or may yet be.
    Again,
}

/// A reply, with what it takes to judge it.
pub(super) struct Answer {
    pub(super) reply: Reply,
    /// Why there was more than one copy, if an earlier one may have been carried out.
    pub(super) earlier: Option<Uncertainty>,
}

/// How long a caller waits for a server that refuses or does not listen: long enough for a restart,
/// short enough for a caller to hear that nothing happened and to do something else.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest pause before the first repetition; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

// === impl Dispatch ===

impl Dispatch {
    pub(super) fn new(topology: Topology, config: &RedisConfig) -> Self {
        Self {
            topology,
            command_timeout: config.command_timeout_ms.duration(),
            deadline: config.deadline_ms.duration(),
        }
    }

    /// Runs a script on the keys of a lock. `fill` appends keys and arguments.
    pub(super) async fn run<F>(
        &self,
        script: &Script,
        keys: &Keys,
        echo: &str,
        fill: F,
    ) -> Result<Answer, StoreError>
    where
        F: Fn(&mut Cmd, Sending) + Send + Sync,
    {
        let start = Instant::now();
        let mut earlier = None;
        let mut pauses = Pauses::new();
        loop {
            let sending = match earlier {
                None => Sending::First,
                Some(_) => Sending::Again,
            };
            let limit = start + self.deadline;
            let tried = self.once(script, keys.slot(), echo, limit, |command| {
                fill(command, sending);
            });
            let (patience, error) = match tried.await {
                Ok(reply) => return Ok(Answer { reply, earlier }),
                Err(Failure::Unknown(Uncertainty::UnexpectedReply(what))) => {
                    // Whatever answers there is no Redis that runs our scripts.
                    return Err(Uncertainty::UnexpectedReply(what).into());
                }
                Err(Failure::Unknown(why)) => {
                    earlier = Some(why.clone());
                    (self.deadline, why.into())
                }
                Err(Failure::Transient(why) | Failure::WrongNode(why)) => match &earlier {
                    Some(unknown) => (self.deadline, unknown.clone().into()),
                    None => (PATIENCE.min(self.deadline), why.into()),
                },
                Err(failure @ (Failure::Refused(_) | Failure::WrongType | Failure::NoScript)) => {
                    return Err(match earlier {
                        Some(unknown) => unknown.into(),
                        None => self.refused(failure, keys, limit).await,
                    });
                }
            };
            let pause = pauses.next();
            if start.elapsed() + pause >= patience {
                return Err(error);
            }
            sleep(pause).await;
        }
    }

    /// Sends one copy. A script that the server does not know is sent in full.
    pub(super) async fn once(
        &self,
        script: &Script,
        slot: Slot,
        echo: &str,
        deadline: Instant,
        fill: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Reply, Failure> {
        let limit = deadline.min(Instant::now() + self.command_timeout);
        let pool = self.topology.pool(slot);
        let mut link = pool.link(deadline).await.map_err(unconnected)?;
        let mut command = script.by_hash();
        fill(&mut command);
        let value = match link.send(&command, limit).await {
            Err(Failure::NoScript) => {
                let mut command = script.in_full();
                fill(&mut command);
                link.send(&command, limit).await
            }
            other => other,
        }?;
        Reply::read(value, echo).map_err(|what| unexpected(&link, what))
    }

    /// Sends a plain command, once.
    pub(super) async fn plain(&self, slot: Slot, command: &Cmd) -> Result<Value, Failure> {
        let limit = Instant::now() + self.command_timeout;
        let pool = self.topology.pool(slot);
        let mut link = pool.link(limit).await.map_err(unconnected)?;
        link.send(command, limit).await
    }

    /// Sends plain commands together, once. A refusal of one of them is among the replies.
    pub(super) async fn batch(
        &self,
        slot: Slot,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, Failure> {
        let limit = Instant::now() + self.command_timeout;
        let pool = self.topology.pool(slot);
        let mut link = pool.link(limit).await.map_err(unconnected)?;
        link.send_all(commands, limit).await
    }

    async fn refused(&self, failure: Failure, keys: &Keys, limit: Instant) -> StoreError {
        match failure {
            Failure::WrongType => foreign::find(self, keys, limit).await,
            Failure::Refused(why) | Failure::Transient(why) | Failure::WrongNode(why) => why.into(),
            Failure::NoScript => {
                Unavailability::Refused("NOSCRIPT: the server forgets scripts".to_owned()).into()
            }
            Failure::Unknown(why) => why.into(),
        }
    }
}

/// No connection: nothing was sent.
fn unconnected(why: Unavailability) -> Failure {
    match why {
        Unavailability::Misconfigured(_) => Failure::Refused(why),
        other => Failure::Transient(other),
    }
}

/// A reply to something else: whatever comes on this connection cannot be believed any more.
fn unexpected(link: &Link, what: String) -> Failure {
    link.retire();
    Failure::Unknown(Uncertainty::UnexpectedReply(what))
}

// === impl Pauses ===

/// Pauses with full jitter, so that the callers of a server that comes back do not come together.
pub(super) struct Pauses {
    longest: Duration,
}

impl Pauses {
    pub(super) fn new() -> Self {
        Self {
            longest: FIRST_PAUSE,
        }
    }

    pub(super) fn next(&mut self) -> Duration {
        let longest = self.longest;
        self.longest = (longest * 2).min(LONGEST_PAUSE);
        // Without randomness callers come together, which is no reason to fail.
        let share = getrandom::u32().unwrap_or(u32::MAX / 2);
        longest.mul_f64(f64::from(share) / f64::from(u32::MAX))
    }
}
