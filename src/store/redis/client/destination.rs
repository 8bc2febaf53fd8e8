//! Where a command is sent: a server, and whether it was pointed to for this command alone.

use std::sync::Arc;

use bb8_redis::redis::{Cmd, Pipeline, Value, cmd};
use tokio::time::Instant;

use crate::store::{Unavailability, Uncertainty};

use super::{
    calls::ScriptCall,
    connection::{Connection, answered},
    failure::Failure,
    shard::Shard,
};

/// Where a command is sent.
pub(crate) struct Destination {
    pub(crate) shard: Arc<Shard>,
    /// Whether that server was pointed to for this command alone.
    pub(crate) asking: bool,
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
    pub(super) async fn connection(&self, limit: Instant) -> Result<Connection, Failure> {
        let connection = self.shard.pool.connection(limit).await;
        connection.map_err(|why| match why {
            Unavailability::Connect(what) => {
                no_connection(Unavailability::Connect(self.shard.named(&what)))
            }
            other => no_connection(other),
        })
    }

    /// Sends a command on it.
    pub(super) async fn send(
        &self,
        connection: &Connection,
        command: &Cmd,
        limit: Instant,
    ) -> Result<Value, Failure> {
        if self.asking {
            return self.ask(connection, command.clone(), limit).await;
        }
        connection.send(command, limit).await
    }

    /// The same for a call of a script.
    pub(super) async fn call(
        &self,
        connection: &Connection,
        call: &ScriptCall,
        limit: Instant,
    ) -> Result<Value, Failure> {
        if self.asking {
            return self.ask(connection, call.as_command(), limit).await;
        }
        connection.call(call, limit).await
    }

    async fn ask(
        &self,
        connection: &Connection,
        command: Cmd,
        limit: Instant,
    ) -> Result<Value, Failure> {
        // It counts for the next command of the connection, so nothing may come between the two.
        let mut both = Pipeline::with_capacity(2);
        both.add_command(cmd("ASKING"));
        both.add_command(command);
        let mut replies = connection.send_all(&both, limit).await?;
        match (replies.pop(), replies.pop()) {
            (_, Some(Value::ServerError(error)))
            | (Some(Value::ServerError(error)), Some(Value::Okay)) => Err(answered(&error)),
            (Some(value), Some(Value::Okay)) => Ok(value),
            _ => Err(unexpected(connection, "no answer to ASKING".to_owned())),
        }
    }
}

/// No connection: nothing was sent.
pub(crate) fn no_connection(why: Unavailability) -> Failure {
    match why {
        Unavailability::Misconfigured(_) => Failure::Refused(why),
        other => Failure::Transient(other),
    }
}

/// A reply to something else: whatever comes on this connection cannot be believed any more.
pub(super) fn unexpected(connection: &Connection, what: String) -> Failure {
    connection.retire();
    Failure::Unknown(Uncertainty::UnexpectedReply(what))
}
