//! Calls the probe of a store.

use std::sync::Arc;

use bb8_redis::redis::{Pipeline, Value};
use tokio::time::{Duration, Instant};

use crate::store::{Unavailability, Uncertainty};

use super::super::{
    client::{
        answered,
        calls::{Reply, Script, ScriptCall},
        destination::Destination,
        dispatch::Dispatch,
        failure::Failure,
        shard::Shard,
    },
    keys::Keys,
};

/// What a probe found.
#[derive(Debug)]
pub(crate) struct Probed {
    /// The server's clock, since 1970.
    pub(crate) time: Duration,
    /// Why the server takes no writes now, if it does not.
    pub(crate) refusal: Option<Unavailability>,
    /// PUBLISH, on a channel of ours.
    pub(crate) publish: Permission,
    /// The commands that the scripts use, by name.
    pub(crate) commands: Vec<(String, Permission)>,
    /// Those that only a list needs: without them locks are as safe as ever.
    pub(crate) listing: Vec<(String, Permission)>,
}

/// Whether the user may do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    Given,
    Missing,
}

/// The command that only a list needs.
const LISTING: &str = "SCAN";

/// The script that probes a server.
pub(crate) fn script(text: &str) -> Script {
    let parts = [("permissions", include_str!("permissions.lua"))];
    Script::new(text, 1, &parts).read_only()
}

// === impl Dispatch ===

impl Dispatch {
    /// Probes a server by [`script`], on these keys.
    pub(super) async fn probe(
        &self,
        script: &Script,
        shard: &Arc<Shard>,
        key: &str,
        deadline: Instant,
    ) -> Result<Probed, Failure> {
        let filled = |mut command: ScriptCall| {
            command.arg(key).arg(Keys::PROBE);
            command
        };
        let destination = Destination::at(shard);
        let sent = self.script(&destination, script, key, deadline, filled);
        let reply = sent.await?;
        read(reply)
            .ok_or_else(|| Failure::Unknown(Uncertainty::UnexpectedReply("no probe".to_owned())))
    }

    /// Finds out which of the commands that only a cluster has this user may run on a server.
    pub(super) async fn of_cluster(
        &self,
        shard: &Arc<Shard>,
    ) -> Result<Vec<(String, Permission)>, Failure> {
        let mut commands = Pipeline::with_capacity(2);
        commands.cmd("ASKING");
        commands.cmd("CLUSTER").arg("GETKEYSINSLOT").arg(0).arg(0);
        let replies = self.batch_to(shard, &commands).await?;
        let names = ["ASKING", "CLUSTER GETKEYSINSLOT"];
        let permissions = names.iter().zip(replies).map(|(name, reply)| {
            let permission = match reply {
                Value::ServerError(error) => Permission::of(&answered(&error)),
                _ => Permission::Given,
            };
            ((*name).to_owned(), permission)
        });
        Ok(permissions.collect())
    }
}

fn read(mut reply: Reply) -> Option<Probed> {
    let seconds = u64::try_from(reply.integer()?).ok()?;
    let micros = u64::try_from(reply.integer()?).ok()?;
    let publish = Permission::from_error(&reply.text()?);
    let (mut refusal, mut commands, mut listing) = (None, Vec::new(), Vec::new());
    while let Some(name) = reply.text() {
        let error = reply.text()?;
        refusal = refusal.or_else(|| refusal_in(&error));
        let those = if name == LISTING {
            &mut listing
        } else {
            &mut commands
        };
        those.push((name, Permission::from_error(&error)));
    }
    Some(Probed {
        time: Duration::from_secs(seconds) + Duration::from_micros(micros),
        refusal,
        publish,
        commands,
        listing,
    })
}

/// Looks a script's error up in the table.
fn failure_in(error: &str) -> Failure {
    let error = error.trim_start_matches('-');
    let (code, text) = error.split_once(' ').unwrap_or((error, ""));
    Failure::of(code, text)
}

/// Why the server takes no writes, if that is what an error says.
fn refusal_in(error: &str) -> Option<Unavailability> {
    match failure_in(error) {
        Failure::Transient(why) | Failure::WrongNode(why) | Failure::Moving(why) => Some(why),
        Failure::Elsewhere(redirect) => Some(redirect.reason()),
        Failure::Refused(Unavailability::OutOfMemory) => Some(Unavailability::OutOfMemory),
        Failure::Refused(_) | Failure::NoScript | Failure::WrongType | Failure::Unknown(_) => None,
    }
}

// === impl Permission ===

impl Permission {
    /// Only a missing permission counts: a command that fails for another reason was allowed.
    fn from_error(error: &str) -> Self {
        Self::of(&failure_in(error))
    }

    fn of(failure: &Failure) -> Self {
        match failure {
            Failure::Refused(Unavailability::Misconfigured(_)) => Self::Missing,
            _ => Self::Given,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_list_locks_are_safe_and_without_any_other_command_they_are_not() {
        let text = |text: &str| Value::BulkString(text.into());
        let refused = "ERR The user executing the script can't run this command or subcommand";
        let undeclared = "ERR Script tried accessing undeclared key";
        let mut reply = vec![text("probe"), text("key"), Value::Int(1), Value::Int(2)];
        reply.extend([text(""), text("GET"), text("")]);
        let refusals = [
            ("GETRANGE", refused),
            ("SCAN", refused),
            ("keys that are not declared", undeclared),
        ];
        reply.extend(
            refusals
                .iter()
                .flat_map(|(name, error)| [*name, *error].map(text)),
        );
        let reply = Reply::read(Value::Array(reply), "key", Instant::now()).unwrap();
        let probed = read(reply).unwrap();
        let missing = |of: &[(String, Permission)]| {
            let missing = of.iter().filter(|(_, it)| *it == Permission::Missing);
            missing.map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(
            missing(&probed.commands),
            ["GETRANGE", "keys that are not declared"]
        );
        assert_eq!(missing(&probed.listing), ["SCAN"]);
        assert_eq!(probed.publish, Permission::Given);
    }
}
