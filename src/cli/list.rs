//! `latchgate list`, which shows the locks that are held: all of them, or those that an operator looks for.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
    fmt::Write,
    num::NonZeroUsize,
    time::Duration,
};

use clap::{Args, ValueEnum};

use crate::{
    client::{Client, HeldLock, Holder, ListRequest},
    lock::{LockName, NamePrefix, Owner, SearchText, Usual},
};

use super::{
    caller::{connection::ConnectionArgs, environment::Environment},
    error::CliError,
    inspect::{left_of, usual_of, with_usual},
    terminal::{
        output,
        text::{
            aligned, duration, expires_in, held_for, or_dash, owner_and_request, parse_duration,
        },
        visible,
    },
};

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
    /// Of the waiters of a lock, the first hundred are searched.
    #[arg(long, value_name = "TEXT", value_parser = SearchText::new)]
    search: Option<SearchText>,
    /// Only locks that a holder has held for longer than this: 1h, 30m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    held_longer: Option<Duration>,
    /// Only locks that requests wait for
    #[arg(long)]
    waiting: bool,
    /// The order of the locks: by name, the longest held first, those with the most waiters first, or the longest wait
    /// first [default: name]
    ///
    /// For the longest wait, the fifty locks with the most waiters are inspected, one by one.
    #[arg(long, value_enum)]
    sort: Option<SortBy>,
    /// Only locks that are held for longer than usual, by their histories
    ///
    /// Compares at most fifty of the locks that are held for a minute or more: those with waiters first, then those with
    /// the shortest TTL. A lock is held for longer than usual if it is held for longer than 95 of 100 leases in its
    /// history, and at least twice the median; a history needs ten leases that were released. Reservations do not count.
    #[arg(long, conflicts_with = "sort")]
    longer_than_usual: bool,
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
    Wait,
    Name,
}

/// The number of locks in one page of `latchgate list`.
const PAGE: u32 = 500;
/// How many locks are asked about one by one, for their waiters or for their histories.
const ONE_BY_ONE: usize = 50;
/// A lock that is held for less is not compared with its history.
const NOTICED: Duration = Duration::from_mins(1);

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
    let prints = args.json && args.is_as_sent();
    while left > 0 {
        if args.is_whole() {
            request.limit = Some(PAGE.min(u32::try_from(left).unwrap_or(PAGE)));
        }
        let page = client.list(&request).await?;
        let mut new: Vec<HeldLock> = page.locks;
        new.retain(|lock| args.shows(lock) && seen.insert(lock.name.clone()));
        if args.is_as_sent() {
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
    if args.longer_than_usual {
        return list_unusual(args, &client, &table).await;
    }
    let mut waits = BTreeMap::new();
    if args.sort == Some(SortBy::Wait) {
        waits = longest_waits(&client, &table).await?;
    }
    match args.sort {
        Some(SortBy::Held) => table.sort_by_key(|lock| Reverse(longest_held(lock))),
        Some(SortBy::Waiters) => table.sort_by_key(|lock| Reverse(lock.waiter_count)),
        Some(SortBy::Wait) => table.sort_by_key(|lock| {
            let wait = waits.get(&lock.name).copied();
            Reverse((wait, lock.waiter_count))
        }),
        Some(SortBy::Name) | None => {}
    }
    table.truncate(args.limit.map_or(usize::MAX, NonZeroUsize::get));
    if args.json {
        return print(&table);
    }
    if table.is_empty() {
        output::note(args.nothing());
        return Ok(());
    }
    output::answer(&show(&table, &waits))
}

/// The longest wait for each of the locks with the most waiters.
async fn longest_waits(
    client: &Client,
    locks: &[HeldLock],
) -> Result<BTreeMap<LockName, Duration>, CliError> {
    let mut crowded: Vec<_> = locks.iter().filter(|lock| lock.waiter_count > 0).collect();
    crowded.sort_by_key(|lock| Reverse(lock.waiter_count));
    if crowded.len() > ONE_BY_ONE {
        let all = crowded.len();
        output::note(&format!(
            "inspected {ONE_BY_ONE} of {all} locks with waiters: those with the most"
        ));
    }
    let mut waits = BTreeMap::new();
    for lock in crowded.into_iter().take(ONE_BY_ONE) {
        let seen = client.inspect(&lock.name).await?;
        let longest = seen.waiters.iter().map(|waiter| waiter.waited_ms).max();
        if let Some(ms) = longest {
            waits.insert(lock.name.clone(), Duration::from_millis(ms));
        }
    }
    Ok(waits)
}

/// A lock that is held for longer than usual: its holder, for how long, and how many times the median.
struct Unusual<'a> {
    lock: &'a HeldLock,
    holder: &'a Holder,
    held: Duration,
    usual: Usual,
    times: u64,
}

