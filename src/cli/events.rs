//! `latchgate events`: prints events of locks as they happen.

use std::{fmt::Write, io, time::Duration};

use clap::Args;
use jiff::Timestamp;
use rustix::process::Signal;

use crate::{
    client::{Client, Event, EventsItem},
    lock::NamePrefix,
};

use super::{
    caller::{connection::ConnectionArgs, environment::Environment},
    error::CliError,
    terminal::{
        output,
        signals::Signals,
        text::{duration, parse_duration},
        visible,
    },
};

/// Show what happens to locks, as it happens.
///
/// Runs until Ctrl-C or TERM, with exit code 0, or until the reader of its output closes the pipe. A lost
/// connection is made again; events of the meantime are shown then. Where events may be missing, a line says "gap".
/// Events are for people to watch: base no decision on them.
#[derive(Args)]
pub(super) struct EventsArgs {
    /// Only locks whose names start with this prefix
    #[arg(long, default_value = "", hide_default_value = true, value_parser = NamePrefix::new)]
    prefix: NamePrefix,
    /// Show what went wrong within this time before now, and end: 1d, 8h; at most a day
    ///
    /// Changes of the store (a failover, a restart, an outage), breaks, lost leases and refused stale writes, as the
    /// gateway that answers remembers them. A restart of the gateway forgets them, and another gateway has others. Needs an
    /// API key with the permission `metrics`, or with `view` on every lock.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    since: Option<Duration>,
    /// Print each event as a line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn events(args: &EventsArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    if let Some(since) = args.since {
        return print_past(args, &client, since).await;
    }
    let mut signals = Signals::listen([Signal::INT, Signal::TERM]).map_err(CliError::runtime)?;
    tokio::select! {
        _ = signals.next() => Ok(()),
        outcome = async {
            let mut events = client.events(&args.prefix).await?;
            let mut outage = Outage::default();
            loop {
                let item = events.next().await?;
                if let Some(message) = outage.message(&item) {
                    output::note(&format!("latchgate: {}", visible(&message)));
                }
                let EventsItem::Event(event) = item else { continue };
                let line = if args.json { event.json().to_owned() } else { describe(&event) };
                match output::write(&line) {
                    Ok(()) => {}
                    // The program that reads the output has closed the pipe, so the command ends without an error.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                    Err(error) => return Err(output::unwritten(&error)),
                }
            }
        } => outcome,
    }
}

/// Prints what the gateway remembers of this time before now.
async fn print_past(args: &EventsArgs, client: &Client, since: Duration) -> Result<(), CliError> {
    let begin = Timestamp::now()
        .checked_sub(since)
        .unwrap_or(Timestamp::MIN);
    let is_wanted = |event: &Event| {
        let at = event
            .at
            .as_deref()
            .and_then(|at| at.parse::<Timestamp>().ok());
        let name = event.name.as_deref();
        at.is_none_or(|at| at >= begin)
            && name.is_none_or(|name| name.starts_with(args.prefix.as_str()))
    };
    let mut events = client.past_incidents().await?;
    events.retain(is_wanted);
    if events.is_empty() {
        output::note("the gateway remembers nothing that went wrong in this time");
        return Ok(());
    }
    let lines = events.iter().map(|event| {
        if args.json {
            event.json().to_owned()
        } else {
            describe(event)
        }
    });
    output::answer(&lines.collect::<Vec<_>>().join("\n"))
}

/// The last message about the connection of the event stream, so that each reason of an outage is printed once.
#[derive(Default)]
struct Outage {
    said: Option<String>,
}

impl Outage {
    /// The message to print about the connection, unless it is the message that was printed last.
    fn message(&mut self, item: &EventsItem) -> Option<String> {
        let message = match item {
            EventsItem::Event(_) => return None,
            EventsItem::Ended(reason) => {
                format!("the gateway ended the stream ({reason}); connecting again")
            }
            EventsItem::Lost { url, reason } => {
                format!("the connection to {url} is lost ({reason}); connecting again")
            }
            EventsItem::Interrupted(error) => {
                format!("{error}; trying again until a gateway answers")
            }
            EventsItem::Resumed(url) => {
                self.said = None;
                return Some(format!("connected again, to {url}"));
            }
        };
        let is_new = self.said.as_ref() != Some(&message);
        self.said = Some(message.clone());
        is_new.then_some(message)
    }
}

