//! `latchgate break`.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use clap::Args;

use crate::{
    client::{Client, ClientError, Holder, Inspection, LockState},
    lock::{BreakTarget, FencingToken, ForeignMark, LockName, Reason},
};

use super::{
    caller::{connection::ConnectionArgs, environment::Environment},
    error::CliError,
    terminal::{duration, output, visible::visible},
};

/// Take a lock away from whoever holds it.
///
/// Shows who holds the lock, asks for confirmation, and ends that lease and no other: if somebody else
/// holds the lock by then, nothing is broken. If several share it, say which lease is meant, or --all. The previous holder learns of it from its next renewal, or
/// at once if it holds the lock by a stream. Nothing can stop it from working on.
///
/// With --grace the holder is asked to release the lock first, and only what is left of its lease then is broken. `run`
/// ends its command when it is asked.
#[derive(Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(super) struct BreakArgs {
    /// The lock
    name: LockName,
    /// Why, for the audit log: 1 to 200 characters
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Break the lease with this fencing token, without asking
    #[arg(long, value_name = "N", conflicts_with = "any")]
    fencing_token: Option<u64>,
    /// Break what a client that uses no gateway holds, by its mark, without asking
    ///
    /// `inspect` shows the mark. A client that always writes the same value always has the same.
    #[arg(long, value_name = "MARK", conflicts_with_all = ["any", "fencing_token"])]
    foreign_mark: Option<String>,
    /// Break all leases that share the lock, without asking
    ///
    /// Those that hold it when the gateway looks at it. Of one lease it is safer to name the fencing token:
    /// that break can be repeated.
    #[arg(long, conflicts_with_all = ["any", "fencing_token", "foreign_mark"])]
    all: bool,
    /// Break whatever is found to hold the lock, without asking
    ///
    /// Also with an API key that may not see who holds it. In that case nothing identifies the lease,
    /// and the lease of whoever holds the lock by then is ended.
    #[arg(long)]
    any: bool,
    /// Ask the holder to release the lock, and break it only after this: 30s, 5m; at most 1h
    ///
    /// The command does not wait for that. A holder hears of it with its next renewal, or at once if it holds the lock by
    /// a stream; one that renews more seldom may not hear of it in time. 0 is the same as without.
    #[arg(long, value_name = "TIME", value_parser = duration::parse_wait, conflicts_with = "foreign_mark")]
    grace: Option<Duration>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Print the gateway's answer as JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn break_lock(
    args: &BreakArgs,
    environment: &Environment,
) -> Result<(), CliError> {
    let reason = Reason::new(&args.reason).map_err(|error| argument("--reason", &error))?;
    let given = target_from_args(args)?;
    let client = args.connection.client(environment)?;
    let target = match given {
        Some(given) => Some(given),
        None if args.any => target_found(args, &client).await?,
        None => Some(target_confirmed(args, &client).await?),
    };
    let broken = match args.grace() {
        Some(grace) => {
            let request = client.request_release(&args.name, &reason, target, grace);
            request.await?
        }
        None => client.break_lock(&args.name, &reason, target).await?,
    };
    if args.json {
        return output::answer(broken.json()).map_err(CliError::Output);
    }
    let what = match args.grace() {
        Some(grace) => format!("asked for {} within {}", args.name, duration::show(grace)),
        None => format!("broke {}", args.name),
    };
    for holder in &broken.holders {
        let left = left(holder).map_or_else(String::new, |left| format!(", with {left} left"));
        output::note(&format!("{what}: {}{left}", who(holder)));
    }
    let shown = broken.holders.len() as u64;
    if broken.holder_count > shown {
        let more = broken.holder_count - shown;
        output::note(&format!("{what}: and {more} more"));
    }
    Ok(())
}

// === impl BreakArgs ===

impl BreakArgs {
    /// How much time the holder is given, if any.
    fn grace(&self) -> Option<Duration> {
        self.grace.filter(|grace| !grace.is_zero())
    }
}

/// What the command line says.
fn target_from_args(args: &BreakArgs) -> Result<Option<BreakTarget>, CliError> {
    let fence = args.fencing_token.map(FencingToken::new).transpose();
    let fence = fence.map_err(|error| argument("--fencing-token", &error))?;
    let mark = args
        .foreign_mark
        .as_deref()
        .map(ForeignMark::new)
        .transpose();
    let mark = mark.map_err(|error| argument("--foreign-mark", &error))?;
    let one = fence
        .map(BreakTarget::Lease)
        .or(mark.map(BreakTarget::Foreign));
    Ok(one.or(args.all.then_some(BreakTarget::All)))
}

