//! `latchgate break`: ends the lease of another holder.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal},
    time::Duration,
};

use clap::Args;

use crate::{
    client::{Client, ClientError, HeldLock, Holder, Inspection, ListRequest, LockState, Rest},
    lock::{BreakTarget, FencingToken, ForeignMark, LockName, Owner, Reason},
};

use super::{
    caller::{connection::ConnectionArgs, environment::Environment, request::number},
    error::{CliError, Exit},
    terminal::{
        output,
        text::{self, duration, held_for, or_dash, owner_and_request},
        visible,
    },
};

/// Take a lock away from its holder.
///
/// Shows the holder, asks for confirmation, and ends the lease shown and no other: if another lease holds the lock
/// by then, nothing is broken. If several leases share the lock, name one with --fencing-token, or use --all. The
/// previous holder learns of the break at its next renewal, or at once if it holds the lock with a stream. Nothing
/// can stop it from continuing its work.
///
/// With --owner instead of a lock, every lease of an owner is broken: the leases are shown, and then broken one by one.
/// --dry-run only shows them.
///
/// With --grace the holder is first asked to release the lock, and the lease is broken only if it still exists
/// after that time. `run` ends its command when it is asked.
#[derive(Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(super) struct BreakArgs {
    /// The lock
    #[arg(required_unless_present = "owner")]
    name: Option<LockName>,
    /// Break every lease of this owner, exactly, instead of one lock
    ///
    /// Of a shared lock, the hundred leases that end first are looked at. Requests of the owner that wait for a lock
    /// stay in the queue, and may be granted a lock that this break has freed.
    #[arg(
        long,
        value_parser = Owner::new,
        conflicts_with_all = ["name", "any", "all", "fencing_token", "foreign_mark"]
    )]
    owner: Option<Owner>,
    /// With --owner: show what would be broken, and break nothing
    // `requires = "owner"` would not do: clap drops it where `owner` conflicts with what is given.
    #[arg(long, conflicts_with_all = ["name", "any", "all", "fencing_token", "foreign_mark"])]
    dry_run: bool,
    /// Reason for the audit log: 1 to 200 characters
    #[arg(long, value_name = "TEXT", value_parser = Reason::not_blank)]
    reason: Reason,
    /// Break the lease with this fencing token, without asking
    #[arg(long, value_name = "N", value_parser = fence, conflicts_with = "any")]
    fencing_token: Option<FencingToken>,
    /// Break the foreign lock with this mark, without asking
    ///
    /// A foreign lock is held by a client that uses no gateway. `inspect` shows the mark. A client that always
    /// writes the same value always has the same mark.
    #[arg(
        long,
        value_name = "MARK",
        value_parser = ForeignMark::new,
        conflicts_with_all = ["any", "fencing_token"]
    )]
    foreign_mark: Option<ForeignMark>,
    /// Break all leases that share the lock, without asking
    ///
    /// These are the leases that hold the lock when the gateway carries out the break. To break one lease, its
    /// fencing token is safer: that break can be repeated.
    #[arg(long, conflicts_with_all = ["any", "fencing_token", "foreign_mark"])]
    all: bool,
    /// Break the holder that is found, whoever it is, without asking
    ///
    /// Also works with an API key that may not view the lock. Without the view, nothing identifies the lease, so
    /// the break ends the lease that holds the lock at that moment.
    #[arg(long)]
    any: bool,
    /// Ask the holder to release the lock, and break it only after this: 30s, 5m; at most 1h
    ///
    /// The command does not wait for that. The holder learns of the request at its next renewal, or at once if it
    /// holds the lock with a stream; a holder that renews less often may learn of it too late. 0 is the same as
    /// no --grace.
    #[arg(long, value_name = "TIME", value_parser = text::parse_wait, conflicts_with = "foreign_mark")]
    grace: Option<Duration>,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Print the gateway's answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn break_lock(
    args: &BreakArgs,
    environment: &Environment,
) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    if let Some(owner) = &args.owner {
        return break_leases_of(args, owner, &client).await;
    }
    let name = args
        .name
        .as_ref()
        .expect("clap requires a name or an owner");
    let target = match args.target() {
        Some(given) => Some(given),
        None => target_found(args, name, &client).await?,
    };
    let broken = args.send(&client, name, target).await?;
    args.report(name, &broken)
}

