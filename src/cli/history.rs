//! `latchgate history`, which shows who held a lock, from when to when, and how that ended.

use std::{fmt::Write, time::Duration};

use clap::Args;

use crate::{
    client::{History, HistoryEntry},
    lock::LockName,
};

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
    let text = if args.json {
        history.json().to_owned()
    } else {
        describe(&args.name, &history)
    };
    output::answer(&text)
}

fn describe(name: &LockName, history: &History) -> String {
    if !history.enabled {
        return "this gateway records no history (history.entries is 0)\n".to_owned();
    }
    let mut text = if history.entries.is_empty() {
        format!("no lease of {name} is recorded\n")
    } else {
        let head = ["FROM", "UNTIL", "ENDED", "FENCING TOKEN", "OWNER"];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(history.entries.iter().map(row));
        aligned(&rows)
    };
    if let Some(shorter) = &history.shorter_leases {
        let (count, since) = (shorter.count, visible(&shorter.since));
        writeln!(text, "and {count} shorter leases since {since}").expect("into a String");
    }
    if history.dropped > 0 {
        let dropped = history.dropped;
        writeln!(
            text,
            "{dropped} records are missing: the store did not take them in time"
        )
        .expect("into a String");
    }
    text
}

fn row(entry: &HistoryEntry) -> [String; 5] {
    let (until, how) = match (&entry.ended, &entry.ended_at_latest) {
        (Some(how), _) => (or_dash(entry.ended_at.as_deref()), how.as_str()),
        (None, Some(at)) => (format!("at the latest {at}"), "end not seen"),
        (None, None) if entry.acquired_at.is_some() => ("-".to_owned(), "held"),
        (None, None) => ("-".to_owned(), "not recorded"),
    };
    let mut end = caused(how, entry.ended_by.as_ref(), entry.reason.as_ref());
    for note in &entry.notes {
        end += &caused(
            &format!("; {}", note.kind),
            note.by.as_ref(),
            note.reason.as_ref(),
        );
    }
    let by = entry.acquired_by.iter().map(|by| format!(" (by {by})"));
    let waited = entry
        .waited_ms
        .filter(|ms| *ms > 0)
        .map(Duration::from_millis);
    let waited = waited.map(|waited| format!(", waited {}", duration(waited)));
    let owner = or_dash(entry.owner.as_deref());
    let row = [
        or_dash(entry.acquired_at.as_deref()),
        until,
        end,
        entry.fencing_token.to_string(),
        by.chain(waited).fold(owner, |text, fact| text + &fact),
    ];
    row.map(|cell| visible(&cell).into_owned())
}

/// Says what happened, who caused it, and why.
fn caused(what: &str, by: Option<&String>, reason: Option<&String>) -> String {
    let by = by.into_iter().map(|by| format!(" by {by}"));
    let reason = reason.into_iter().map(|reason| format!(": {reason}"));
    by.chain(reason)
        .fold(what.to_owned(), |text, fact| text + &fact)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(json: &str) -> String {
        let history = serde_json::from_str(json).unwrap();
        describe(&LockName::new("deploy").unwrap(), &history)
    }

    #[test]
    fn says_who_held_a_lock_how_that_ended_and_what_is_missing() {
        let text = described(
            r#"{"enabled": true, "dropped": 2, "shorter_leases": {"count": 1240, "since": "2026-11-28T03:02:00Z"},
                "entries": [
                {"fencing_token": 9, "mode": "exclusive", "owner": "ci-9", "acquired_at": "2026-11-28T03:15:00Z"},
                {"fencing_token": 7, "mode": "shared", "slot": 2, "owner": "ci\u202e7", "acquired_by": "ci",
                 "acquired_at": "2026-11-28T03:02:11Z", "waited_ms": 1200, "ended_at": "2026-11-28T03:14:59Z",
                 "ended": "broken", "ended_by": "ops", "reason": "stuck", "notes": [
                     {"kind": "release-requested", "at": "2026-11-28T03:14:00Z", "by": "ops", "reason": "please"}]},
                {"fencing_token": 5, "acquired_at": "2026-11-28T03:01:00Z", "ended_at_latest": "2026-11-28T03:02:11Z"}
            ]}"#,
        );
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
        let none = r#"{"enabled": true, "entries": []}"#;
        assert_eq!(described(none), "no lease of deploy is recorded\n");
        let off = described(r#"{"enabled": false, "entries": []}"#);
        assert!(off.contains("history.entries"), "{off}");
    }
}
