//! Sends commands to whichever server has their slot, once, and goes where that one points.
//!
//! A slot that is being moved to another server of a cluster is in two places, key by key. A command
//! of one key goes where the key is: the server that gives the slot away points to the other one if it
//! has it no more. A script of several keys is carried out where all of them are that it names. So it
//! names one more that never is (`Keys::absent`), and is carried out nowhere as long as the slot is
//! being moved: it could come upon a key of its slot that has gone ahead or stayed behind, when it has
//! written already. Some scripts can do without all but the lease's own keys, which exist as long as
//! the lease does.

use std::sync::Arc;

use bb8_redis::redis::{Arg, Cmd, Pipeline, Value, cmd};
use tokio::time::Instant;

use crate::store::{Unavailability, Uncertainty};

use super::{
    super::{
        Slot,
        keys::Keys,
        scripts::{Reply, Script},
    },
    connection::{Connection, answered},
    dispatch::Dispatch,
    failure::{Failure, RedirectKind},
    shard::Shard,
};

/// Which keys a script names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyForm {
    /// All.
    Whole,
    /// So many of a lease's own, which are its first, while its slot is being moved.
    Own(usize),
}

/// Where a command is sent.
pub(crate) struct Destination {
    pub(crate) shard: Arc<Shard>,
    /// Whether that server was pointed to for this command alone.
    pub(crate) asking: bool,
}

/// How often a command goes where a server points before it is tried again from the beginning.
const REDIRECTS: usize = 4;

// === impl Dispatch ===

