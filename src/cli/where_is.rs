//! `latchgate where`: everything that a job holds and waits for.

use std::time::Duration;

use clap::Args;

use crate::{
    client::{HeldLock, Holder, Inspection, ListRequest, Waiter},
    lock::{NamePrefix, SearchText},
};

use super::{
    caller::{connection::ConnectionArgs, environment::Environment},
    error::CliError,
    terminal::{
        output,
        text::{duration, entries, expires_in, held_for, owner_and_request},
        visible,
    },
};

/// Show everything that a job holds and waits for, and behind whom it waits.
///
/// Finds leases and waiters that have the text in their owner or in a value of their metadata: the name of a machine,
/// the number of a job. Of each lock, the hundred holders that end first and the first hundred waiters are searched.
#[derive(Args)]
pub(super) struct WhereArgs {
    /// A part of the owner or of a metadata value; upper and lower case match
    #[arg(value_parser = SearchText::new)]
    text: SearchText,
    /// Only owners and metadata values that are the whole text, exactly: `where ci-1 --exact` does not show ci-12
    #[arg(long)]
    exact: bool,
    /// Only locks whose names start with this prefix
    #[arg(long, default_value = "", hide_default_value = true, value_parser = NamePrefix::new)]
    prefix: NamePrefix,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// How many of the waiters before a waiter are named.
const NAMED: usize = 3;

pub(super) async fn where_is(args: &WhereArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    let mut request = ListRequest {
        prefix: args.prefix.clone(),
        search: Some(args.text.clone()),
        ..ListRequest::default()
    };
    let (mut held, mut waited) = (Vec::new(), Vec::new());
    loop {
        let page = client.list(&request).await?;
        for lock in page.locks {
            let holders = lock
                .holders
                .iter()
                .filter(|it| has(&args.text, args.exact, it));
            held.extend(holders.map(|holder| describe_hold(&lock, holder)));
            if lock.waiter_count > 0 {
                let seen = client.inspect(&lock.name).await?;
                waited.extend(waits(&args.text, args.exact, &lock, &seen));
            }
        }
        request.cursor = page.next_cursor;
        if request.cursor.is_none() {
            break;
        }
    }
    // A lock may be on two pages, and its times have changed by then.
    for lines in [&mut held, &mut waited] {
        lines.sort();
        lines.dedup_by(|one, other| one.0 == other.0);
    }
    if held.is_empty() && waited.is_empty() {
        let text = visible(args.text.as_str());
        output::note(&format!(
            "nothing with the text {text} holds or waits for a lock"
        ));
        return Ok(());
    }
    let lines = held.into_iter().chain(waited).map(|(_, line)| line);
    output::answer(&lines.collect::<String>())
}

/// What tells a lease or a waiter apart: the lock, and the fencing token or the position.
type Key = (String, u64);

fn has(text: &SearchText, exact: bool, holder: &Holder) -> bool {
    let values = holder.metadata.iter().flat_map(|it| it.values());
    let mut texts = holder.owner.iter().chain(values);
    texts.any(|it| text.is_in(it) && (!exact || it == text.as_str()))
}

fn describe_hold(lock: &HeldLock, holder: &Holder) -> (Key, String) {
    let name = lock.name.to_string();
    let held = held_for(holder).map(|held| format!(" for {}", duration(held)));
    let (held, left, who) = (held.unwrap_or_default(), expires_in(holder), told(holder));
    let waiting = match lock.waiter_count {
        0 => String::new(),
        waiters => format!("; {waiters} waiting"),
    };
    let line = format!("holds      {name}{held}: {who}, expires in {left}{waiting}\n");
    ((name, holder.fencing_token.unwrap_or_default()), line)
}

/// The waiters that have the text, each with its position and who is before it.
fn waits(text: &SearchText, exact: bool, lock: &HeldLock, seen: &Inspection) -> Vec<(Key, String)> {
    let is_it = |waiter: &Waiter| {
        let mut texts = waiter.owner.iter().chain(waiter.metadata.values());
        texts.any(|it| text.is_in(it) && (!exact || it == text.as_str()))
    };
    let holders: Vec<_> = seen.holders.iter().map(owner_and_request).collect();
    let holders = named("; held by ", &holders, seen.holder_count);
    let line = |(at, waiter): (usize, &Waiter)| {
        let (name, position, all) = (lock.name.to_string(), waiter.position, seen.waiter_count);
        let waited = duration(Duration::from_millis(waiter.waited_ms));
        let behind: Vec<_> = seen.waiters[..at].iter().rev().map(owner).collect();
        let behind = named(", behind ", &behind, at as u64);
        let who = owner(waiter);
        let line = format!(
            "waits for  {name} for {waited}: {who}, {position} of {all}{behind}{holders}\n"
        );
        ((name, position), line)
    };
    let waiters = seen.waiters.iter().enumerate();
    waiters.filter(|(_, it)| is_it(it)).map(line).collect()
}

fn owner(waiter: &Waiter) -> String {
    let owner = visible(waiter.owner.as_deref().unwrap_or("somebody")).into_owned();
    owner + &entries(&waiter.metadata)
}

fn told(holder: &Holder) -> String {
    let metadata = holder.metadata.as_ref().map(entries);
    owner_and_request(holder) + &metadata.unwrap_or_default()
}

/// The first of these names behind `what`, and how many more there are; empty without a name.
fn named(what: &str, names: &[String], count: u64) -> String {
    let text = names
        .iter()
        .take(NAMED)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match count.saturating_sub(NAMED as u64) {
        _ if names.is_empty() => String::new(),
        0 => format!("{what}{text}"),
        more => format!("{what}{text} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(json: &str) -> Vec<String> {
        let lock = r#"{"name":"freeze","holders":[],"waiter_count":5}"#;
        let (lock, seen) = (serde_json::from_str(lock), serde_json::from_str(json));
        let text = SearchText::new("4711").unwrap();
        let waits = waits(&text, false, &lock.unwrap(), &seen.unwrap());
        waits.into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn a_waiter_is_told_with_its_position_and_who_is_before_it() {
        let waiter = |position: u64, job: &str| {
            format!(
                r#"{{"position":{position},"owner":"ci-{position}","metadata":{{"job":"{job}"}},
                    "mode":"exclusive","limit":null,"waited_ms":31000}}"#
            )
        };
        let waiters: Vec<_> = [(1, "1"), (2, "2"), (3, "3"), (4, "4"), (5, "x4711\\u202e")]
            .map(|(position, job)| waiter(position, job))
            .into();
        let holder = r#"{"owner":"ann","reservation":{"until":"soon","reason":"incident","reserved_by":"ann"}}"#;
        let seen = format!(
            r#"{{"state":"held","holders":[{holder}],"holder_count":1,"waiters":[{}],"waiter_count":5}}"#,
            waiters.join(",")
        );
        assert_eq!(
            waiting(&seen),
            [
                "waits for  freeze for 31s: ci-5 job=x4711\\u{202e}, 5 of 5, behind ci-4 job=4, ci-3 job=3, \
                 ci-2 job=2 and 1 more; held by ann (reserved by ann until soon because incident)\n"
            ]
        );
        let passing = format!(
            r#"{{"state":"free","waiters":[{}],"waiter_count":1}}"#,
            waiter(1, "4711")
        );
        assert_eq!(
            waiting(&passing),
            ["waits for  freeze for 31s: ci-1 job=4711, 1 of 1\n"]
        );
    }

    #[test]
    fn a_holder_is_found_by_its_owner_and_its_metadata_but_not_by_a_name_of_an_entry() {
        let holder = |json: &str| serde_json::from_str::<Holder>(json).unwrap();
        let text = |text: &str| SearchText::new(text).unwrap();
        let is = |part: &str, json: &str| has(&text(part), true, &holder(json));
        let has = |part: &str, json: &str| has(&text(part), false, &holder(json));
        let json = r#"{"owner":"Runner-8","metadata":{"job":"4711"}}"#;
        assert!(has("runner", json) && has("47", json) && !has("job", json));
        assert!(is("4711", json) && is("Runner-8", json));
        assert!(!is("runner-8", json) && !is("471", json));
        assert!(!has("x", r#"{"foreign":true}"#));
    }
}
