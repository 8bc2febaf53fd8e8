//! `latchgate inspect`.

use std::{fmt::Write, time::Duration};

use clap::Args;

use crate::{
    client::{Holder, Inspection, LockState, Waiter},
    lock::LockName,
};

use super::{
    caller::{connection::ConnectionArgs, environment::Environment},
    error::CliError,
    terminal::{duration, output, visible::visible},
};

/// Show who holds a lock.
#[derive(Args)]
pub(super) struct InspectArgs {
    /// The lock
    name: LockName,
    /// Print the gateway's answer as JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn inspect(args: &InspectArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    let lock = client.inspect(&args.name).await?;
    let text = if args.json {
        lock.json().to_owned()
    } else {
        describe(&args.name, &lock)
    };
    output::answer(&text).map_err(CliError::Output)
}

fn describe(name: &LockName, lock: &Inspection) -> String {
    let how = match (lock.state, lock.holders.first()) {
        (LockState::Free, _) => format!("{name} is free\n"),
        (LockState::Held, None) => format!("{name} is held\n"),
        (LockState::Held, Some(holder)) => format!("{name} is held\n{}", facts(holder)),
    };
    how + &queue(&lock.waiters, lock.waiter_count)
}

/// Who waits, for how long already.
fn queue(waiters: &[Waiter], count: u64) -> String {
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("writing to a String never fails");
    };
    if count > 0 {
        line(format_args!("{count} waiting"));
    }
    for waiter in waiters {
        let waited = duration::show(Duration::from_millis(waiter.waited_ms));
        let owner = visible(waiter.owner.as_deref().unwrap_or("somebody"));
        line(format_args!(
            "  {:<14} {owner} for {waited}",
            waiter.position
        ));
    }
    let more = count.saturating_sub(waiters.len() as u64);
    if more > 0 {
        line(format_args!("  and {more} more"));
    }
    text
}

fn facts(holder: &Holder) -> String {
    let mut text = String::new();
    let mut fact = |name: &str, value: &str| {
        let (name, value) = (visible(name), visible(value));
        writeln!(text, "  {name:<14} {value}").expect("writing to a String never fails");
    };
    if holder.foreign {
        fact("taken", "in the store itself, without a gateway");
    }
    if let Some(owner) = &holder.owner {
        fact("owner", owner);
    }
    if let Some(fence) = holder.fencing_token {
        fact("fencing token", &fence.to_string());
    }
    if let Some(mark) = &holder.foreign_mark {
        fact("foreign mark", mark);
    }
    match holder.expires_in_ms {
        Some(ms) => fact("expires in", &duration::show(Duration::from_millis(ms))),
        None => fact("expires", "never"),
    }
    for (name, value) in holder.metadata.iter().flatten() {
        fact(name, value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(json: &str) -> Holder {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn says_what_is_known_of_a_holder() {
        let holder = holder(
            r#"{"owner":"ci@build7","fencing_token":42,"expires_in_ms":29987,"metadata":{"run":"7"}}"#,
        );
        assert_eq!(
            facts(&holder),
            "  owner          ci@build7\n  fencing token  42\n  expires in     29.9s\n  run            7\n"
        );
    }

    #[test]
    fn nobody_can_pretend_to_be_somebody_else() {
        let holder = holder(r#"{"owner":"a\u202eb","metadata":{"run\u200b":"\u001b[2J"}}"#);
        let text = facts(&holder);
        assert!(text.contains(r"a\u{202e}b"), "{text}");
        assert!(text.contains(r"run\u{200b}"), "{text}");
        assert!(text.contains(r"\u{1b}[2J"), "{text}");
    }

    #[test]
    fn says_who_waits_and_how_many_are_not_shown() {
        let waiter = |position, owner: Option<&str>| Waiter {
            position,
            owner: owner.map(str::to_owned),
            waited_ms: 12_340,
        };
        assert_eq!(queue(&[], 0), "");
        assert_eq!(
            queue(&[waiter(1, Some("ci")), waiter(2, None)], 5),
            "5 waiting\n  1              ci for 12.3s\n  2              somebody for 12.3s\n  and 3 more\n"
        );
    }

    #[test]
    fn a_foreign_holder_may_have_no_expiry() {
        let text = facts(&holder(r#"{"foreign":true,"expires_in_ms":null}"#));
        assert!(
            text.contains("without a gateway") && text.contains("never"),
            "{text}"
        );
    }
}