/// Breaks all leases of an owner, or asks their holder to release them, after the user has seen them.
async fn break_leases_of(args: &BreakArgs, owner: &Owner, client: &Client) -> Result<(), CliError> {
    let found = leases_of(owner, client).await?;
    let leases = match found.len() {
        0 => {
            let nothing = format!("\"{}\" holds nothing", visible(owner.as_str()));
            return Err(CliError::new(Exit::NotHeld, nothing));
        }
        1 => "1 lease".to_owned(),
        many => format!("{many} leases"),
    };
    for (name, holder, waiters) in &found {
        let waiting = match waiters {
            0 => String::new(),
            waiters => format!("; {waiters} waiting"),
        };
        let held = held_for(holder).map(|held| format!(", held for {}", duration(held)));
        let (owner, held) = (owner_and_request(holder), held.unwrap_or_default());
        let fence = or_dash(holder.fencing_token);
        output::note(&format!(
            "{name}: {owner}, fencing token {fence}{held}{waiting}"
        ));
    }
    let does = match args.grace() {
        Some(grace) => format!("request the release of {leases} within {}", duration(grace)),
        None => format!("break {leases}"),
    };
    if args.dry_run {
        let who = visible(owner.as_str());
        output::note(&format!(
            "would {does}; latchgate where \"{who}\" --exact shows what it waits for"
        ));
        return Ok(());
    }
    args.confirm(&format!("{does}?"))?;
    let mut failed = Ok(());
    for (name, holder, _) in &found {
        // A break without a target would end the lease of whoever holds the lock now.
        let Some(target) = target_of(holder) else {
            output::note(&format!("{name}: its holder cannot be named, and is left"));
            continue;
        };
        match args.send(client, name, Some(target)).await {
            Ok(broken) => args.report(name, &broken)?,
            // The lease has ended meanwhile, which is what the user wanted.
            Err(ClientError::Refused(problem))
                if matches!(&*problem.code, "not-held" | "holder-changed") =>
            {
                output::note(&format!("{name}: the lease has ended already"));
            }
            // A failure for one lease does not prevent the breaks of the others.
            Err(error) => {
                let error = CliError::from(error);
                output::note(&format!("{name}: {error}"));
                failed = Err(error);
            }
        }
    }
    failed
}

/// All leases of an owner, with their locks and how many requests wait for the lock.
async fn leases_of(
    owner: &Owner,
    client: &Client,
) -> Result<Vec<(LockName, Holder, u64)>, CliError> {
    let mut request = ListRequest {
        owner: Some(owner.clone()),
        ..ListRequest::default()
    };
    let mut found = BTreeMap::new();
    loop {
        let page = client.list(&request).await?;
        for lock in page.locks {
            for holder in lock.holders {
                // A shared lock is listed with all its holders.
                if holder.owner.as_deref() == Some(owner.as_str()) {
                    let key = (lock.name.clone(), holder.fencing_token);
                    found.insert(key, (holder, lock.waiter_count));
                }
            }
        }
        request.cursor = page.next_cursor;
        if request.cursor.is_none() {
            let leases = found.into_iter();
            return Ok(leases
                .map(|((name, _), (holder, waiters))| (name, holder, waiters))
                .collect());
        }
    }
}

// === impl BreakArgs ===

impl BreakArgs {
    /// Breaks the target, or asks its holder to release it.
    async fn send(
        &self,
        client: &Client,
        name: &LockName,
        target: Option<BreakTarget>,
    ) -> Result<HeldLock, ClientError> {
        match self.grace() {
            Some(grace) => {
                client
                    .request_release(name, &self.reason, target, grace)
                    .await
            }
            None => client.break_lock(name, &self.reason, target).await,
        }
    }

    /// Prints what was broken.
    fn report(&self, name: &LockName, broken: &HeldLock) -> Result<(), CliError> {
        if self.json {
            return output::answer(broken.json());
        }
        let what = match self.grace() {
            Some(grace) => format!("requested the release of {name} within {}", duration(grace)),
            None => format!("broke {name}"),
        };
        let rests: Vec<_> = broken.resting.iter().map(rested).collect();
        for holder in broken.holders.iter().chain(&rests) {
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

    /// Asks the user to confirm, unless `--yes` has.
    fn confirm(&self, question: &str) -> Result<(), CliError> {
        if self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            return Err(CliError::argument(
                "--yes",
                "is needed without a terminal, because the command cannot ask",
            ));
        }
        output::ask(&format!("{question} [y/N] "));
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line);
        match (read, line.trim()) {
            (Ok(_), "y" | "Y" | "yes") => Ok(()),
            _ => Err(CliError::unexpected("nothing was broken")),
        }
    }

    /// The time that the holder gets to release the lock before the break, if `--grace` gives one.
    fn grace(&self) -> Option<Duration> {
        self.grace.filter(|grace| !grace.is_zero())
    }