/// What holds the lock, if it may be seen and can be told from others.
async fn target_found(args: &BreakArgs, client: &Client) -> Result<Option<BreakTarget>, CliError> {
    let lock = match client.inspect(&args.name).await {
        Ok(lock) => lock,
        // To break and to see are two permissions.
        Err(ClientError::Refused(problem)) if problem.code == "forbidden" => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(target_of(&holder(&lock)?))
}

/// What whoever asks has seen, and means.
async fn target_confirmed(args: &BreakArgs, client: &Client) -> Result<BreakTarget, CliError> {
    let lock = match client.inspect(&args.name).await {
        Err(ClientError::Refused(problem)) if problem.code == "forbidden" => {
            return Err(argument(
                "--any",
                &"is needed: the API key may not see who holds the lock",
            ));
        }
        lock => lock?,
    };
    let holder = holder(&lock)?;
    let Some(target) = target_of(&holder) else {
        return Err(argument(
            "--any",
            &"is needed: what holds the lock cannot be told from others",
        ));
    };
    let left = match left(&holder) {
        Some(left) => format!("for another {left} unless it is renewed"),
        None => "without an expiry".to_owned(),
    };
    output::note(&format!(
        "{} is held by {}, {left}",
        args.name,
        who(&holder)
    ));
    if lock.waiter_count > 0 {
        output::note(&format!("{} waiting; the first is next", lock.waiter_count));
    }
    if args.yes {
        return Ok(target);
    }
    if !io::stdin().is_terminal() {
        return Err(argument("--yes", &"is needed where nobody can be asked"));
    }
    output::ask(&match args.grace() {
        Some(grace) => format!(
            "ask for it, and break it in {}? [y/N] ",
            duration::show(grace)
        ),
        None => "break it? [y/N] ".to_owned(),
    });
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line);
    match (read, line.trim()) {
        (Ok(_), "y" | "Y" | "yes") => Ok(target),
        _ => Err(CliError::Declined),
    }
}

/// The only holder: of several it must be said which is meant.
fn holder(lock: &Inspection) -> Result<Holder, CliError> {
    match (lock.state, lock.holders.first()) {
        (LockState::Held, Some(_)) if lock.holder_count > 1 => {
            for holder in &lock.holders {
                output::note(&who(holder));
            }
            let several = format!(
                "or --fencing-token is needed: {} leases share the lock",
                lock.holder_count
            );
            Err(argument("--all", &several))
        }
        (LockState::Held, Some(holder)) => Ok(holder.clone()),
        (LockState::Held, None) | (LockState::Free, _) => Err(CliError::NotHeld),
    }
}

/// By what a holder is told from others.
fn target_of(holder: &Holder) -> Option<BreakTarget> {
    if let Some(fence) = holder.fencing_token {
        return FencingToken::new(fence).ok().map(BreakTarget::Lease);
    }
    let mark = holder.foreign_mark.as_deref()?;
    ForeignMark::new(mark).ok().map(BreakTarget::Foreign)
}

fn argument(flag: &'static str, error: &dyn std::fmt::Display) -> CliError {
    CliError::Argument {
        flag,
        error: error.to_string(),
    }
}

/// Whom it hits.
fn who(holder: &Holder) -> String {
    let who = match &holder.owner {
        Some(owner) => visible(owner).into_owned(),
        None if holder.foreign => "a client that uses no gateway".to_owned(),
        None => "somebody without a name".to_owned(),
    };
    let fence = match holder.fencing_token {
        Some(fence) => format!(", fencing token {fence}"),
        None => String::new(),
    };
    let slot = match holder.slot {
        Some(slot) => format!(", slot {slot}"),
        None => String::new(),
    };
    who + &fence + &slot
}

/// For how long, if there is an end to it.
fn left(holder: &Holder) -> Option<String> {
    let ms = holder.expires_in_ms?;
    Some(duration::show(Duration::from_millis(ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_whom_it_hits() {
        let who = |json: &str| who(&serde_json::from_str(json).unwrap());
        assert_eq!(
            who(r#"{"owner":"ci\u202e","fencing_token":42,"expires_in_ms":21480}"#),
            r"ci\u{202e}, fencing token 42"
        );
        assert_eq!(
            who(r#"{"owner":"ci","fencing_token":42,"mode":"shared","slot":2}"#),
            "ci, fencing token 42, slot 2"
        );
        assert_eq!(
            who(r#"{"foreign":true,"expires_in_ms":null}"#),
            "a client that uses no gateway"
        );
    }
}
