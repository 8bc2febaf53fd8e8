//! Sends a script until its outcome is known or the deadline has passed.
//!
//! What certainly did not happen is tried again for a short while. What may have happened is sent
//! again until the deadline: every script recognises its own repetition.

use std::sync::{Arc, Mutex};

use bb8_redis::redis::Cmd;
use tokio::time::{Duration, Instant, sleep};

use crate::{
    config::RedisConfig,
    mutants::{self, Mutant},
    store::{StoreError, Unavailability, Uncertainty},
};

use super::{
    super::{
        foreign,
        keys::Keys,
        scripts::{Reply, Script},
    },
    failure::Failure,
    sending::KeyForm,
    shard::CommandClass,
    topology::Topology,
};

/// Carries commands to the servers of a store.
#[derive(Clone)]
pub(crate) struct Dispatch {
    pub(crate) topology: Arc<Topology>,
    pub(crate) command_timeout: Duration,
    /// Why messages cannot be subscribed to there, if that is refused for good.
    pub(crate) unsubscribed: Arc<Mutex<Option<String>>>,
    deadline: Duration,
    /// When the outcome of what is sent must be known: that of one request, whatever it takes. Without
    /// one each command has the deadline for itself.
    limit: Option<Instant>,
}

/// Which copy of a command is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// No earlier copy can arrive.
    First,
    /// An earlier copy may have been carried out, or may yet be.
    Again,
}

/// A reply, with what it takes to judge it.
pub(crate) struct DispatchReply {
    pub(crate) reply: Reply,
    /// Why there was more than one copy, if an earlier one may have been carried out.
    pub(crate) earlier: Option<Uncertainty>,
}

/// How long a caller waits for a server that refuses or does not listen: long enough for a restart,
/// short enough for a caller to hear that nothing happened and to do something else.
const RETRY_FOR: Duration = Duration::from_secs(1);
/// The longest pause before the first repetition; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

// === impl Dispatch ===

impl Dispatch {
    pub(crate) fn new(topology: Topology, config: &RedisConfig) -> Self {
        Self {
            topology: Arc::new(topology),
            command_timeout: config.command_timeout_ms.duration(),
            unsubscribed: Arc::default(),
            deadline: config.deadline_ms.duration(),
            limit: None,
        }
    }

    /// The same for all that is sent for one request: together it has the time that a single command
    /// has.
    pub(crate) fn for_one_request(&self) -> Self {
        Self {
            limit: Some(Instant::now() + self.deadline),
            ..self.clone()
        }
    }

    /// When the outcome of what is sent now must be known.
    pub(crate) fn limit(&self) -> Instant {
        self.limit.unwrap_or_else(|| Instant::now() + self.deadline)
    }

    /// How much of a request's time is kept for undoing what it has done.
    pub(crate) fn reserve(&self) -> Duration {
        self.command_timeout.min(self.deadline / 4)
    }

    /// Runs a script on the keys of a lock. `fill` appends keys and arguments.
    pub(crate) async fn run<F>(
        &self,
        script: &Script,
        keys: &Keys,
        echo: &str,
        fill: F,
    ) -> Result<DispatchReply, StoreError>
    where
        F: Fn(&mut Cmd, Sending) + Send + Sync,
    {
        let (start, limit) = (Instant::now(), self.limit());
        let mut earlier: Option<Uncertainty> = None;
        let mut pauses = Pauses::new();
        let mut waiting = None;
        let class = if script.runs_during_slot_migration() {
            CommandClass::Keep
        } else {
            CommandClass::Ask
        };
        loop {
            if waiting.is_none() {
                waiting = match self.topology.wait_permit(keys.slot(), class) {
                    Ok(waiting) => waiting,
                    Err(why) => return Err(earlier.map_or_else(|| why.into(), StoreError::from)),
                };
            }
            let sending = match earlier {
                None => Sending::First,
                Some(_) => Sending::Again,
            };
            let tried = self.send_in_any_form(script, keys, echo, limit, |command| {
                fill(command, sending);
            });
            let tried = tried.await;
            if tried.is_err() {
                self.topology.request_refresh();
            }
            let (until, error) = match tried {
                Ok(reply) => return Ok(DispatchReply { reply, earlier }),
                Err(Failure::Unknown(Uncertainty::UnexpectedReply(what))) => {
                    // Whatever answers there is no Redis that runs our scripts.
                    return Err(Uncertainty::UnexpectedReply(what).into());
                }
                Err(Failure::Unknown(why)) => {
                    earlier = Some(why.clone());
                    (limit, why.into())
                }
                Err(
                    failure @ (Failure::Transient(_)
                    | Failure::WrongNode(_)
                    | Failure::Elsewhere(_)
                    | Failure::Moving(_)),
                ) => match &earlier {
                    Some(unknown) => (limit, unknown.clone().into()),
                    None => (limit.min(start + RETRY_FOR), failure.reason().into()),
                },
                Err(failure @ (Failure::Refused(_) | Failure::WrongType | Failure::NoScript)) => {
                    return Err(match earlier {
                        Some(unknown) => unknown.into(),
                        None => self.refused(failure, keys, limit).await,
                    });
                }
            };
            let pause = pauses.next();
            if Instant::now() + pause >= until {
                if mutants::is(Mutant::UnknownIsRefused) {
                    return Err(Unavailability::Overloaded.into());
                }
                return Err(error);
            }
            sleep(pause).await;
        }
    }

    /// Sends one copy; if its slot is being moved, and the script can do with the lease's own keys, with
    /// them alone.
    async fn send_in_any_form(
        &self,
        script: &Script,
        keys: &Keys,
        echo: &str,
        limit: Instant,
        fill: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Reply, Failure> {
        let mut form = KeyForm::Whole;
        loop {
            let sent = self.once((script, form), keys, echo, limit, &fill).await;
            form = match (form, sent) {
                (KeyForm::Whole, Err(Failure::Moving(_)))
                    if script.runs_during_slot_migration() =>
                {
                    KeyForm::Own(1)
                }
                (KeyForm::Own(_), Ok(reply)) if reply.kind() == "moving" => {
                    let why = "the slot is being moved".to_owned();
                    return Err(Failure::Moving(Unavailability::Refused(why)));
                }
                (_, sent) => return sent,
            };
        }
    }

    pub(crate) async fn refused(
        &self,
        failure: Failure,
        keys: &Keys,
        limit: Instant,
    ) -> StoreError {
        match failure {
            Failure::WrongType => foreign::find(self, keys, limit).await,
            Failure::NoScript => {
                Unavailability::Refused("NOSCRIPT: the server forgets scripts".to_owned()).into()
            }
            Failure::Unknown(why) => why.into(),
            known => known.reason().into(),
        }
    }
}

// === impl Pauses ===

/// Pauses with full jitter, so that the callers of a server that comes back do not come together.
pub(crate) struct Pauses {
    longest: Duration,
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self {
            longest: FIRST_PAUSE,
        }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let longest = self.longest;
        self.longest = (longest * 2).min(LONGEST_PAUSE);
        // Without randomness callers come together, which is no reason to fail.
        let share = getrandom::u32().unwrap_or(u32::MAX / 2);
        longest.mul_f64(f64::from(share) / f64::from(u32::MAX))
    }
}
