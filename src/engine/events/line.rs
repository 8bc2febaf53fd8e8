//! Events as lines of text, for the other gateways on the store.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::{
    engine::leases::LeaseTag,
    lock::{FencingToken, LockName, Mode, Owner},
};

use super::event::{Event, EventKind};

/// An event on its way, with what tells its lease from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventMessage {
    pub(super) event: Event,
    pub(super) lease: Option<LeaseTag>,
    /// Whether it is published only for leases that are tracked here: the grant of others may have had no
    /// event.
    pub(super) if_known: bool,
}

/// An event in JSON. Later versions may add fields.
#[derive(Serialize, Deserialize)]
struct Line<'a> {
    kind: &'a str,
    at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<&'a str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slot: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_in_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    position: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease: Option<u64>,
}

/// The longest reason, or name of a key, that is believed, in characters.
const LONGEST_TEXT: usize = 200;

// === impl EventMessage ===

impl From<Event> for EventMessage {
    /// An event of no lease.
    fn from(event: Event) -> Self {
        Self {
            event,
            lease: None,
            if_known: false,
        }
    }
}

impl EventMessage {
    /// The event as one line.
    pub(super) fn to_line(&self) -> String {
        let event = &self.event;
        let since = event.at.duration_since(SystemTime::UNIX_EPOCH);
        let line = Line {
            kind: event.kind.as_str(),
            at_ms: millis(since.unwrap_or_default()),
            name: event.name.as_ref().map(ToString::to_string),
            fence: event.fence.map(FencingToken::get),
            owner: event.owner.as_ref().map(ToString::to_string),
            mode: event.mode.map(Mode::as_str),
            slot: event.mode.and_then(Mode::slot),
            expires_in_ms: event.expires_in.map(millis),
            waited_ms: event.waited.map(millis),
            position: event.position,
            reason: event.reason.as_deref().map(str::to_owned),
            by: event.by.as_deref().map(str::to_owned),
            lease: self.lease.map(|lease| lease.0),
        };
        serde_json::to_string(&line).expect("texts and numbers are JSON")
    }

    /// Reads a line that another gateway wrote. `None` for what this version does not know, and for
    /// what no gateway writes.
    pub(super) fn from_line(line: &str) -> Option<Self> {
        let line: Line<'_> = serde_json::from_str(line).ok()?;
        let kind = EventKind::from_word(line.kind)?;
        let name = line
            .name
            .map(|name| LockName::new(&name))
            .transpose()
            .ok()?;
        if name.is_none() != (kind == EventKind::Gap) {
            return None;
        }
        let is_believed = |text: &String| {
            text.chars().count() <= LONGEST_TEXT && !text.contains(char::is_control)
        };
        let event = Event {
            name,
            fence: line.fence.map(FencingToken::new).transpose().ok()?,
            owner: line
                .owner
                .map(|owner| Owner::new(&owner))
                .transpose()
                .ok()?,
            mode: line.mode.and_then(|word| Mode::from_word(word, line.slot)),
            expires_in: line.expires_in_ms.map(Duration::from_millis),
            waited: line.waited_ms.map(Duration::from_millis),
            position: line.position,
            reason: line.reason.filter(is_believed).map(Into::into),
            by: line.by.filter(is_believed).map(Into::into),
            ..Event::bare(kind, at(line.at_ms))
        };
        Some(Self {
            event,
            lease: line.lease.map(LeaseTag),
            if_known: false,
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A time that cannot be is shown as the beginning of 1970.
fn at(ms: u64) -> SystemTime {
    let since = Duration::from_millis(ms);
    SystemTime::UNIX_EPOCH
        .checked_add(since)
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Token;

    fn news() -> EventMessage {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_222_854_042);
        EventMessage {
            event: Event {
                name: Some(LockName::new("deploy:eu").unwrap()),
                fence: Some(FencingToken::MAX),
                owner: Some(Owner::new("ci \"7\"").unwrap()),
                mode: Some(Mode::Shared { slot: Some(2) }),
                expires_in: Some(Duration::from_secs(30)),
                waited: Some(Duration::ZERO),
                position: Some(3),
                reason: Some("because".into()),
                by: Some("ops".into()),
                ..Event::bare(EventKind::Broken, at)
            },
            lease: Some(LeaseTag::from(&Token::random().hash())),
            if_known: false,
        }
    }

    #[test]
    fn is_read_as_it_was_written() {
        let news = news();
        let line = news.to_line();
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(EventMessage::from_line(&line), Some(news));
    }

    #[test]
    fn what_no_gateway_writes_is_left_out() {
        let line = news().to_line();
        for (from, to) in [
            ("broken", "melted"),
            ("broken", "gap"),
            ("deploy:eu", "deploy/eu"),
            ("9007199254740991", "9007199254740992"),
            ("\"ci ", "\"\\u001b"),
            ("{", "["),
        ] {
            let odd = line.replacen(from, to, 1);
            assert_ne!(odd, line);
            assert_eq!(EventMessage::from_line(&odd), None, "{odd}");
        }
        let long = line.replace("because", &"x".repeat(201));
        assert_eq!(EventMessage::from_line(&long).unwrap().event.reason, None);
        let later = line.replacen('{', r#"{"colour":"red","#, 1);
        assert!(EventMessage::from_line(&later).is_some(), "{later}");
    }
}