impl Dispatch {
    /// Sends one copy of a script.
    pub(crate) async fn once(
        &self,
        (script, form): (&Script, KeyForm),
        keys: &Keys,
        echo: &str,
        deadline: Instant,
        fill: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Reply, Failure> {
        let slot = keys.slot();
        let filled = |command: Cmd| {
            let mut command = command;
            fill(&mut command);
            if self.topology.is_cluster() {
                recast(&command, script, form, keys)
            } else {
                command
            }
        };
        let mut destination = self.destination(slot)?;
        for _ in 0..REDIRECTS {
            let sent = self
                .script(&destination, script, echo, deadline, &filled)
                .await;
            match sent {
                Err(Failure::Elsewhere(redirect)) => {
                    let by = &destination.shard;
                    if redirect.kind == RedirectKind::Ask
                        && form == KeyForm::Whole
                        && script.writes()
                    {
                        return Err(Failure::Moving(redirect.reason()));
                    }
                    destination = self.topology.follow(slot, &redirect, by)?;
                }
                other => return other,
            }
        }
        Err(redirect_loop())
    }

    /// Sends one copy of a script to a server. One that the server does not know is sent in full.
    pub(crate) async fn script(
        &self,
        destination: &Destination,
        script: &Script,
        echo: &str,
        deadline: Instant,
        filled: impl Fn(Cmd) -> Cmd,
    ) -> Result<Reply, Failure> {
        let connection = destination.connection(deadline).await?;
        self.script_on((destination, connection), script, echo, deadline, filled)
            .await
    }

    async fn script_on(
        &self,
        (destination, connection): (&Destination, Connection),
        script: &Script,
        echo: &str,
        deadline: Instant,
        filled: impl Fn(Cmd) -> Cmd,
    ) -> Result<Reply, Failure> {
        let limit = deadline.min(Instant::now() + self.command_timeout);
        let command = filled(script.by_hash());
        let value = match destination.send(&connection, &command, limit).await {
            Err(Failure::NoScript) => {
                let command = filled(script.in_full());
                destination.send(&connection, &command, limit).await
            }
            other => other,
        }?;
        match Reply::read(value, echo) {
            Ok(reply) => Ok(reply.by(connection.run())),
            Err(what) => Err(unexpected(&connection, what)),
        }
    }

    /// Sends one copy of a script to a server of its own, on a connection that was looked at before.
    pub(crate) async fn once_on(
        &self,
        (shard, connection): (&Arc<Shard>, Connection),
        script: &Script,
        echo: &str,
        deadline: Instant,
        fill: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Reply, Failure> {
        let filled = |mut command: Cmd| {
            fill(&mut command);
            command
        };
        let destination = Destination::at(shard);
        self.script_on((&destination, connection), script, echo, deadline, filled)
            .await
    }

    /// Sends a plain command of one key, once.
    pub(crate) async fn plain(&self, slot: Slot, command: &Cmd) -> Result<Value, Failure> {
        let limit = Instant::now() + self.command_timeout;
        let mut destination = self.destination(slot)?;
        for _ in 0..REDIRECTS {
            let connection = destination.connection(limit).await?;
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
    pub(crate) async fn publish(&self, command: &Cmd) -> Result<Value, Failure> {
        let pubsub_shard = self.topology.pubsub_shard().map_err(Failure::Transient)?;
        self.plain_to(&pubsub_shard, command).await
    }

    /// Sends a plain command to a server, once.
    pub(crate) async fn plain_to(
        &self,
        shard: &Arc<Shard>,
        command: &Cmd,
    ) -> Result<Value, Failure> {
        let limit = Instant::now() + self.command_timeout;
        let destination = Destination::at(shard);
        let connection = destination.connection(limit).await?;
        destination.send(&connection, command, limit).await
    }

    /// Sends plain commands to a server together, once. A refusal of one of them is among the replies.
    pub(crate) async fn batch_to(
        &self,
        shard: &Arc<Shard>,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, Failure> {
        let limit = Instant::now() + self.command_timeout;
        let connection = Destination::at(shard).connection(limit).await?;
        connection.send_all(commands, limit).await
    }

    /// The same for commands of one key each, of these slots: those for which the server points to
    /// another one are sent there.
    pub(crate) async fn batch(
        &self,
        shard: &Arc<Shard>,
        slots: &[Slot],
        commands: &Pipeline,
    ) -> Result<Vec<Value>, Failure> {
        let mut replies = self.batch_to(shard, commands).await?;
        for ((reply, &slot), command) in replies.iter_mut().zip(slots).zip(commands.cmd_iter()) {
            let Value::ServerError(error) = &*reply else {
                continue;
            };
            // Few: of a slot that is being moved, or has just been.
            if let Failure::Elsewhere(redirect) = answered(error) {
                let destination = self.topology.follow(slot, &redirect, shard)?;
                *reply = self.send_to(&destination, slot, command).await?;
            }
        }
        Ok(replies)
    }

    /// Sends a command where a server has pointed.
    async fn send_to(
        &self,
        destination: &Destination,
        slot: Slot,
        command: &Cmd,
    ) -> Result<Value, Failure> {
        if !destination.asking {
            return self.plain(slot, command).await;
        }
        let limit = Instant::now() + self.command_timeout;
        let connection = destination.connection(limit).await?;
        match destination.send(&connection, command, limit).await {
            // The slot has arrived, or come back, meanwhile.
            Err(Failure::Elsewhere(_)) => self.plain(slot, command).await,
            other => other,
        }
    }

    /// The server that has a slot.
    fn destination(&self, slot: Slot) -> Result<Destination, Failure> {
        let shard = self.topology.shard(slot).map_err(Failure::Transient)?;
        Ok(Destination::at(&shard))
    }
}

/// No connection: nothing was sent.
pub(crate) fn no_connection(why: Unavailability) -> Failure {
    match why {
        Unavailability::Misconfigured(_) => Failure::Refused(why),
        other => Failure::Transient(other),
    }
}

fn redirect_loop() -> Failure {
    let why = "the servers point to each other".to_owned();
    Failure::Transient(Unavailability::Refused(why))
}

/// A reply to something else: whatever comes on this connection cannot be believed any more.
fn unexpected(connection: &Connection, what: String) -> Failure {
    connection.retire();
    Failure::Unknown(Uncertainty::UnexpectedReply(what))
}

/// A call of a script as a cluster takes it. What comes in is complete: verb, script, how many keys,
/// keys, arguments.
fn recast(command: &Cmd, script: &Script, form: KeyForm, keys: &Keys) -> Cmd {
    let (kept, guard) = match form {
        KeyForm::Own(own) => (own, None),
        KeyForm::Whole if script.writes() => (script.keys(), Some(keys.absent())),
        KeyForm::Whole => (script.keys(), None),
    };
    let named = kept + usize::from(guard.is_some());
    let mut recast = Cmd::new();
    for (n, argument) in command.args_iter().enumerate() {
        let Arg::Simple(argument) = argument else {
            unreachable!("no script is called with a cursor");
        };
        match n.checked_sub(3) {
            None if n == 2 => recast.arg(named),
            Some(key) if key >= kept && key < script.keys() => &mut recast,
            _ => recast.arg(argument),
        };
        if n == 2 + script.keys()
            && let Some(guard) = &guard
        {
            recast.arg(guard);
        }
    }
    recast
}

// === impl Destination ===

impl Destination {
    pub(crate) fn at(shard: &Arc<Shard>) -> Self {
        Self {
            shard: Arc::clone(shard),
            asking: false,
        }
    }

    /// A connection to it.
    async fn connection(&self, limit: Instant) -> Result<Connection, Failure> {
        let connection = self.shard.pool.connection(limit).await;
        connection.map_err(|why| match why {
            Unavailability::Connect(what) => {
                no_connection(Unavailability::Connect(self.shard.named(&what)))
            }
            other => no_connection(other),
        })
    }

    /// Sends a command on it.
    async fn send(
        &self,
        connection: &Connection,
        command: &Cmd,
        limit: Instant,
    ) -> Result<Value, Failure> {
        if !self.asking {
            return connection.send(command, limit).await;
        }
        // It counts for the next command of the connection, so nothing may come between the two.
        let mut both = Pipeline::with_capacity(2);
        both.add_command(cmd("ASKING"));
        both.add_command(command.clone());
        let mut replies = connection.send_all(&both, limit).await?;
        match (replies.pop(), replies.pop()) {
            (_, Some(Value::ServerError(error)))
            | (Some(Value::ServerError(error)), Some(Value::Okay)) => Err(answered(&error)),
            (Some(value), Some(Value::Okay)) => Ok(value),
            _ => Err(unexpected(connection, "no answer to ASKING".to_owned())),
        }
    }
}
