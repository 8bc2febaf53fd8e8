//! Sends a script until its outcome is known or the deadline has passed.
//!
//! What certainly did not happen is tried again for a short while. What may have happened is sent
//! again until the deadline: every script recognises its own repetition.

use std::{collections::HashSet, sync::Arc};

use bb8_redis::redis::Value;
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant, sleep, timeout_at};

use crate::{
    config::RedisConfig,
    store::{StoreError, Unavailability, Uncertainty},
};

use super::{
    super::{Slot, keys::Keys},
    connection::{Connection, answered},
    failure::Failure,
    reply::Reply,
    script::{Command, KeyOfLock, Script},
    shard::{CommandClass, Destination, Shard, unexpected},
    topology::Topology,
};

/// Carries commands to the servers of a store.
pub(crate) struct Dispatch {
    pub(crate) topology: Topology,
    pub(crate) command_timeout: Duration,
    /// The keys that the scripts of the store read for a lock, with the types that they have, given what the script
    /// answers with.
    typed_keys: fn(&Keys, &str) -> Vec<(String, &'static str)>,
    /// Why messages cannot be subscribed to there, if that is refused for good.
    pub(crate) unsubscribed: Mutex<Option<String>>,
    deadline: Duration,
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
/// short enough for a caller to be told that nothing happened and to do something else.
const RETRY_FOR: Duration = Duration::from_secs(1);
/// The longest pause before the first repetition; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

// === impl Dispatch ===

impl Dispatch {
    pub(crate) fn new(
        topology: Topology,
        config: &RedisConfig,
        typed_keys: fn(&Keys, &str) -> Vec<(String, &'static str)>,
    ) -> Self {
        Self {
            topology,
            typed_keys,
            command_timeout: config.command_timeout_ms.duration(),
            unsubscribed: Mutex::default(),
            deadline: config.deadline_ms.duration(),
        }
    }

    /// When the outcome of all that is sent for a request that begins now must be known.
    pub(crate) fn limit(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// How much of a request's time is kept for undoing what it has done.
    pub(crate) fn reserve(&self) -> Duration {
        self.command_timeout.min(self.deadline / 4)
    }

    /// Runs a script on the keys of a lock. `fill` appends the arguments, and keys that the script does not name by
    /// itself.
    pub(crate) async fn run<F>(
        &self,
        script: &Script,
        keys: &Keys,
        echo: &str,
        limit: Instant,
        fill: F,
    ) -> Result<DispatchReply, StoreError>
    where
        F: Fn(&mut Command, Sending) + Send + Sync,
    {
        let start = Instant::now();
        let mut earlier: Option<Uncertainty> = None;
        let mut pauses = Pauses::new();
        let mut waiting = None;
        let class = if script.runs_during_slot_migration {
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
                        None => self.refused(failure, keys, echo, limit).await,
                    });
                }
            };
            let pause = pauses.next();
            if Instant::now() + pause >= until {
                return Err(error);
            }
            sleep(pause).await;
        }
    }

    /// Sends one copy; if its slot is being moved, and the script can do with the lock alone, with that key
    /// alone.
    async fn send_in_any_form(
        &self,
        script: &Script,
        keys: &Keys,
        echo: &str,
        limit: Instant,
        fill: impl Fn(&mut Command) + Send + Sync,
    ) -> Result<Reply, Failure> {
        let whole = (script, KeyForm::Whole);
        let sent = self.once(whole, keys, echo, limit, &fill).await;
        if !matches!(sent, Err(Failure::Moving(_))) || !script.runs_during_slot_migration {
            return sent;
        }
        let alone = (script, KeyForm::LockAlone);
        let mut reply = self.once(alone, keys, echo, limit, &fill).await?;
        if reply.kind() == "shared" {
            let shared = (script, KeyForm::SharedAlone);
            reply = self.once(shared, keys, echo, limit, &fill).await?;
        }
        if matches!(reply.kind(), "moving" | "shared") {
            let why = "the slot is being moved".to_owned();
            return Err(Failure::Moving(Unavailability::Refused(why)));
        }
        Ok(reply)
    }

