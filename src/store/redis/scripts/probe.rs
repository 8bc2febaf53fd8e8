//! Calls `probe.lua`.

use bb8_redis::redis::Cmd;
use tokio::time::{Duration, Instant};

use crate::store::{Unavailability, Uncertainty};

use super::{
    super::{Slot, dispatch::Dispatch, failure::Failure, keys::Keys},
    Reply, Scripts,
};

/// What a probe found.
#[derive(Debug)]
pub(in crate::store::redis) struct Probed {
    /// The server's clock, since 1970.
    pub(in crate::store::redis) time: Duration,
    /// Why the server takes no writes now, if it does not.
    pub(in crate::store::redis) refusal: Option<Unavailability>,
    /// PUBLISH, on a channel of ours.
    pub(in crate::store::redis) publish: Permission,
    /// The commands that the scripts use, by name.
    pub(in crate::store::redis) commands: Vec<(String, Permission)>,
    /// Those that only a list needs: without them locks are as safe as ever.
    pub(in crate::store::redis) listing: Vec<(String, Permission)>,
}

/// Whether the user may do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum Permission {
    Given,
    Missing,
}

/// The commands that only a list needs.
const LISTING: [&str; 2] = ["SCAN", "GETRANGE"];

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn probe(
        &self,
        dispatch: &Dispatch,
        deadline: Instant,
    ) -> Result<Probed, Failure> {
        let slot = Slot::of(Keys::PROBE.as_bytes());
        let fill = |command: &mut Cmd| {
            command.arg(Keys::PROBE).arg(Keys::PROBE);
        };
        let once = dispatch.once(&self.probe, slot, Keys::PROBE, deadline, fill);
        let reply = once.await?;
        read(reply)
            .ok_or_else(|| Failure::Unknown(Uncertainty::UnexpectedReply("no probe".to_owned())))
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
        let of_list = LISTING.contains(&name.as_str());
        let those = if of_list { &mut listing } else { &mut commands };
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
        Failure::Transient(why) | Failure::WrongNode(why) => Some(why),
        Failure::Refused(Unavailability::OutOfMemory) => Some(Unavailability::OutOfMemory),
        Failure::Refused(_) | Failure::NoScript | Failure::WrongType | Failure::Unknown(_) => None,
    }
}

// === impl Permission ===

impl Permission {
    /// Only a missing permission counts: a command that fails for another reason was allowed.
    fn from_error(error: &str) -> Self {
        match failure_in(error) {
            Failure::Refused(Unavailability::Misconfigured(_)) => Self::Missing,
            _ => Self::Given,
        }
    }
}
