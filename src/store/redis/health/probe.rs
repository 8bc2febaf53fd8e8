//! Runs the probe script of a store at a server, and reads from the reply which permissions the user has.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use crate::store::{Unavailability, Uncertainty};

use super::super::{
    client::{
        Command, Parts, Reply, Script,
        dispatch::Dispatch,
        failure::{Failure, LACKS_PERMISSION},
        shard::Shard,
    },
    keys::Keys,
};

/// The result of probing a server.
#[derive(Debug)]
pub(crate) struct Probed {
    /// The time on the server's clock, since 1970.
    pub(crate) time: Duration,
    /// Why the server takes no writes now; `None` if it takes them.
    pub(crate) refusal: Option<Unavailability>,
    /// Whether the user may PUBLISH on the channels of the gateways.
    pub(crate) publish: Permission,
    /// The commands that the scripts use, by name, and whether the user may run each.
    pub(crate) commands: Vec<(String, Permission)>,
    /// The commands that only a list of locks needs, and whether the user may run each: without them locks are still
    /// safe.
    pub(crate) listing: Vec<(String, Permission)>,
}

/// Whether the user has a permission at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    Given,
    Missing,
}

/// The command that only a list of locks needs.
const LISTING: &str = "SCAN";

/// Creates the script that probes a server, from its Lua text.
pub(crate) fn script(text: &str) -> Script {
    let texts = &[("permissions", include_str!("permissions.lua"))];
    Script::new(
        text,
        1,
        &Parts {
            texts,
            ..Parts::default()
        },
    )
    .read_only()
}

// === impl Dispatch ===

impl Dispatch {
    /// Probes a server with a [`script`] of this module, on these keys.
    pub(super) async fn probe(
        &self,
        script: &Script,
        shard: &Arc<Shard>,
        key: &str,
        deadline: Instant,
    ) -> Result<Probed, Failure> {
        let fill = |command: &mut Command| {
            command.arg(key).arg(Keys::PROBE);
        };
        let on = (shard, shard.connection(deadline).await?);
        let reply = self.once_on(on, script, key, deadline, fill).await?;
        read(reply)
            .ok_or_else(|| Failure::Unknown(Uncertainty::UnexpectedReply("no probe".to_owned())))
    }

    /// Finds out whether this user may run ASKING, which a script cannot try.
    pub(super) async fn may_ask(
        &self,
        shard: &Arc<Shard>,
    ) -> Result<(String, Permission), Failure> {
        let permission = match self.plain_to(shard, &Command::new("ASKING")).await {
            Err(failure) if lacks_permission(&failure) => Permission::Missing,
            answer => answer.map(|_ok| Permission::Given)?,
        };
        Ok(("ASKING".to_owned(), permission))
    }
}

fn read(mut reply: Reply) -> Option<Probed> {
    let seconds = u64::try_from(reply.integer()?).ok()?;
    let micros = u64::try_from(reply.integer()?).ok()?;
    let publish = failure_in(&reply.text()?);
    let mut tried = Vec::new();
    while let Some(name) = reply.text() {
        tried.push((name, failure_in(&reply.text()?)));
    }
    let failures = || tried.iter().filter_map(|(_, failure)| failure.as_ref());
    let refusal = failures().find_map(refusal_in);
    // Each command of a probe succeeds if the user has the permission and the server takes writes. So an unknown error
    // counts as a missing permission in an unknown wording, unless another error explains the failure.
    let is_explained = refusal.is_some() || failures().any(lacks_permission);
    let permission = |failure: Option<&Failure>| match failure {
        Some(Failure::Unknown(_)) if !is_explained => Permission::Missing,
        Some(failure) if lacks_permission(failure) => Permission::Missing,
        _ => Permission::Given,
    };
    let publish = permission(publish.as_ref());
    let permissions = tried
        .iter()
        .map(|(name, failure)| (name.clone(), permission(failure.as_ref())));
    let (listing, commands) = permissions.partition(|(name, _)| name == LISTING);
    Some(Probed {
        time: Duration::from_secs(seconds) + Duration::from_micros(micros),
        refusal,
        publish,
        commands,
        listing,
    })
}

/// Looks up what a script's error means; `None` for the empty text of a command that succeeded.
fn failure_in(error: &str) -> Option<Failure> {
    let error = error.trim_start_matches('-');
    let (code, text) = error.split_once(' ').unwrap_or((error, ""));
    (!error.is_empty()).then(|| Failure::classify(code, text))
}

/// Why the server takes no writes; `None` if the failure does not say that it takes none.
fn refusal_in(failure: &Failure) -> Option<Unavailability> {
    match failure.clone() {
        Failure::Transient(why) | Failure::WrongNode(why) | Failure::Moving(why) => Some(why),
        Failure::Elsewhere(redirect) => Some(redirect.reason()),
        Failure::Refused(Unavailability::OutOfMemory) => Some(Unavailability::OutOfMemory),
        Failure::Refused(_) | Failure::NoScript | Failure::WrongType | Failure::Unknown(_) => None,
    }
}

fn lacks_permission(failure: &Failure) -> bool {
    match failure {
        Failure::Unknown(Uncertainty::UnexpectedReply(what)) => what.starts_with(LACKS_PERMISSION),
        _ => matches!(failure, Failure::Refused(Unavailability::Misconfigured(_))),
    }
}

#[cfg(test)]
mod tests {
    use bb8_redis::redis::Value;

    use super::{super::super::client::text, *};

    /// The commands that are missing according to a probe with these errors: the commands of scripts, and the commands
    /// that only a list needs.
    fn missing(errors: &[(&str, &str)]) -> [Vec<String>; 2] {
        let mut reply = vec![text("probe"), text("key"), Value::Int(1), Value::Int(2)];
        reply.push(text(""));
        reply.extend(
            errors
                .iter()
                .flat_map(|(name, error)| [*name, *error].map(text)),
        );
        let reply = Reply::read(Value::Array(reply), "key", Instant::now()).unwrap();
        let probed = read(reply).unwrap();
        assert_eq!(probed.publish, Permission::Given);
        [probed.commands, probed.listing].map(|of| {
            let missing = of.into_iter().filter(|(_, it)| *it == Permission::Missing);
            missing.map(|(name, _)| name).collect()
        })
    }

    #[test]
    fn without_a_list_locks_are_safe_and_without_any_other_command_they_are_not() {
        let refused = "ERR The user executing the script can't run this command or subcommand";
        let undeclared = "ERR Script tried accessing undeclared key";
        let [commands, listing] = missing(&[
            ("GET", ""),
            ("GETRANGE", refused),
            ("SCAN", refused),
            ("keys that are not declared", undeclared),
        ]);
        assert_eq!(commands, ["GETRANGE", "keys that are not declared"]);
        assert_eq!(listing, ["SCAN"]);
    }

    #[test]
    fn a_missing_permission_is_found_in_words_that_nobody_knows() {
        let (unknown, full) = ("ERR you shall not pass", "OOM command not allowed");
        assert_eq!(missing(&[("GET", ""), ("DEL", unknown)])[0], ["DEL"]);
        // In this probe LSET fails because RPUSH did, so LSET does not count as missing.
        let refused = "ERR ACL failure in script: no permissions to run the 'rpush' command";
        let errors = [("RPUSH", refused), ("LSET", "ERR no such key")];
        assert_eq!(missing(&errors)[0], ["RPUSH"]);
        assert_eq!(
            missing(&[("RPUSH", full), ("LSET", "ERR no such key")])[0],
            [""; 0]
        );
    }
}