/// The locks that are held for longer than usual, those that are held the most times longer first.
async fn unusual<'a>(client: &Client, locks: &'a [HeldLock]) -> Result<Vec<Unusual<'a>>, CliError> {
    let noticed = |lock: &'a HeldLock| {
        // A reservation lasts as long as its maker has said.
        let holders = lock.holders.iter().filter(|it| it.reservation.is_none());
        let held = holders.filter_map(|it| Some((held_for(it)?, it)));
        let (held, holder) = held.max_by_key(|(held, _)| *held)?;
        (held >= NOTICED).then_some((lock, holder, held))
    };
    let mut held_long: Vec<_> = locks.iter().filter_map(noticed).collect();
    held_long.sort_by_key(|(lock, holder, held)| {
        (lock.waiter_count == 0, holder.ttl_ms, Reverse(*held))
    });
    if held_long.len() > ONE_BY_ONE {
        let all = held_long.len();
        output::note(&format!(
            "compared {ONE_BY_ONE} of {all} locks that are held for a minute or more"
        ));
    }
    let mut found = Vec::new();
    for (lock, holder, held) in held_long.into_iter().take(ONE_BY_ONE) {
        let history = client.history(&lock.name).await?;
        if !history.enabled {
            output::note("this gateway records no history (history.entries is 0)");
            break;
        }
        let ms = u64::try_from(held.as_millis()).unwrap_or(u64::MAX);
        if let Some(usual) = usual_of(&history)
            && let Some(times) = usual.times_longer(ms)
        {
            found.push(Unusual {
                lock,
                holder,
                held,
                usual,
                times,
            });
        }
    }
    found.sort_by_key(|it| Reverse(it.times));
    Ok(found)
}

async fn list_unusual(
    args: &ListArgs,
    client: &Client,
    locks: &[HeldLock],
) -> Result<(), CliError> {
    let mut found = unusual(client, locks).await?;
    found.truncate(args.limit.map_or(usize::MAX, NonZeroUsize::get));
    if found.is_empty() {
        output::note("no lock is held for longer than usual");
        return Ok(());
    }
    if args.json {
        let lines = found.iter();
        let lines = lines.map(|it| with_usual(it.lock.json(), Some(it.usual)));
        return output::answer(&lines.collect::<String>());
    }
    let head = ["LOCK", "HELD FOR", "USUAL", "TIMES", "WAITERS", "OWNER"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(found.iter().map(|it| {
        [
            it.lock.name.to_string(),
            duration(it.held),
            duration(Duration::from_millis(it.usual.median_ms)),
            format!("{}x", it.times),
            waiters(it.lock, None),
            owner_and_request(it.holder),
        ]
    }));
    output::answer(&aligned(&rows))
}

/// The longest time that a holder has held the lock.
fn longest_held(lock: &HeldLock) -> Option<Duration> {
    lock.holders.iter().filter_map(held_for).max()
}

// === impl ListArgs ===

impl ListArgs {
    /// Whether the list shows every lock that the gateway sends, in any order.
    fn is_whole(&self) -> bool {
        !self.waiting && self.held_longer.is_none() && self.is_as_sent()
    }

    /// Whether the locks are shown in the order in which the gateway sends them.
    fn is_as_sent(&self) -> bool {
        self.sort.is_none() && !self.longer_than_usual
    }

    /// What is said of an empty list.
    fn nothing(&self) -> &'static str {
        let is_filtered = self.waiting || self.held_longer.is_some() || self.owner.is_some();
        if is_filtered || self.search.is_some() || !self.prefix.as_str().is_empty() {
            "no held lock matches"
        } else {
            "no lock is held"
        }
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

/// Formats locks as a table with one row for each holder. `waits`: the longest wait for a lock, if it is known.
fn show(locks: &[HeldLock], waits: &BTreeMap<LockName, Duration>) -> String {
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
        let waiters = waiters(lock, waits.get(&lock.name));
        let holders = lock.holders.iter();
        rows.extend(holders.map(|holder| row(lock, holder, &waiters)));
        rows.extend(lock.resting.iter().map(|rest| {
            let mut row: [String; 7] = Default::default();
            (row[0], row[1]) = (lock.name.to_string(), "resting".to_owned());
            (row[3], row[5]) = (left_of(rest), rest.fencing_token.to_string());
            row[4].clone_from(&waiters);
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

/// The table cell with the number of waiters, and the longest wait if it is known.
fn waiters(lock: &HeldLock, wait: Option<&Duration>) -> String {
    let count = or_dash(Some(lock.waiter_count).filter(|&count| count > 0));
    let wait = wait.map(|wait| format!(" ({})", duration(*wait)));
    count + &wait.unwrap_or_default()
}

fn row(lock: &HeldLock, holder: &Holder, waiters: &str) -> [String; 7] {
    let mode = match holder.slot {
        Some(slot) => format!("slot {slot}"),
        None => or_dash(holder.mode.as_deref().map(visible)),
    };
    [
        lock.name.to_string(),
        mode,
        or_dash(held_for(holder).map(duration)),
        expires_in(holder),
        waiters.to_owned(),
        or_dash(holder.fencing_token),
        owner_and_request(holder),
    ]
}
