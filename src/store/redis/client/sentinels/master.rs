//! A server that was a master when it was last asked.

use std::{
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use bb8_redis::redis::{Pipeline, Value};
use tokio::time::Instant;

use crate::store::Unavailability;

use super::super::{
    connection::{Connection, answered},
    endpoint::Endpoint,
    failure::Failure,
    run::RunId,
};

/// A server that was a master when it was last asked.
pub(super) struct Master {
    pub(super) endpoint: Endpoint,
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
        let run = verify(&endpoint).await?.1;
        Ok(Self {
            endpoint,
            since: now,
            run: Mutex::new(run),
        })
    }

    /// A new connection to it. `named`: a sentinel has just named it. If none has, only to the run
    /// that is known to be the master: one that was started anew may have been replaced meanwhile.
    pub(super) async fn connect(&self, named: bool) -> Result<Connection, Unavailability> {
        let (connection, run) = verify(&self.endpoint).await?;
        let mut known = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        if !named && (run.is_none() || *known != run) {
            let why = "it was started anew, and no sentinel says that it still is the master";
            return Err(Unavailability::Connect(why.to_owned()));
        }
        *known = run;
        Ok(connection)
    }
}

/// A connection to a server that says on it that it is a master, and by what it tells its runs apart.
async fn verify(endpoint: &Endpoint) -> Result<(Connection, Option<RunId>), Unavailability> {
    let limit = Instant::now() + endpoint.connect_timeout();
    let connection = endpoint.connect().await?;
    let mut commands = Pipeline::with_capacity(2);
    commands.cmd("ROLE");
    commands.cmd("INFO").arg("server");
    let replies = connection
        .send_all(&commands, limit)
        .await
        .map_err(Failure::reason)?;
    let run = read(&replies)?;
    Ok((connection, run))
}

fn read(replies: &[Value]) -> Result<Option<RunId>, Unavailability> {
    let odd = || Unavailability::Refused("it answers what no Redis would".to_owned());
    let [role, info] = replies else {
        return Err(odd());
    };
    let role = match role {
        Value::Array(role) => role,
        Value::ServerError(error) => return Err(answered(error).reason()),
        _ => return Err(odd()),
    };
    match role.first() {
        Some(Value::BulkString(role)) if role == b"master" => {}
        Some(Value::BulkString(_)) => {
            let why = "READONLY: this server is a replica, whoever was named".to_owned();
            return Err(Unavailability::Refused(why));
        }
        _ => return Err(odd()),
    }
    Ok(match info {
        Value::BulkString(info) => RunId::read(&String::from_utf8_lossy(info)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn only_a_master_is_one() {
        let replies = |role| [Value::Array(vec![text(role)]), text("run_id:0a\r\n")];
        assert_eq!(read(&replies("master")), Ok(RunId::read("run_id:0a")));
        for other in ["slave", "sentinel"] {
            let refused = read(&replies(other));
            assert!(
                matches!(refused, Err(Unavailability::Refused(_))),
                "{other}"
            );
        }
        assert!(read(&[Value::Nil, Value::Nil]).is_err());
    }
}
