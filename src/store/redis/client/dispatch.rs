//! Sends a script until its outcome is known or the deadline has passed.
//!
//! A command that certainly had no effect is retried for a short while. A command that may have had an effect is sent
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

/// Sends scripts and commands to the servers of a store, with retries.
pub(crate) struct Dispatch {
    pub(crate) topology: Topology,
    pub(crate) command_timeout: Duration,
    /// Returns the keys of a lock that the scripts read, each with the Redis type that it should have. The second
    /// argument is the echo of the script.
    typed_keys: fn(&Keys, &str) -> Vec<(String, &'static str)>,
    /// Why the server refuses this user's subscriptions, if it refuses them permanently.
    pub(crate) unsubscribed: Mutex<Option<String>>,
    deadline: Duration,
}

/// Whether a command is sent for the first time or again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// No earlier copy of the command can arrive at a server.
    First,
    /// An earlier copy of the command may have been carried out, or may yet be.
    Again,
}

/// The reply to a script, and whether an earlier copy of the script may have been carried out.
pub(crate) struct DispatchReply {
    pub(crate) reply: Reply,
    /// Why an earlier copy of the script got no reply, if that copy may have been carried out.
    pub(crate) earlier: Option<Uncertainty>,
}

/// How long a command that had no effect is retried while the server refuses it or is unreachable: long enough for a
/// restart, short enough for a caller to be told that nothing happened and to do something else.
const RETRY_FOR: Duration = Duration::from_secs(1);
/// Maximum pause before the first retry of a command; it doubles with each retry.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Upper bound of the pauses between retries of a command.
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

    /// Deadline of a request that begins now: by then the outcome of all its commands must be known.
    pub(crate) fn limit(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// Part of a request's time that is reserved for undoing the request's own changes.
    pub(crate) fn reserve(&self) -> Duration {
        self.command_timeout.min(self.deadline / 4)
    }

    /// Runs a script on the keys of a lock, with retries. `fill` appends the arguments, and the keys that are not in
    /// the script's own list.
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
                    // The server is no Redis that runs our scripts: a retry would get the same reply.
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

    /// Sends one copy of a script. If its slot is being moved, a script that can run during a move runs with the lock's
    /// key alone, or with the keys of its shared leases.
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

    /// Converts the refusal of a script to an error of the store. `echo`: what the script's reply would have
    /// repeated.
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

/// Pauses between retries, with full jitter, so that callers do not all reach a recovering server at once.
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
        // Without randomness all callers pause equally long, which is no reason to fail.
        let share = getrandom::u32().unwrap_or(u32::MAX / 2);
        longest.mul_f64(f64::from(share) / f64::from(u32::MAX))
    }
}

/// Runs `go` for each server of the store, also for servers that join later, until that server is disconnected.
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
            // The address in memory identifies the shard: no other shard has this address while this shard is in use.
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
// Sends each command once to the server that has its slot, and follows the redirects of that server.
//
// While a slot is being moved to another server of a cluster, each key of the slot is on one of the two servers. A
// command with one key reaches that key: the old server redirects to the new one if it does not have the key any
// more. A script with several keys runs only on a server that has all the keys that it names. So each script that
// writes names one more key, which never exists (`Keys::absent`), and runs nowhere while the slot is being moved.
// Otherwise it could miss a key that is on the other server after it has already written. Some scripts can run with
// the lock's key alone, which exists as long as the lease does.

/// Which keys of a lock one call of a script names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyForm {
    /// The call names all keys of the script; in a cluster also the key that never exists, if the script writes.
    Whole,
    /// The call names only the lock's key, which is the script's first; used while the slot is being moved.
    LockAlone,
    /// The call names only the lock's key and the keys of its shared leases, which exist as long as the lock does; used
    /// while the slot is being moved.
    SharedAlone,
}

/// The lock's key, which every script names first.
const LOCK_ALONE: &[KeyOfLock] = &[Keys::lock];
/// Maximum number of servers that one copy of a command goes to by redirects, before it is retried from the start.
const REDIRECTS: usize = 4;

// === impl Dispatch ===

impl Dispatch {
    /// Sends one copy of a script to the server that has its slot, and follows redirects.
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

    /// Sends one copy of a script with `keys` keys on a connection. If the server does not know the script, sends its
    /// full text.
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

    /// Sends one copy of a script to a given server, on a connection that the caller has checked. `fill` appends the
    /// script's keys as well.
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

    /// Sends a plain command with one key once, first to `destination`, and follows redirects.
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

    /// Publishes a message, once. A message has no slot: any server accepts it, and the servers of a cluster pass it
    /// on to each other.
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

    /// Asks a server for a section of INFO. `None` if the reply is no text.
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

    /// Sends plain commands to a server together, once. If the server refuses a command, its error is among the
    /// replies.
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

    /// Sends plain commands with one key each to a server together, once. A command that the server redirects is sent
    /// to the other server.
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
            // The commands are sent one by one: redirects are few, and happen only for a slot that is being moved or
            // was just moved.
            if let Failure::Elsewhere(redirect) = answered(error) {
                let destination = self.topology.follow(slot, &redirect, shard)?;
                *reply = self.plain(destination, slot, command).await?;
            }
        }
        Ok(replies)
    }

    /// The server that has a slot; a failure if none is known.
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
// Finds the key of a lock that holds a value of a type that no gateway writes.

// === impl Dispatch ===

impl Dispatch {
    /// Finds the key whose type made a script answer WRONGTYPE; such a script has written nothing. `echo`: what the
    /// script's reply would have repeated.
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
