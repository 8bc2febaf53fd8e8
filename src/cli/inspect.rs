//! `latchgate inspect` and `latchgate list`, which show the holders of locks, and `latchgate check`, which says whether
//! a lease with a fencing token is one.

use std::{collections::HashSet, fmt::Write, num::NonZeroUsize, time::Duration};

use clap::Args;

use crate::{
    client::{HeldLock, Holder, Inspection, ListRequest, LockState, Rest, Waiter, describe_grant},
    lock::{FencingToken, LockName, NamePrefix, Owner, SearchText},
};

use super::{
    break_lock::fence,
    caller::{connection::ConnectionArgs, environment::Environment},
    error::CliError,
    terminal::{
        output,
        text::{
            aligned, asked_for, awaited, duration, expires_in, or_dash, owner_and_request,
            parse_duration, reserved,
        },
        visible,
    },
};

/// Show who holds a lock.
#[derive(Args)]
pub(super) struct InspectArgs {
    /// The lock
    name: LockName,
    /// Print the gateway's answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Show the locks that are held.
#[derive(Args)]
pub(super) struct ListArgs {
    /// Only locks whose names start with this prefix
    #[arg(long, default_value = "", hide_default_value = true, value_parser = NamePrefix::new)]
    prefix: NamePrefix,
    /// Only locks whose leases have this owner, exactly
    #[arg(long, value_parser = Owner::new)]
    owner: Option<Owner>,
    /// Only locks that have this text in the name, in the owner or in a value of the metadata
    #[arg(long, value_name = "TEXT", value_parser = SearchText::new)]
    search: Option<SearchText>,
    /// Show at most N locks, 1 or more [default: all]
    #[arg(long, value_name = "N", value_parser = limit)]
    limit: Option<NonZeroUsize>,
    /// Print one JSON object per line, page by page
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Check that a lease with a fencing token holds a lock.
///
/// For a script that does something on behalf of a holder: go on only if the exit code is 0. Prints nothing then.
#[derive(Args)]
pub(super) struct CheckArgs {
    /// The lock
    name: LockName,
    /// The fencing token of the lease
    #[arg(long, value_name = "N", value_parser = fence)]
    fence: FencingToken,
    /// For how long the lease must still last: 30s, 500ms, 2m [default: any time]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    lasts: Option<Duration>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn check(args: &CheckArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    Ok(client.check(&args.name, args.fence, args.lasts).await?)
}

pub(super) async fn inspect(args: &InspectArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    let lock = client.inspect(&args.name).await?;
    let text = if args.json {
        lock.json().to_owned()
    } else {
        describe(&args.name, &lock)
    };
    output::answer(&text)
}

fn describe(name: &LockName, lock: &Inspection) -> String {
    let how = match (lock.state, lock.holders.as_slice()) {
        (LockState::Free, _) => format!("{name} is free\n"),
        (LockState::Resting, _) => format!("{name} is resting\n"),
        (LockState::Held, []) => format!("{name} is held\n"),
        (LockState::Held, [holder]) => format!("{name} is held\n{}", facts(holder)),
        (LockState::Held, holders) => {
            let count = lock.holder_count.max(holders.len() as u64);
            format!("{name} is shared by {count}\n{}", table(holders, count))
        }
    };
    let why = lock.waiting_because.as_deref();
    how + &granted_order(lock)
        + &rests(&lock.resting)
        + &queue(&lock.waiters, lock.waiter_count, why)
}

/// Describes the order that the lock remembers, in one line; empty if the lock remembers none.
fn granted_order(lock: &Inspection) -> String {
    let grant = lock.order_granted.as_ref();
    let grant = grant.map_or_else(String::new, |it| format!(", {}", describe_grant(it)));
    let line = |order| format!("  {:<14} {order}{}\n", "granted order", visible(&grant));
    lock.granted_order.map_or_else(String::new, line)
}

/// Describes what rests of a lock after a release, one rest in each line.
fn rests(rests: &[Rest]) -> String {
    let line = |rest: &Rest| {
        let slot = rest.slot.map(|slot| format!(", slot {slot}"));
        let (fence, slot) = (rest.fencing_token, slot.unwrap_or_default());
        format!(
            "  {:<14} {}, fencing token {fence}{slot}\n",
            "available in",
            left_of(rest)
        )
    };
    rests.iter().map(line).collect()
}

fn left_of(rest: &Rest) -> String {
    duration(Duration::from_millis(rest.available_in_ms))
}

/// Formats the holders of a shared lock as a table, one holder in each line.
fn table(holders: &[Holder], count: u64) -> String {
    let head = [
        "  FENCING TOKEN",
        "SLOT",
        "EXPIRES IN",
        "HELD SINCE",
        "OWNER",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for holder in holders {
        rows.push([
            format!("  {}", or_dash(holder.fencing_token)),
            or_dash(holder.slot),
            expires_in(holder),
            or_dash(holder.acquired_at.as_deref().map(visible)),
            owner_and_request(holder),
        ]);
    }
    let mut text = aligned(&rows);
    let more = count.saturating_sub(holders.len() as u64);
    if more > 0 {
        writeln!(text, "  and {more} more").expect("writing to a String never fails");
    }
    text
}

/// Describes the queue of a lock: the number of waiters and why they wait, if the gateway says so, and a line for each
/// with the time that it has waited.
fn queue(waiters: &[Waiter], count: u64, why: Option<&str>) -> String {
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("writing to a String never fails");
    };
    if count > 0 {
        let why = why.map_or_else(String::new, |why| format!(": {}", visible(why)));
        line(format_args!("{count} waiting{why}"));
    }
    for waiter in waiters {
        let waited = duration(Duration::from_millis(waiter.waited_ms));
        let owner = visible(waiter.owner.as_deref().unwrap_or("somebody"));
        let mode = match (waiter.limit, waiter.mode.as_deref()) {
            (Some(limit), _) => format!(", shared by at most {limit}"),
            (None, Some("shared")) => ", shared".to_owned(),
            // An exclusive waiter gets no mark, because exclusive is the default.
            (None, _) => String::new(),
        };
        line(format_args!(
            "  {:<14} {owner} for {waited}{mode}",
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
    if holder.mode.as_deref() == Some("shared") {
        fact("mode", "shared");
    }
    if let Some(slot) = holder.slot {
        fact("slot", &slot.to_string());
    }
    if let Some(order) = holder.order {
        fact("order", &order.to_string());
    }
    if let Some(why) = &holder.rollback {
        fact("rollback", why);
    }
    if let Some(mark) = &holder.foreign_mark {
        fact("foreign mark", mark);
    }
    if let Some(at) = &holder.acquired_at {
        fact("held since", at);
    }
    match holder.expires_in_ms {
        Some(ms) => fact("expires in", &duration(Duration::from_millis(ms))),
        None => fact("expires", "never"),
    }
    if let Some(reservation) = &holder.reservation {
        fact("reserved", &reserved(reservation));
    }
    if let Some(lock) = &holder.waits_for {
        fact("waits for", &awaited(lock));
    }
    if let Some(request) = &holder.release_requested {
        fact("to be released", &asked_for(request));
    }
    for (name, value) in holder.metadata.iter().flatten() {
        fact(name, value);
    }
    text
}

// === List ===

/// The number of locks in one page of `latchgate list`.
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
    // Locks already printed: a lock may appear on two pages.
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
    output::answer(&show(&table))
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
    output::answer(&lines.join("\n"))
}

/// Formats locks as a table with one row for each holder.
fn show(locks: &[HeldLock]) -> String {
    let head = ["LOCK", "MODE", "EXPIRES IN", "FENCING TOKEN", "OWNER"];
    let mut rows = vec![head.map(str::to_owned)];
    for lock in locks {
        rows.extend(lock.holders.iter().map(|holder| row(&lock.name, holder)));
        rows.extend(lock.resting.iter().map(|rest| {
            let (name, fence) = (lock.name.to_string(), rest.fencing_token.to_string());
            [
                name,
                "resting".to_owned(),
                left_of(rest),
                fence,
                String::new(),
            ]
        }));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(json: &str) -> Holder {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn says_what_is_known_of_a_holder() {
        let holder = holder(
            r#"{"owner":"ci@build7","fencing_token":42,"order":41800,"rollback":"why\u202e","expires_in_ms":29987,"metadata":{"run":"7"}}"#,
        );
        assert_eq!(
            facts(&holder),
            "  owner          ci@build7\n  fencing token  42\n  order          41800\n  rollback       why\\u{202e}\n  expires in     29.9s\n  run            7\n"
        );
    }

    #[test]
    fn says_what_the_group_of_a_lease_waits_for() {
        for (lock, text) in [
            (
                r#"{"name":"freeze","since_ms":31000,"holders":[{"owner":"ann"}]}"#,
                "freeze since 31s: held by ann",
            ),
            (
                r#"{"name":"freeze","since_ms":900,"holders":[{"reservation":{"until":"soon","reason":"incident","reserved_by":"ann"}}]}"#,
                "freeze since 900ms: reserved by ann until soon because incident",
            ),
            (
                r#"{"name":"freeze","since_ms":2000,"holders":[]}"#,
                "freeze since 2s: free",
            ),
            (
                r#"{"name":null,"since_ms":1000,"holders":[]}"#,
                "a lock that the key may not view, since 1s",
            ),
        ] {
            let lease = holder(&format!(
                r#"{{"owner":"ci","waiting":true,"waits_for":{lock}}}"#
            ));
            let fact = format!("  waits for      {text}\n");
            assert!(facts(&lease).contains(&fact), "{}", facts(&lease));
            assert_eq!(owner_and_request(&lease), "ci (waiting for another lock)");
        }
    }

    #[test]
    fn says_who_reserved_a_lock() {
        let holder = holder(
            r#"{"owner":"ci","reservation":{"until":"soon","reason":"load\u202e","reserved_by":"ops"}}"#,
        );
        let text = r"reserved by ops until soon because load\u{202e}";
        let fact = text.replace("reserved", "  reserved      ");
        assert!(facts(&holder).contains(&fact), "{}", facts(&holder));
        assert_eq!(owner_and_request(&holder), format!("ci ({text})"));
    }

    #[test]
    fn those_who_share_a_lock_are_a_line_each() {
        let one = holder(
            r#"{"owner":"ci\u202e","fencing_token":1795170000000042,"mode":"shared","slot":2,"expires_in_ms":29987,"acquired_at":"2026-11-20T12:00:00Z"}"#,
        );
        assert!(facts(&one).contains("  mode           shared\n  slot           2\n"));
        let reader = holder(r#"{"fencing_token":43,"mode":"shared","expires_in_ms":1000}"#);
        assert_eq!(
            table(&[one, reader], 5),
            "  FENCING TOKEN     SLOT  EXPIRES IN  HELD SINCE            OWNER\n  \
               1795170000000042  2     29.9s       2026-11-20T12:00:00Z  ci\\u{202e}\n  \
               43                -     1s          -\n  \
               and 3 more\n"
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
            mode: Some("exclusive".to_owned()),
            limit: None,
            waited_ms: 12_340,
        };
        assert_eq!(queue(&[], 0, None), "");
        let reader = Waiter {
            mode: Some("shared".to_owned()),
            ..waiter(1, None)
        };
        let limited = Waiter {
            limit: Some(3),
            ..reader.clone()
        };
        assert_eq!(
            queue(&[reader, limited], 2, Some("3 share the lock")),
            "2 waiting: 3 share the lock\n  1              somebody for 12.3s, shared\n  1              somebody for 12.3s, shared by at most 3\n"
        );
        assert_eq!(
            queue(&[waiter(1, Some("ci")), waiter(2, None)], 5, None),
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
