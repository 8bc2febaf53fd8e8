//! What has happened to a lock, and its line of text for the other gateways on the store.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::{
    engine::leases::LeaseTag,
    lock::{FencingToken, LockName, Mode, Owner},
    with_all::with_all,
};

/// Something that has happened to a lock. Never with a token, nor anything that leads to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What has happened.
    pub kind: EventKind,
    /// To which lock; `None` with [`EventKind::Gap`], which concerns all.
    pub name: Option<LockName>,
    /// The fencing token of the lease, as far as there is one and it is known.
    pub fence: Option<FencingToken>,
    /// Who asked for it, as far as that was said and is known.
    pub owner: Option<Owner>,
    /// How the lease holds the lock, or is to hold it, as far as that is known.
    pub mode: Option<Mode>,
    /// What was left of the lease then.
    pub expires_in: Option<Duration>,
    /// For how long its holder had waited.
    pub waited: Option<Duration>,
    /// The place in the queue, from 1.
    pub position: Option<u64>,
    /// Why, if there is more to say than the kind does.
    pub reason: Option<Cow<'static, str>>,
    /// The API key that broke the lease or asked for its release, if there was one.
    pub by: Option<Arc<str>>,
    /// When, by the clock of the gateway where it happened. For display only.
    pub at: SystemTime,
}

with_all! {
    /// What has happened.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum EventKind {
        /// Somebody began to wait for the lock.
        Queued => "queued",
        /// Somebody holds the lock, by a new lease.
        Acquired => "acquired",
        /// A lease lasts longer.
        Renewed => "renewed",
        /// The holder of a lease was asked to release it within a time.
        ReleaseRequested => "release-requested",
        /// A lease has ended because its holder gave it back, or was gone.
        Released => "released",
        /// A lease has ended because its time was over.
        Expired => "expired",
        /// A stream that held the lock does not hold it any more.
        Lost => "lost",
        /// A lease has ended because somebody took it away.
        Broken => "broken",
        /// Events may be missing here.
        Gap => "gap",
    }
}

// === impl EventKind ===

impl EventKind {
    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Whether the lease is over with it.
    pub(super) fn ends_lease(self) -> bool {
        matches!(self, Self::Released | Self::Expired | Self::Broken)
    }
}

// === impl Event ===

impl Event {
    /// Something about a lock, of which nothing more is known yet.
    pub(super) fn of(kind: EventKind, name: &LockName, at: SystemTime) -> Self {
        Self {
            name: Some(name.clone()),
            ..Self::bare(kind, at)
        }
    }

    /// Events may be missing here.
    pub(super) fn gap(reason: &'static str, at: SystemTime) -> Self {
        Self {
            reason: Some(reason.into()),
            ..Self::bare(EventKind::Gap, at)
        }
    }

    pub(super) fn bare(kind: EventKind, at: SystemTime) -> Self {
        Self {
            kind,
            name: None,
            fence: None,
            owner: None,
            mode: None,
            expires_in: None,
            waited: None,
            position: None,
            reason: None,
            by: None,
            at,
        }
    }
}

// === Event message ===
//
// An event on its way to listeners, here or at another gateway.

/// An event on its way, with what tells its lease from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventMessage {
    pub(super) event: Event,
    pub(super) lease: Option<LeaseTag>,
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
        Self { event, lease: None }
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

    #[test]
    fn a_kind_is_read_as_it_is_written() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_word(kind.as_str()), Some(kind));
        }
        assert_eq!(EventKind::from_word("Gap"), None);
    }

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
