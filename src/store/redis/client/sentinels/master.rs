//! A server that was a master when it was last asked.

use std::{sync::Arc, time::SystemTime};

use bb8_redis::redis::{Value, cmd};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::store::Unavailability;

use super::super::{connection::Connection, endpoint::Endpoint, failure::Failure, run::RunId};

/// A server that was a master when it was last asked.
pub(super) struct Master {
    pub(super) endpoint: Arc<Endpoint>,
    /// Since when it is followed.
    pub(super) since: SystemTime,
    /// By which it tells its runs apart, if it says.
    run: Mutex<Option<RunId>>,
}

// === impl Master ===

impl Master {
    /// Connects to a server, and makes sure that it is a master.
    pub(super) async fn verify(
        endpoint: Endpoint,
        now: SystemTime,
    ) -> Result<Self, Unavailability> {
        let connection = verify(&endpoint).await?;
        Ok(Self {
            endpoint: Arc::new(endpoint),
            since: now,
            run: Mutex::new(connection.run().cloned()),
        })
    }

    /// A new connection to it. `named`: a sentinel has just named it. If none has, only to the run
    /// that is known to be the master: one that was started anew may have been replaced meanwhile.
    pub(super) async fn connect(&self, named: bool) -> Result<Connection, Unavailability> {
        let connection = verify(&self.endpoint).await?;
        let run = connection.run().cloned();
        let mut known = self.run.lock();
        if !named && (run.is_none() || *known != run) {
            let why = "it was started anew, and no sentinel says that it still is the master";
            return Err(Unavailability::Connect(why.to_owned()));
        }
        *known = run;
        Ok(connection)
    }
}

/// A connection to a server that says on it that it is a master.
async fn verify(endpoint: &Endpoint) -> Result<Connection, Unavailability> {
    let limit = Instant::now() + endpoint.connect_timeout();
    let connection = endpoint.connect().await?;
    let role = connection.send(&cmd("ROLE"), limit).await;
    judge_role(&role.map_err(Failure::reason)?)?;
    Ok(connection)
}

fn judge_role(role: &Value) -> Result<(), Unavailability> {
    let first = match role {
        Value::Array(role) => role.first(),
        _ => None,
    };
    match first {
        Some(Value::BulkString(role)) if role == b"master" => Ok(()),
        Some(Value::BulkString(_)) => {
            let why = "READONLY: this server is a replica, whoever was named".to_owned();
            Err(Unavailability::Refused(why))
        }
        _ => {
            let why = "it answers what no Redis would".to_owned();
            Err(Unavailability::Refused(why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn only_a_master_is_one() {
        let reply = |role| Value::Array(vec![text(role)]);
        assert_eq!(judge_role(&reply("master")), Ok(()));
        for other in ["slave", "sentinel"] {
            let refused = judge_role(&reply(other));
            assert!(
                matches!(refused, Err(Unavailability::Refused(_))),
                "{other}"
            );
        }
        assert!(judge_role(&Value::Nil).is_err());
    }
}