/// Describes an event in one line.
fn describe(event: &Event) -> String {
    let mut line = String::new();
    let at = event.at.as_deref().unwrap_or_default();
    let name = event.name.as_deref().unwrap_or_default();
    let mut add = |part: std::fmt::Arguments<'_>| {
        line.write_fmt(part)
            .expect("writing to a String never fails");
    };
    let (at, kind, name) = (visible(at), visible(&event.kind), visible(name));
    add(format_args!("{at:<24}  {kind:<8}"));
    if !name.is_empty() {
        add(format_args!("  {name}"));
    }
    if let Some(fence) = event.lease.fencing_token {
        add(format_args!("  fencing token {fence}"));
    }
    if let Some(order) = event.lease.order {
        add(format_args!("  order {order}"));
    }
    match (event.lease.slot, event.lease.mode.as_deref()) {
        (Some(slot), _) => add(format_args!("  slot {slot}")),
        (None, Some("shared")) => add(format_args!("  shared")),
        (None, _) => {}
    }
    // For these kinds of event, another caller acted against the owner of the lease.
    let is_victim = matches!(
        event.kind.as_str(),
        "broken" | "release-requested" | "stale-write-refused"
    );
    if let Some(owner) = &event.lease.owner {
        let what = if is_victim { "held by" } else { "by" };
        add(format_args!("  {what} {}", visible(owner)));
    }
    if let Some(position) = event.position {
        add(format_args!("  position {position}"));
    }
    if let Some(ms) = event.waited_ms.filter(|&ms| ms > 0) {
        add(format_args!("  after {}", time(ms)));
    }
    if let Some(ms) = event.lease.expires_in_ms {
        let what = match event.kind.as_str() {
            "release-requested" => "to be released within",
            _ => "expires in",
        };
        add(format_args!("  {what} {}", time(ms)));
    }
    if let Some(by) = &event.by {
        let what = match event.kind.as_str() {
            "broken" => "broken by",
            "stale-write-refused" => "checked by",
            "order-set" => "set by",
            _ => "requested by",
        };
        add(format_args!("  {what} {}", visible(by)));
    }
    if let Some(change) = &event.change {
        let (kind, text) = (visible(&change.kind), visible(&change.text));
        add(format_args!("  {kind}: {text}"));
    }
    if let Some(reason) = &event.reason {
        add(format_args!("  ({})", visible(reason)));
    }
    line
}

fn time(ms: u64) -> String {
    duration(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use crate::client::ClientError;

    use super::*;

    fn described(json: &str) -> String {
        describe(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn an_event_is_one_line() {
        assert_eq!(
            described(
                r#"{"kind":"acquired","name":"deploy","fencing_token":42,"owner":"ci","expires_in_ms":29987,"waited_ms":1200,"at":"2026-11-20T12:00:00.000Z"}"#
            ),
            "2026-11-20T12:00:00.000Z  acquired  deploy  fencing token 42  by ci  after 1.2s  expires in 29.9s"
        );
        let shared =
            r#"{"kind":"released","name":"gpu","fencing_token":42,"mode":"shared","slot":2}"#;
        assert!(described(shared).ends_with("gpu  fencing token 42  slot 2"));
        let reader = r#"{"kind":"queued","name":"book","mode":"shared","position":1}"#;
        assert!(described(reader).ends_with("book  shared  position 1"));
        let asked = r#"{"kind":"release-requested","name":"deploy","owner":"ci","expires_in_ms":30000,"by":"ops"}"#;
        let text = "deploy  held by ci  to be released within 30s  requested by ops";
        assert!(described(asked).ends_with(text));
        let broken =
            r#"{"kind":"broken","name":"deploy","owner":"ci","by":"ops","reason":"it hangs"}"#;
        let text = "deploy  held by ci  broken by ops  (it hangs)";
        assert!(described(broken).ends_with(text));
        let ordered = r#"{"kind":"acquired","name":"deploy","fencing_token":42,"order":41873}"#;
        assert!(described(ordered).ends_with("deploy  fencing token 42  order 41873"));
        let set = r#"{"kind":"order-set","name":"deploy","order":5,"by":"ops","reason":"ms"}"#;
        assert!(described(set).ends_with("order-set  deploy  order 5  set by ops  (ms)"));
        let change =
            r#"{"kind":"store-changed","change":{"kind":"away","text":"a:1 unavailable"}}"#;
        assert!(described(change).ends_with("store-changed  away: a:1 unavailable"));
        assert_eq!(
            described(r#"{"kind":"gap","reason":"too-old","at":"2026-11-20T12:00:00.000Z"}"#),
            "2026-11-20T12:00:00.000Z  gap       (too-old)"
        );
    }

    #[test]
    fn an_outage_is_told_once_and_so_is_its_end() {
        let mut outage = Outage::default();
        let url = || "http://a".to_owned();
        let refused = || {
            let reason = "Connection refused".to_owned();
            EventsItem::Interrupted(ClientError::Unreachable { url: url(), reason })
        };
        let (reason, event) = ("reset".to_owned(), r#"{"kind":"gap"}"#);
        let lost = EventsItem::Lost { url: url(), reason };
        let event = EventsItem::Event(serde_json::from_str(event).unwrap());
        let resumed = EventsItem::Resumed(url());
        let items = [&lost, &refused(), &refused(), &resumed, &event, &refused()];
        let said: Vec<_> = items.map(|item| outage.message(item)).into();
        let lost = "the connection to http://a is lost (reset); connecting again";
        let refused =
            "no gateway at http://a: Connection refused; trying again until a gateway answers";
        let resumed = "connected again, to http://a";
        let expected = [
            Some(lost),
            Some(refused),
            None,
            Some(resumed),
            None,
            Some(refused),
        ];
        assert_eq!(said, expected.map(|text| text.map(str::to_owned)));
    }

    #[test]
    fn nobody_can_write_a_line_that_is_none() {
        let line =
            described(r#"{"kind":"broken","name":"a","reason":"x\n\u001b[2J","owner":"\u202e"}"#);
        assert!(
            line.contains(r"(x\u{a}\u{1b}[2J)") && line.contains(r"by \u{202e}"),
            "{line}"
        );
    }
}