    /// The lease or the foreign lock that the options name, or all holders with `--all`; `None` if the options name
    /// none.
    fn target(&self) -> Option<BreakTarget> {
        let lease = self.fencing_token.map(BreakTarget::Lease);
        lease
            .or_else(|| self.foreign_mark.map(BreakTarget::Foreign))
            .or(self.all.then_some(BreakTarget::All))
    }
}

/// Parses a fencing token from a command-line argument.
pub(super) fn fence(text: &str) -> Result<FencingToken, String> {
    number(text, FencingToken::new)
}

/// The holder that `inspect` has found and the user has confirmed; `None` with `--any` if the holder cannot be
/// identified.
async fn target_found(
    args: &BreakArgs,
    name: &LockName,
    client: &Client,
) -> Result<Option<BreakTarget>, CliError> {
    let lock = match client.inspect(name).await {
        // An API key may have the permission to break a lock, but not to view its holder.
        Err(ClientError::Refused(problem)) if problem.code == "forbidden" => {
            let needed = "is needed: the API key may not see who holds the lock";
            return any_holder(args, needed);
        }
        lock => lock?,
    };
    let holder = holder(&lock)?;
    let Some(target) = target_of(&holder) else {
        let needed = "is needed: the gateway cannot identify the holder of the lock";
        return any_holder(args, needed);
    };
    if args.any {
        return Ok(Some(target));
    }
    let rests = lock.state == LockState::Resting;
    let left = match left(&holder) {
        Some(left) if rests => format!("for another {left}"),
        Some(left) => format!("for another {left} unless it is renewed"),
        None => "without an expiry".to_owned(),
    };
    let how = if rests { "rests after" } else { "is held by" };
    let who = who(&holder);
    output::note(&format!("{name} {how} {who}, {left}"));
    if lock.waiter_count > 0 {
        output::note(&format!("{} waiting; the first is next", lock.waiter_count));
    }
    args.confirm(&match args.grace() {
        Some(grace) => format!(
            "request the release, and break the lock in {}?",
            duration(grace)
        ),
        None => "break it?".to_owned(),
    })?;
    Ok(Some(target))
}

/// Returns `None` as the target of the break, if the command line has `--any`; otherwise an error that says which
/// option is needed.
fn any_holder(args: &BreakArgs, needed: &str) -> Result<Option<BreakTarget>, CliError> {
    if args.any {
        Ok(None)
    } else {
        Err(CliError::argument("--any", needed))
    }
}

/// The only holder of the lock. If several leases share the lock, returns an error that asks the user to choose one.
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
            Err(CliError::argument("--all", several))
        }
        (LockState::Held, Some(holder)) => Ok(holder.clone()),
        (LockState::Resting, _) if lock.resting.len() == 1 => Ok(rested(&lock.resting[0])),
        (LockState::Resting, _) => {
            let several = "or --fencing-token is needed: several leases rest";
            Err(CliError::argument("--all", several))
        }
        (LockState::Held, None) | (LockState::Free, _) => {
            Err(CliError::new(Exit::NotHeld, "nobody holds the lock"))
        }
    }
}

/// A rest, as the holder that a break ends.
fn rested(rest: &Rest) -> Holder {
    Holder {
        owner: Some("its last lease".to_owned()),
        fencing_token: Some(rest.fencing_token),
        slot: rest.slot,
        expires_in_ms: Some(rest.available_in_ms),
        ..Holder::default()
    }
}

/// The fencing token or the foreign mark of the holder, by which the break names the holder.
fn target_of(holder: &Holder) -> Option<BreakTarget> {
    if let Some(fence) = holder.fencing_token {
        return FencingToken::new(fence).ok().map(BreakTarget::Lease);
    }
    let mark = holder.foreign_mark.as_deref()?;
    ForeignMark::new(mark).ok().map(BreakTarget::Foreign)
}

/// Describes the holder in words, for the question and for messages.
fn who(holder: &Holder) -> String {
    let who = match &holder.owner {
        Some(owner) => visible(owner).into_owned(),
        None if holder.foreign => "a client that uses no gateway".to_owned(),
        None => "a holder without a name".to_owned(),
    };
    let fence = holder
        .fencing_token
        .map(|fence| format!(", fencing token {fence}"));
    let slot = holder.slot.map(|slot| format!(", slot {slot}"));
    who + &fence.unwrap_or_default() + &slot.unwrap_or_default()
}

/// The time left until the holder's lease ends, if it has an end.
fn left(holder: &Holder) -> Option<String> {
    let ms = holder.expires_in_ms?;
    Some(duration(Duration::from_millis(ms)))
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
