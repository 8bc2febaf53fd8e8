//! `latchgate history`, which shows who held a lock, from when to when, and how that ended.

use std::time::Duration;

use clap::Args;

use crate::lock::{History, HistoryEntry, HistoryNote, LockName, ShorterLeases};

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
    let mut text = match rows.len() {
        1 => format!("no lease of {name} is recorded\n"),
        _ => aligned(&rows),
    };
    if let Some(ShorterLeases { count, since }) = &history.shorter_leases {
        text += &format!("and {count} shorter leases since {}\n", visible(since));
    }
    if history.dropped > 0 {
        let missing = "records are missing: the store did not take them in time";
        text += &format!("{} {missing}\n", history.dropped);
    }
    text
}

fn row(entry: &HistoryEntry) -> [String; 5] {
    let (until, how) = match (&entry.ended, &entry.ended_at_latest) {
        (Some(how), _) => (or_dash(entry.ended_at.as_ref()), how.as_str()),
        (None, Some(at)) => (format!("at the latest {at}"), "end not seen"),
        (None, None) if entry.acquired_at.is_some() => ("-".to_owned(), "held"),
        (None, None) => ("-".to_owned(), "not recorded"),
    };
    let mut end = how.to_owned() + &caused(&entry.ended_by, &entry.reason);
    for HistoryNote {
        kind, by, reason, ..
    } in &entry.notes
    {
        end += &format!("; {kind}{}", caused(by, reason));
    }
    let mut owner = or_dash(entry.owner.as_ref());
    if let Some(by) = &entry.acquired_by {
        owner += &format!(" (by {by})");
    }
    if let Some(waited) = entry.waited_ms.filter(|ms| *ms > 0) {
        owner += &format!(", waited {}", duration(Duration::from_millis(waited)));
    }
    let from = or_dash(entry.acquired_at.as_ref());
    let row = [from, until, end, entry.fencing_token.to_string(), owner];
    row.map(|cell| visible(&cell).into_owned())
}

/// Says who caused an event, and why.
fn caused(by: &Option<String>, reason: &Option<String>) -> String {
    let by = by.iter().map(|by| format!(" by {by}"));
    by.chain(reason.iter().map(|reason| format!(": {reason}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(history: &History) -> String {
        describe(&LockName::new("deploy").unwrap(), history)
    }

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
        assert!(
            lines[2].ends_with(r"ci\u{202e}7 (by ci), waited 1.2s"),
            "{text}"
        );
        assert!(
            lines[3].contains("at the latest 2026-11-28T03:02:11Z  end not seen"),
            "{text}"
        );
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
