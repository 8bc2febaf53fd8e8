//! `latchgate inspect` and `latchgate list`, which show the holders of locks, and `latchgate check`, which says whether
//! a lease with a fencing token is one.

use std::{cmp::Reverse, collections::HashSet, fmt::Write, num::NonZeroUsize, time::Duration};

use clap::{Args, ValueEnum};
use jiff::Timestamp;

use crate::{
    client::{HeldLock, Holder, Inspection, ListRequest, LockState, Rest, Waiter, describe_grant},
    lock::{FencingToken, History, LockName, NamePrefix, Owner, SearchText, Usual},
};

use super::{
    break_lock::fence,
    caller::{connection::ConnectionArgs, environment::Environment},
    error::CliError,
    terminal::{
        output,
        text::{
            aligned, asked_for, awaited, duration, entries, expires_in, held_for, or_dash,
            owner_and_request, parse_duration, renewed_ago, reserved,
        },
        visible,
    },
};

/// Show who holds a lock, and who waits for it.
///
/// If the lock has a history of ten leases or more, the time that it has been held is compared with them.
#[derive(Args)]
pub(super) struct InspectArgs {
    /// The lock
    name: LockName,
    /// Print the gateway's answer as JSON, with `usual` if the history says how long the lock is usually held
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
    /// Only locks that have this text in the name, or in the owner or a metadata value of a holder or a waiter
    ///
    /// Only the first hundred waiters of each lock are searched.
    #[arg(long, value_name = "TEXT", value_parser = SearchText::new)]
    search: Option<SearchText>,
    /// Only locks that a holder has held for longer than this: 1h, 30m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    held_longer: Option<Duration>,
    /// Only locks that requests wait for
    #[arg(long)]
    waiting: bool,
    /// The order of the locks: by name, the longest held first, or those with the most waiters first [default: name]
    #[arg(long, value_enum)]
    sort: Option<SortBy>,
    /// Show at most N locks, 1 or more [default: all]
    #[arg(long, value_name = "N", value_parser = limit)]
    limit: Option<NonZeroUsize>,
    /// Print one JSON object per line, page by page
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SortBy {
    Held,
    Waiters,
    Name,
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
    // The answer is about the lock, and its history is only a remark.
    let usual = match lock.state {
        LockState::Held => client.history(&args.name).await.ok(),
        LockState::Resting | LockState::Free => None,
    };
    let usual = usual.as_ref().and_then(usual_of);
    let text = if args.json {
        with_usual(lock.json(), usual)
    } else {
        describe(&args.name, &lock, usual)
    };
    output::answer(&text)
}

/// How long the leases were held that their holders released: a broken or expired lease was held for too long.
fn usual_of(history: &History) -> Option<Usual> {
    let time = |text: &Option<String>| text.as_deref()?.parse::<Timestamp>().ok();
    let released = history.entries.iter();
    let released = released.filter(|it| it.ended.as_deref() == Some("released"));
    let held = released.filter_map(|it| {
        let held = time(&it.ended_at)?.duration_since(time(&it.acquired_at)?);
        u64::try_from(held.as_millis()).ok()
    });
    Usual::of(held.collect())
}

/// The JSON of an inspection with one more field, if it is known.
fn with_usual(json: &str, usual: Option<Usual>) -> String {
    let usual = usual.and_then(|it| serde_json::to_string(&it).ok());
    match (usual, json.trim_end().strip_suffix('}')) {
        (Some(usual), Some(begin)) => format!("{begin},\"usual\":{usual}}}\n"),
        _ => json.to_owned(),
    }
}

fn describe(name: &LockName, lock: &Inspection, usual: Option<Usual>) -> String {
    let how = match (lock.state, lock.holders.as_slice()) {
        (LockState::Free, _) => format!("{name} is free\n"),
        (LockState::Resting, _) => format!("{name} is resting\n"),
        (LockState::Held, []) => format!("{name} is held\n"),
        (LockState::Held, [holder]) => {
            format!("{name} is held\n{}", facts(holder, usual))
        }
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
        let metadata = entries(&waiter.metadata);
        line(format_args!(
            "  {:<14} {owner} for {waited}{mode}{metadata}",
            waiter.position
        ));
    }
    let more = count.saturating_sub(waiters.len() as u64);
    if more > 0 {
        line(format_args!("  and {more} more"));
    }
    text
}

fn facts(holder: &Holder, usual: Option<Usual>) -> String {
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
    let held = held_for(holder);
    if let Some(held) = held {
        fact("held for", &compared(held, usual));
    }
    match holder.expires_in_ms {
        Some(ms) => fact("expires in", &duration(Duration::from_millis(ms))),
        None => fact("expires", "never"),
    }
    if let (Some(ms), None) = (holder.ttl_ms, &holder.reservation) {
        fact("TTL", &duration(Duration::from_millis(ms)));
    }
    if let (Some(ago), Some(held)) = (renewed_ago(holder), held) {
        // A lease that was not renewed has as much of its TTL left as it had at its grant.
        let is_renewed = ago + Duration::from_millis(50) < held;
        let ago = format!("{} ago", duration(ago));
        fact("last renewal", if is_renewed { &ago } else { "none yet" });
    }
    if let Some(group) = &holder.group {
        let first = group
            .first
            .as_deref()
            .map(|first| format!(", the first is {first}"));
        let first = first.unwrap_or_default();
        fact("group", &format!("one of {} locks{first}", group.count));
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

/// The time that a lock has been held, compared with the time that it is usually held.
fn compared(held: Duration, usual: Option<Usual>) -> String {
    let text = duration(held);
    let Some(usual) = usual else { return text };
    let median = duration(Duration::from_millis(usual.median_ms));
    let ms = u64::try_from(held.as_millis()).unwrap_or(u64::MAX);
    match usual.times_longer(ms) {
        Some(times) => format!("{text}, {times}x longer than usual (median {median})"),
        None => format!("{text} (median {median})"),
    }
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
    // Without an order, JSON is printed as it arrives.
    let prints = args.json && args.sort.is_none();
    while left > 0 {
        if args.is_whole() {
            request.limit = Some(PAGE.min(u32::try_from(left).unwrap_or(PAGE)));
        }
        let page = client.list(&request).await?;
        let mut new: Vec<HeldLock> = page.locks;
        new.retain(|lock| args.shows(lock) && seen.insert(lock.name.clone()));
        if args.sort.is_none() {
            new.truncate(left);
            left -= new.len();
        }
        if prints {
            print(&new)?;
        } else {
            table.extend(new);
        }
        request.cursor = page.next_cursor;
        if request.cursor.is_none() {
            break;
        }
    }
    if prints {
        return Ok(());
    }
    table.sort_by(|one, other| one.name.cmp(&other.name));
    match args.sort {
        Some(SortBy::Held) => table.sort_by_key(|lock| Reverse(longest_held(lock))),
        Some(SortBy::Waiters) => table.sort_by_key(|lock| Reverse(lock.waiter_count)),
        Some(SortBy::Name) | None => {}
    }
    table.truncate(args.limit.map_or(usize::MAX, NonZeroUsize::get));
    if args.json {
        return print(&table);
    }
    if table.is_empty() {
        let is_named = args.owner.is_some() || args.search.is_some();
        let is_sought = is_named || !args.prefix.as_str().is_empty();
        output::note(if args.is_whole() && !is_sought {
            "no lock is held"
        } else {
            "no held lock matches"
        });
        return Ok(());
    }
    output::answer(&show(&table))
}

/// The longest time that a holder has held the lock.
fn longest_held(lock: &HeldLock) -> Option<Duration> {
    lock.holders.iter().filter_map(held_for).max()
}

// === impl ListArgs ===

impl ListArgs {
    /// Whether the list shows every lock that the gateway sends, in any order.
    fn is_whole(&self) -> bool {
        !self.waiting && self.held_longer.is_none() && self.sort.is_none()
    }

    fn shows(&self, lock: &HeldLock) -> bool {
        (!self.waiting || lock.waiter_count > 0)
            && self
                .held_longer
                .is_none_or(|least| longest_held(lock) > Some(least))
    }
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
    let head = [
        "LOCK",
        "MODE",
        "HELD FOR",
        "EXPIRES IN",
        "WAITERS",
        "FENCING TOKEN",
        "OWNER",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for lock in locks {
        let first = rows.len();
        rows.extend(lock.holders.iter().map(|holder| row(lock, holder)));
        rows.extend(lock.resting.iter().map(|rest| {
            let mut row: [String; 7] = Default::default();
            (row[0], row[1]) = (lock.name.to_string(), "resting".to_owned());
            (row[3], row[5]) = (left_of(rest), rest.fencing_token.to_string());
            row[4] = waiters(lock);
            row
        }));
        let more = lock.holder_count.saturating_sub(lock.holders.len() as u64);
        if more > 0 {
            let mut row: [String; 7] = Default::default();
            (row[0], row[6]) = (lock.name.to_string(), format!("(and {more} more)"));
            rows.push(row);
        }
        if let (Some(found), Some(row)) = (&lock.found, rows.get_mut(first))
            && found.of == "waiter"
        {
            let (what, value) = (found.name.as_deref().unwrap_or(&found.field), &found.value);
            let (what, value) = (visible(what), visible(value));
            write!(row[6], " (a waiter has the {what} {value})")
                .expect("writing to a String never fails");
        }
    }
    aligned(&rows)
}

/// The table cell with the number of waiters.
fn waiters(lock: &HeldLock) -> String {
    or_dash(Some(lock.waiter_count).filter(|&count| count > 0))
}

fn row(lock: &HeldLock, holder: &Holder) -> [String; 7] {
    let mode = match holder.slot {
        Some(slot) => format!("slot {slot}"),
        None => or_dash(holder.mode.as_deref().map(visible)),
    };
    [
        lock.name.to_string(),
        mode,
        or_dash(held_for(holder).map(duration)),
        expires_in(holder),
        waiters(lock),
        or_dash(holder.fencing_token),
        owner_and_request(holder),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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
            facts(&holder, None),
            "  owner          ci@build7\n  fencing token  42\n  order          41800\n  rollback       why\\u{202e}\n  expires in     29.9s\n  run            7\n"
        );
    }

    #[test]
    fn says_what_the_group_of_a_lease_waits_for() {
        for (lock, text) in [
            (
                r#"{"name":"freeze","since_ms":31000,"holders":[{"owner":"ann"}]}"#,
                "freeze for 31s: held by ann",
            ),
            (
                r#"{"name":"freeze","since_ms":900,"holders":[{"reservation":{"until":"soon","reason":"incident","reserved_by":"ann"}}]}"#,
                "freeze for 900ms: reserved by ann until soon because incident",
            ),
            (
                r#"{"name":"freeze","since_ms":900,"holders":[{"owner":"ann","reservation":{"until":"soon","reason":"incident","reserved_by":null}}]}"#,
                "freeze for 900ms: held by ann, reserved until soon because incident",
            ),
            (
                r#"{"name":"freeze","since_ms":2000,"holders":[]}"#,
                "freeze for 2s: free",
            ),
            (
                r#"{"name":null,"since_ms":1000,"holders":[]}"#,
                "a lock that the key may not view, for 1s",
            ),
        ] {
            let lease = holder(&format!(
                r#"{{"owner":"ci","waiting":true,"waits_for":{lock}}}"#
            ));
            let fact = format!("  waits for      {text}\n");
            assert!(
                facts(&lease, None).contains(&fact),
                "{}",
                facts(&lease, None)
            );
            assert_eq!(owner_and_request(&lease), "ci (waiting for another lock)");
        }
    }

    #[test]
    fn says_how_long_a_lock_is_held_and_whether_that_is_usual() {
        let lease = holder(
            r#"{"acquired_at":"2026-11-20T12:00:00Z","expires_at":"2026-11-20T12:04:30Z","expires_in_ms":18000,
                "ttl_ms":30000,"group":{"first":"deploy","count":2}}"#,
        );
        let usual = Usual {
            leases: 10,
            median_ms: 40_000,
            p95_ms: 70_000,
        };
        let text = facts(&lease, Some(usual));
        for line in [
            "  held for       4m 12s, 6x longer than usual (median 40s)\n",
            "  TTL            30s\n",
            "  last renewal   12s ago\n",
            "  group          one of 2 locks, the first is deploy\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let short = Some(Usual {
            p95_ms: 300_000,
            ..usual
        });
        assert!(facts(&lease, short).contains("  held for       4m 12s (median 40s)\n"));
        let young = holder(
            r#"{"acquired_at":"2026-11-20T12:00:00Z","expires_at":"2026-11-20T12:00:30Z","expires_in_ms":18000,"ttl_ms":30000}"#,
        );
        assert!(facts(&young, None).contains("  last renewal   none yet\n"));
    }

    #[test]
    fn usual_is_what_ten_released_leases_were_held_for() {
        let entry = |seconds: u64, ended: &str| {
            let json = format!(
                r#"{{"fencing_token":1,"metadata":{{}},"notes":[],"acquired_at":"2026-11-20T12:00:00.000Z",
                    "ended_at":"2026-11-20T12:00:{seconds:02}.500Z","ended":"{ended}"}}"#
            );
            serde_json::from_str(&json).unwrap()
        };
        let mut history = History {
            entries: (0..9).map(|seconds| entry(seconds, "released")).collect(),
            ..History::default()
        };
        history.entries.push(entry(59, "broken"));
        assert_eq!(usual_of(&history), None);
        history.entries.push(entry(9, "released"));
        let usual = usual_of(&history);
        assert_eq!(
            usual.map(|it| (it.median_ms, it.p95_ms)),
            Some((4_500, 9_500))
        );
        let json = with_usual("{\"name\":\"a\"}\n", usual);
        let usual = r#"{"leases":10,"median_ms":4500,"p95_ms":9500}"#;
        assert_eq!(json, format!("{{\"name\":\"a\",\"usual\":{usual}}}\n"));
        assert_eq!(with_usual("{}\n", None), "{}\n");
    }

    #[test]
    fn says_who_reserved_a_lock() {
        let holder = holder(
            r#"{"owner":"ci","reservation":{"until":"soon","reason":"load\u202e","reserved_by":"ops"}}"#,
        );
        let text = r"reserved by ops until soon because load\u{202e}";
        let fact = text.replace("reserved", "  reserved      ");
        assert!(
            facts(&holder, None).contains(&fact),
            "{}",
            facts(&holder, None)
        );
        assert_eq!(owner_and_request(&holder), format!("ci ({text})"));
    }

    #[test]
    fn those_who_share_a_lock_are_a_line_each() {
        let one = holder(
            r#"{"owner":"ci\u202e","fencing_token":1795170000000042,"mode":"shared","slot":2,"expires_in_ms":29987,"acquired_at":"2026-11-20T12:00:00Z"}"#,
        );
        assert!(facts(&one, None).contains("  mode           shared\n  slot           2\n"));
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
        let text = facts(&holder, None);
        assert!(text.contains(r"a\u{202e}b"), "{text}");
        assert!(text.contains(r"run\u{200b}"), "{text}");
        assert!(text.contains(r"\u{1b}[2J"), "{text}");
    }

    #[test]
    fn says_who_waits_and_how_many_are_not_shown() {
        let waiter = |position, owner: Option<&str>| Waiter {
            position,
            owner: owner.map(str::to_owned),
            metadata: BTreeMap::new(),
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
        let text = facts(&holder(r#"{"foreign":true,"expires_in_ms":null}"#), None);
        assert!(
            text.contains("without a gateway") && text.contains("never"),
            "{text}"
        );
    }
}