    /// Why a script was refused that was to answer with `echo`.
    pub(crate) async fn refused(
        &self,
        failure: Failure,
        keys: &Keys,
        echo: &str,
        limit: Instant,
    ) -> StoreError {
        match failure {
            Failure::WrongType => self.find_foreign_key(keys, echo, limit).await,
            Failure::NoScript => {
                Unavailability::Refused("NOSCRIPT: the server forgets scripts".to_owned()).into()
            }
            other => other.into(),
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

/// Keeps something going for each server of the store, until that is given up.
pub(crate) async fn on_each(
    dispatch: &Dispatch,
    go: impl Fn(Arc<Shard>) -> BoxFuture<'static, ()> + Send,
) {
    let mut served = HashSet::new();
    let mut going = FuturesUnordered::new();
    let mut changes = dispatch.topology.changes();
    loop {
        let mut shards = dispatch.topology.shards();
        shards.retain(|shard| !shard.disconnected.is_cancelled());
        for shard in shards {
            // While this shard is in use, no other one has the same address in memory.
            let place = Arc::as_ptr(&shard).addr();
            if served.insert(place) {
                let going_on = go(Arc::clone(&shard));
                going.push(async move {
                    tokio::select! {
                        () = going_on => {}
                        () = shard.disconnected.cancelled() => {}
                    }
                    place
                });
            }
        }
        tokio::select! {
            Ok(()) = changes.changed() => {}
            Some(over) = going.next(), if !going.is_empty() => {
                served.remove(&over);
            }
            else => return,
        }
    }
}

// === Sending ===
//
// Sends commands to whichever server has their slot, once, and goes where that one points.
//
// A slot that is being moved to another server of a cluster is in two places, key by key. A command
// of one key goes where the key is: the server that gives the slot away points to the other one if it
// has it no more. A script of several keys is carried out where all of them are that it names. So it
// names one more that never is (`Keys::absent`), and is carried out nowhere as long as the slot is
// being moved: it could come upon a key of its slot that has gone ahead or stayed behind, when it has
// written already. Some scripts can do with the lock alone, which exists as long as the lease does.

/// Which keys a script names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyForm {
    /// All.
    Whole,
    /// The lock, which is its first, while its slot is being moved.
    LockAlone,
    /// The lock and the keys of those who share it, which exist as long as it does, while its slot is being moved.
    SharedAlone,
}

/// The key that every script names first.
const LOCK_ALONE: &[KeyOfLock] = &[Keys::lock];
/// How often a command goes where a server points before it is tried again from the beginning.
const REDIRECTS: usize = 4;

// === impl Dispatch ===

impl Dispatch {
    /// Sends one copy of a script.
    async fn once(
        &self,
        (script, form): (&Script, KeyForm),
        keys: &Keys,
        echo: &str,
        deadline: Instant,
        fill: impl Fn(&mut Command) + Send + Sync,
    ) -> Result<Reply, Failure> {
        let slot = keys.slot();
        let names_absent = !script.read_only && self.topology.is_cluster();
        let (count, of_lock) = match form {
            KeyForm::Whole => (script.keys + usize::from(names_absent), script.of_lock),
            KeyForm::LockAlone => (1, LOCK_ALONE),
            KeyForm::SharedAlone => (4, LOCK_ALONE),
        };
        let filled = |command: &mut Command| {
            for key in of_lock {
                command.arg(key(keys));
            }
            if form == KeyForm::SharedAlone {
                for kind in ["shared", "leases", "slots"] {
                    command.arg(keys.of_name(kind));
                }
            } else if form == KeyForm::Whole && names_absent {
                command.arg(keys.absent());
            }
            fill(command);
        };
        let mut destination = Destination::at(&self.owner(slot)?);
        for _ in 0..REDIRECTS {
            let connection = destination.shard.connection(deadline).await?;
            let on = (&destination, connection);
            let sent = self.script_on(on, (script, count), echo, deadline, filled);
            match sent.await {
                Err(Failure::Elsewhere(redirect)) => {
                    if redirect.asking && form == KeyForm::Whole && !script.read_only {
                        return Err(Failure::Moving(redirect.reason()));
                    }
                    destination = self.topology.follow(slot, &redirect, &destination.shard)?;
                }
                other => return other,
            }
        }
        Err(redirect_loop())
    }

    /// Sends one copy of a script with so many keys on a connection. One that the server does not know is sent in full.
    async fn script_on(
        &self,
        (destination, connection): (&Destination, Connection),
        (script, keys): (&Script, usize),
        echo: &str,
        deadline: Instant,
        fill: impl Fn(&mut Command) + Send,
    ) -> Result<Reply, Failure> {
        let mut sent = Instant::now();
        let limit = deadline.min(sent + self.command_timeout);
        let mut command = script.by_hash(keys);
        fill(&mut command);
        let mut value = destination.send(&connection, &command, limit).await;
        if let Err(Failure::NoScript) = value {
            command = script.in_full(keys);
            fill(&mut command);
            sent = Instant::now();
            value = destination.send(&connection, &command, limit).await;
        }
        match Reply::read(value?, echo, sent) {
            Ok(reply) => Ok(reply.by(connection.run())),
            Err(what) => Err(unexpected(&connection, what)),
        }
    }

    /// Sends one copy of a script to a server of its own, on a connection that was looked at before. `fill` appends its
    /// keys, too.
    pub(crate) async fn once_on(
        &self,
        (shard, connection): (&Arc<Shard>, Connection),
        script: &Script,
        echo: &str,
        deadline: Instant,
        fill: impl Fn(&mut Command) + Send + Sync,
    ) -> Result<Reply, Failure> {
        let on = (&Destination::at(shard), connection);
        self.script_on(on, (script, script.keys), echo, deadline, fill)
            .await
    }

    /// Sends a plain command of one key, once, beginning at a server.
    async fn plain(
        &self,
        mut destination: Destination,
        slot: Slot,
        command: &Command,
    ) -> Result<Value, Failure> {
        let limit = Instant::now() + self.command_timeout;
        for _ in 0..REDIRECTS {
            let connection = destination.shard.connection(limit).await?;
            match destination.send(&connection, command, limit).await {
                Err(Failure::Elsewhere(redirect)) => {
                    destination = self.topology.follow(slot, &redirect, &destination.shard)?;
                }
                other => return other,
            }
        }
        Err(redirect_loop())
    }

    /// Sends a message, once. It is of no key: any server takes it, and those of a cluster tell each
    /// other.
    pub(crate) async fn publish(&self, channel: &str, message: &str) -> Result<(), StoreError> {
        let command = Command::new("PUBLISH").with(channel).with(message);
        let shard = self.topology.pubsub_shard()?;
        self.plain_to(&shard, &command).await?;
        Ok(())
    }

    /// Sends a plain command to a server, once.
    pub(crate) async fn plain_to(
        &self,
        shard: &Shard,
        command: &Command,
    ) -> Result<Value, Failure> {
        let limit = Instant::now() + self.command_timeout;
        shard.connection(limit).await?.send(command, limit).await
    }

    /// Asks a server for a section of INFO. Nothing if its answer is no text.
    pub(crate) async fn info(
        &self,
        shard: &Shard,
        section: &str,
    ) -> Result<Option<String>, Failure> {
        let command = Command::new("INFO").with(section);
        Ok(match self.plain_to(shard, &command).await? {
            Value::BulkString(info) => Some(String::from_utf8_lossy(&info).into_owned()),
            _ => None,
        })
    }

    /// Sends plain commands to a server together, once. A refusal of one of them is among the replies.
    pub(crate) async fn batch_to(
        &self,
        shard: &Shard,
        commands: &[Command],
    ) -> Result<Vec<Value>, Failure> {
        let limit = Instant::now() + self.command_timeout;
        shard
            .connection(limit)
            .await?
            .send_all(commands, limit)
            .await
    }

    /// The same for commands of one key each, with their slots: those for which the server points to
    /// another one are sent there.
    pub(crate) async fn batch(
        &self,
        shard: &Shard,
        commands: Vec<(Slot, Command)>,
    ) -> Result<Vec<Value>, Failure> {
        let (slots, commands): (Vec<_>, Vec<_>) = commands.into_iter().unzip();
        let mut replies = self.batch_to(shard, &commands).await?;
        for ((reply, slot), command) in replies.iter_mut().zip(slots).zip(&commands) {
            let Value::ServerError(error) = &*reply else {
                continue;
            };
            // Few: of a slot that is being moved, or has just been.
            if let Failure::Elsewhere(redirect) = answered(error) {
                let destination = self.topology.follow(slot, &redirect, shard)?;
                *reply = self.plain(destination, slot, command).await?;
            }
        }
        Ok(replies)
    }

    /// The server that has a slot.
    fn owner(&self, slot: Slot) -> Result<Arc<Shard>, Failure> {
        self.topology.shard(slot).map_err(Failure::Transient)
    }
}

fn redirect_loop() -> Failure {
    let why = "the servers point to each other".to_owned();
    Failure::Transient(Unavailability::Refused(why))
}

// === Foreign keys ===
//
// Finds out which key of a lock is not ours.

// === impl Dispatch ===

impl Dispatch {
    /// Names the key that made a script answer WRONGTYPE which was to answer with `echo`. Such a script has
    /// written nothing.
    async fn find_foreign_key(&self, keys: &Keys, echo: &str, limit: Instant) -> StoreError {
        for (key, ours) in (self.typed_keys)(keys, echo) {
            let command = Command::new("TYPE").with(&key);
            let asked = async {
                let destination = Destination::at(&self.owner(keys.slot())?);
                self.plain(destination, keys.slot(), &command).await
            };
            if let Ok(Ok(Value::SimpleString(found))) = timeout_at(limit, asked).await
                && found != ours
                && found != "none"
            {
                let found = format!("a {found}").into();
                return StoreError::ForeignData { key, found };
            }
        }
        let reason = "WRONGTYPE: a key of this lock had another type a moment ago".to_owned();
        Unavailability::Refused(reason).into()
    }
}
