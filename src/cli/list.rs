//! `latchgate list`.

use std::{collections::HashSet, num::NonZeroUsize};

use clap::Args;

use crate::{
    client::{HeldLock, Holder, ListRequest},
    lock::{LockName, NamePrefix, Owner, SearchText},
};

use super::{
    caller::{connection::ConnectionArgs, environment::Environment},
    error::CliError,
    terminal::{
        output,
        release_request::{expires_in, owner_and_request},
        table::{aligned, or_dash},
        visible,
    },
};

/// Show the locks that are held.
#[derive(Args)]
pub(super) struct ListArgs {
    /// Only locks whose names start with this prefix
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: NamePrefix,
    /// Only locks whose leases have this owner, exactly
    #[arg(long, value_parser = Owner::new)]
    owner: Option<Owner>,
    /// Only locks that have this text in the name, in the owner or in a value of the metadata
    #[arg(long, value_name = "TEXT")]
    search: Option<SearchText>,
    /// Show at most so many, 1 or more [default: all]
    #[arg(long, value_name = "N", value_parser = limit)]
    limit: Option<NonZeroUsize>,
    /// Print one JSON object a line, as they come
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// How many locks are asked for at a time.
const PAGE: u32 = 500;

pub(super) async fn list(args: &ListArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    let mut left = args.limit.map_or(usize::MAX, NonZeroUsize::get);
    let mut request = ListRequest {
        prefix: args.prefix.clone(),
        owner: args.owner.clone(),
        search: args.search.clone(),
        limit: Some(PAGE),
        cursor: None,
    };
    // A lock that was on one page may be on another as well.
    let mut seen = HashSet::new();
    let mut table = Vec::new();
    while left > 0 {
        request.limit = Some(PAGE.min(u32::try_from(left).unwrap_or(PAGE)));
        let page = client.list(&request).await?;
        let mut new: Vec<HeldLock> = page.locks;
        new.retain(|lock| seen.insert(lock.name.clone()));
        new.truncate(left);
        left -= new.len();
        if args.json {
            print(&new)?;
        } else {
            table.extend(new);
        }
        request.cursor = page.next_cursor;
        if request.cursor.is_none() {
            break;
        }
    }
    if args.json {
        return Ok(());
    }
    table.sort_by(|one, other| one.name.cmp(&other.name));
    if table.is_empty() {
        output::note("no lock is held");
        return Ok(());
    }
    output::answer(&show(&table)).map_err(CliError::Output)
}

fn limit(text: &str) -> Result<NonZeroUsize, String> {
    text.parse()
        .map_err(|_invalid| "expected a whole number, 1 or more".to_owned())
}

fn print(locks: &[HeldLock]) -> Result<(), CliError> {
    if locks.is_empty() {
        return Ok(());
    }
    let lines: Vec<&str> = locks.iter().map(HeldLock::json).collect();
    output::answer(&lines.join("\n")).map_err(CliError::Output)
}

/// A table for people: a row for each holder.
fn show(locks: &[HeldLock]) -> String {
    let head = ["LOCK", "MODE", "EXPIRES IN", "FENCING TOKEN", "OWNER"];
    let mut rows = vec![head.map(str::to_owned)];
    for lock in locks {
        rows.extend(lock.holders.iter().map(|holder| row(&lock.name, holder)));
        let more = lock.holder_count.saturating_sub(lock.holders.len() as u64);
        if more > 0 {
            let nothing = String::new;
            let more = format!("(and {more} more)");
            rows.push([lock.name.to_string(), nothing(), nothing(), nothing(), more]);
        }
    }
    aligned(&rows)
}

fn row(name: &LockName, holder: &Holder) -> [String; 5] {
    let mode = match holder.slot {
        Some(slot) => format!("slot {slot}"),
        None => or_dash(holder.mode.as_deref().map(visible)),
    };
    [
        name.to_string(),
        mode,
        expires_in(holder),
        or_dash(holder.fencing_token),
        owner_and_request(holder),
    ]
}
