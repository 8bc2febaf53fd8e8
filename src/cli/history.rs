//! `latchgate history`, which shows who held a lock, from when to when, and how that ended.

use std::time::Duration;

use clap::Args;

use crate::lock::{History, HistoryEntry, LockName};

use super::{
    caller::{connection::ConnectionArgs, environment::Environment},
    error::CliError,
    terminal::{
        output,
        text::{aligned, duration, or_dash},
        visible,
    },
};

/// Show who held a lock, from when to when, and how that ended
///
/// The newest lease comes first. The times are UTC. Leases of less than a second (`history.after_ms`) are only counted.
///
/// How a lease ended: released (by its holder), expired (its time was over), broken (by an operator), lost (gone before its
/// time, and no gateway has ended it). "released: abandoned" means that a gateway released the lease, because the caller
/// was gone before it had the answer; another reason behind "released" is that of a hold stream.
#[derive(Args)]
pub(super) struct HistoryArgs {
    /// The lock
    name: LockName,
    /// Print the gateway's answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn history(args: &HistoryArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    let history = client.history(&args.name).await?;
    let text = describe(&args.name, &history);
    output::answer(if args.json { &history.json } else { &text })
}

fn describe(name: &LockName, history: &History) -> String {
    if !history.enabled {
        return "this gateway records no history (history.entries is 0)\n".to_owned();
    }
    let head = ["FROM", "UNTIL", "ENDED", "FENCING TOKEN", "OWNER"].map(str::to_owned);
    let rows: Vec<_> = [head]
        .into_iter()
        .chain(history.entries.iter().map(row))
        .collect();
    let text = match rows.len() {
        1 => format!("no lease of {name} is recorded\n"),
        _ => aligned(&rows),
    };
    let shorter = history.shorter_leases.iter().map(|it| {
        let (count, since) = (it.count, visible(&it.since));
        format!("and {count} shorter leases since {since}\n")
    });
    let (dropped, why) = (history.dropped, "the store did not take them in time");
    let missing = (dropped > 0).then(|| format!("{dropped} records are missing: {why}\n"));
    [text].into_iter().chain(shorter).chain(missing).collect()
}

fn row(entry: &HistoryEntry) -> [String; 5] {
    let (until, how) = match (&entry.ended, &entry.ended_at_latest) {
        (Some(how), _) => (or_dash(entry.ended_at.as_ref()), how.as_str()),
        (None, Some(at)) => (format!("at the latest {at}"), "end not seen"),
        (None, None) if entry.acquired_at.is_some() => ("-".to_owned(), "held"),
        (None, None) => ("-".to_owned(), "not recorded"),
    };
    let how = caused(how, entry.ended_by.as_ref(), entry.reason.as_ref());
    let notes = entry.notes.iter().map(|note| {
        let kind = format!("; {}", note.kind);
        caused(&kind, note.by.as_ref(), note.reason.as_ref())
    });
    let by = entry.acquired_by.iter().map(|by| format!(" (by {by})"));
    let waited = entry.waited_ms.filter(|ms| *ms > 0);
    let waited = waited.map(|ms| format!(", waited {}", duration(Duration::from_millis(ms))));
    let order = entry.order.map(|order| match &entry.rollback {
        Some(why) => format!(", rolled back to order {order}: {why}"),
        None => format!(", order {order}"),
    });
    let owner = [or_dash(entry.owner.as_ref())];
    let owner = owner.into_iter().chain(by).chain(waited).chain(order);
    let owner = owner.collect();
    let end = [how].into_iter().chain(notes).collect();
    let from = or_dash(entry.acquired_at.as_ref());
    let row = [from, until, end, entry.fencing_token.to_string(), owner];
    row.map(|cell| visible(&cell).into_owned())
}

/// Says what happened, who caused it, and why.
fn caused(what: &str, by: Option<&String>, reason: Option<&String>) -> String {
    let by = by.into_iter().map(|by| format!(" by {by}"));
    let reason = reason.into_iter().map(|reason| format!(": {reason}"));
    [what.to_owned()]
        .into_iter()
        .chain(by)
        .chain(reason)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{HistoryNote, ShorterLeases};

    fn described(history: &History) -> String {
        describe(&LockName::new("deploy").unwrap(), history)
    }

    #[expect(clippy::unnecessary_wraps, reason = "most fields may be unknown")]
    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn says_who_held_a_lock_how_that_ended_and_what_is_missing() {
        let held = HistoryEntry {
            fencing_token: 9,
            owner: text("ci-9"),
            acquired_at: text("2026-11-28T03:15:00Z"),
            ..HistoryEntry::default()
        };
        let note = HistoryNote {
            kind: "release-requested".to_owned(),
            at: "2026-11-28T03:14:00Z".to_owned(),
            by: text("ops"),
            reason: text("please"),
        };
        let broken = HistoryEntry {
            fencing_token: 7,
            owner: text("ci\u{202e}7"),
            acquired_by: text("ci"),
            acquired_at: text("2026-11-28T03:02:11Z"),
            waited_ms: Some(1_200),
            order: Some(41_800),
            rollback: text("the new one fails"),
            ended_at: text("2026-11-28T03:14:59Z"),
            ended: text("broken"),
            ended_by: text("ops"),
            reason: text("stuck"),
            notes: vec![note],
            ..HistoryEntry::default()
        };
        let unseen = HistoryEntry {
            fencing_token: 5,
            acquired_at: text("2026-11-28T03:01:00Z"),
            order: Some(41_873),
            ended_at_latest: text("2026-11-28T03:02:11Z"),
            ..HistoryEntry::default()
        };
        let text = described(&History {
            entries: vec![held, broken, unseen],
            shorter_leases: Some(ShorterLeases {
                count: 1_240,
                since: "2026-11-28T03:02:00Z".to_owned(),
            }),
            dropped: 2,
            enabled: true,
            ..History::default()
        });
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[1].contains("-  ") && lines[1].contains("held  "),
            "{text}"
        );
        let broken = "broken by ops: stuck; release-requested by ops: please";
        assert!(lines[2].contains(broken), "{text}");
        let owner =
            r"ci\u{202e}7 (by ci), waited 1.2s, rolled back to order 41800: the new one fails";
        assert!(lines[2].ends_with(owner), "{text}");
        assert!(
            lines[3].contains("at the latest 2026-11-28T03:02:11Z  end not seen"),
            "{text}"
        );
        assert!(lines[3].ends_with("-, order 41873"), "{text}");
        assert_eq!(
            lines[4],
            "and 1240 shorter leases since 2026-11-28T03:02:00Z"
        );
        assert!(lines[5].starts_with("2 records are missing"), "{text}");
    }

    #[test]
    fn says_why_there_is_nothing() {
        let nothing = |enabled| History {
            enabled,
            ..History::default()
        };
        let text = described(&nothing(true));
        assert_eq!(text, "no lease of deploy is recorded\n");
        let off = described(&nothing(false));
        assert!(off.contains("history.entries"), "{off}");
    }
}
