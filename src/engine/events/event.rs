//! An event of a lock, and its line of text for the other gateways on the store.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{
    engine::{
        Actor, LossReason, StoreChange,
        facts::{Fact, ReleasedBy},
        leases::LeaseTag,
    },
    lock::{CallerId, FencingToken, HeldLease, LockName, Mode, OrderNumber, Owner, Sharing},
    with_all::with_all,
};

/// An event of a lock. An event never has a token, nor data from which a token can be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The kind of change that the event reports.
    pub kind: EventKind,
    /// The lock of the event; `None` with [`EventKind::Gap`] and [`EventKind::StoreChanged`], which concern all locks.
    pub name: Option<LockName>,
    /// The fencing token of the lease, if there is a lease and its fencing token is known.
    pub fence: Option<FencingToken>,
    /// Owner text of the holder or waiter, if the caller gave one and it is known.
    pub owner: Option<Owner>,
    /// How the lease holds the lock, or the waiter wants to hold it, if known.
    pub mode: Option<Mode>,
    /// How much of its time the lease had left at the time of the event.
    pub expires_in: Option<Duration>,
    /// How long the holder had waited for the lock.
    pub waited: Option<Duration>,
    /// Whether the lease was granted to a group that needs other locks.
    pub is_waiting: bool,
    /// The position in the queue, from 1.
    pub position: Option<u64>,
    /// The order of the lease, or the order that the lock remembers from now on.
    pub order: Option<OrderNumber>,
    /// Why the event happened, if its kind does not say so.
    pub reason: Option<Cow<'static, str>>,
    /// The API key that broke the lease, asked for its release or checked its fencing token, if there was one.
    pub by: Option<Arc<str>>,
    /// The change of the store, with [`EventKind::StoreChanged`].
    pub change: Option<Arc<StoreChange>>,
    /// When the event happened, by the clock of its gateway. For display only.
    pub at: SystemTime,
}

with_all! {
    /// The kind of an event.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum EventKind {
        /// A request began to wait for the lock.
        Queued => "queued",
        /// The lock was granted, by a new lease.
        Acquired => "acquired",
        /// A lease was renewed.
        Renewed => "renewed",
        /// The holder of a lease was asked to release it within a time.
        ReleaseRequested => "release-requested",
        /// A lease has ended because its holder released it, or was gone.
        Released => "released",
        /// A lease has ended with its TTL.
        Expired => "expired",
        /// A stream has lost its lock.
        Lost => "lost",
        /// A lease was broken.
        Broken => "broken",
        /// A check refused the fencing token of a lease that has ended, after a larger fencing token was granted.
        StaleWriteRefused => "stale-write-refused",
        /// A caller has set the order that the lock remembers.
        OrderSet => "order-set",
        /// The gateway has noticed a change of its store. No other gateway is told: each notices it by itself.
        StoreChanged => "store-changed",
        /// Events may be missing at this point.
        Gap => "gap",
    }
}

// === impl EventKind ===

impl EventKind {
    /// The kind of event with this name in the API, such as `released`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

// === impl Event ===

impl Event {
    /// An event of a lock without any data of a lease.
    pub(super) fn for_lock(kind: EventKind, name: &LockName, at: SystemTime) -> Self {
        Self {
            name: Some(name.clone()),
            ..Self::bare(kind, at)
        }
    }

    /// The event of a fact about this lock; `None` if the fact has none.
    pub(super) fn from_fact(name: &LockName, fact: &Fact<'_>, at: SystemTime) -> Option<Self> {
        let event = |kind| Self::for_lock(kind, name, at);
        let of_lease = |kind, lease: &HeldLease| Self {
            fence: Some(lease.fence),
            owner: lease.said.owner.clone(),
            mode: Some(lease.mode),
            ..event(kind)
        };
        let label = |mark: &Arc<str>| match CallerId::label_of_mark(mark) {
            label if label.len() == mark.len() => Arc::clone(mark),
            label => label.into(),
        };
        Some(match fact {
            Fact::Expired(_, _, None)
            | Fact::Lasting(_)
            | Fact::Gone(..)
            | Fact::Abandoned(_)
            | Fact::EndedElsewhere(_)
            // No listener was told of a lease that an attempt without an answer was granted.
            | Fact::Released(None, None, ReleasedBy::Gateway(_)) => return None,
            Fact::Queued(attempt, place) => Self {
                owner: attempt.terms.said.owner.clone(),
                mode: Some(Sharing::mode(attempt.terms.sharing)),
                position: Some(place.ahead + 1),
                ..event(EventKind::Queued)
            },
            Fact::Acquired(lease) => {
                let order = lease.held.said.order.as_deref();
                let rollback = order.and_then(|it| it.rollback.as_ref());
                Self {
                    expires_in: Some(lease.held.left_at(Instant::now())),
                    waited: Some(lease.waited),
                    is_waiting: lease.held.is_waiting(),
                    order: order.map(|it| it.number),
                    reason: rollback.map(|why| why.as_str().to_owned().into()),
                    ..of_lease(EventKind::Acquired, &lease.held)
                }
            }
            Fact::Renewed(lease) => Self {
                expires_in: Some(lease.left_at(Instant::now())),
                ..of_lease(EventKind::Renewed, lease)
            },
            Fact::ReleaseRequested(lease, request, _) => {
                // The lease may have an earlier request with an earlier deadline, which then applies.
                let request = lease.release_requested.as_deref().unwrap_or(request);
                Self {
                    expires_in: Some(request.within),
                    reason: Some(request.reason.as_str().to_owned().into()),
                    by: request.by.clone(),
                    ..of_lease(EventKind::ReleaseRequested, lease)
                }
            }
            Fact::Released(lease, ended, by) => Self {
                fence: lease.map(|it| it.fence).or(ended.map(|it| it.fence)),
                owner: lease.and_then(|it| it.owner.clone()),
                mode: lease.map(|it| it.mode),
                reason: by.cause().1.map(Into::into),
                ..event(EventKind::Released)
            },
            Fact::Unreserved(lease, ..) => of_lease(EventKind::Released, lease),
            Fact::Broken(lease, by, reason) => Self {
                reason: Some((*reason).to_owned().into()),
                by: by.and_then(Actor::mark).map(label),
                ..lease.map_or_else(
                    || event(EventKind::Broken),
                    |lease| of_lease(EventKind::Broken, lease),
                )
            },
            Fact::Expired(fence, _, Some((owner, mode))) => Self {
                fence: Some(*fence),
                owner: owner.clone(),
                mode: Some(*mode),
                ..event(EventKind::Expired)
            },
            Fact::StreamLost(fence, reason) => Self {
                fence: Some(*fence),
                reason: Some(reason.as_str().into()),
                ..event(EventKind::Lost)
            },
            Fact::StaleWriteRefused(fence, by) => Self {
                fence: Some(*fence),
                by: by.map(label),
                ..event(EventKind::StaleWriteRefused)
            },
            Fact::OrderSet(order, by, reason) => Self {
                order: *order,
                reason: Some((*reason).to_owned().into()),
                by: by.and_then(Actor::mark).map(label),
                ..event(EventKind::OrderSet)
            },
        })
    }

    /// An event that tells listeners that events may be missing at this point.
    pub(super) fn gap(reason: &'static str, at: SystemTime) -> Self {
        Self {
            reason: Some(reason.into()),
            ..Self::bare(EventKind::Gap, at)
        }
    }

    /// An event about a change of the store.
    pub(super) fn of_store(change: &Arc<StoreChange>) -> Self {
        Self {
            change: Some(Arc::clone(change)),
            ..Self::bare(EventKind::StoreChanged, change.at)
        }
    }

    /// Whether the lease has ended. A lease that its stream lost before its end may live a little longer.
    pub(super) fn ends_lease(&self) -> bool {
        match self.kind {
            EventKind::Released | EventKind::Expired | EventKind::Broken => true,
            EventKind::Lost => self.reason.as_deref() == Some(LossReason::Ended.as_str()),
            _ => false,
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
            is_waiting: false,
            position: None,
            order: None,
            reason: None,
            by: None,
            change: None,
            at,
        }
    }
}

// === Event message ===
//
// An event on its way to listeners, here or at another gateway.

/// An event on its way to listeners, with the tag of its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) struct EventMessage {
    pub(super) event: Event,
    pub(super) lease: Option<LeaseTag>,
}

/// The JSON form of an event, in which it is sent to other gateways. Later versions may add fields.
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
    waiting: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    position: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease: Option<u64>,
}

/// The longest reason, or name of an API key, that is accepted from another gateway, in characters.
const LONGEST_TEXT: usize = 200;

// === impl EventMessage ===

impl From<Event> for EventMessage {
    /// Makes a message of an event that belongs to no lease.
    fn from(event: Event) -> Self {
        Self { event, lease: None }
    }
}

impl EventMessage {
    /// The event as one line of JSON, for other gateways.
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
            waiting: event.is_waiting.then_some(true),
            position: event.position,
            order: event.order.map(OrderNumber::get),
            reason: event.reason.as_deref().map(str::to_owned),
            by: event.by.as_deref().map(str::to_owned),
            lease: self.lease.map(|lease| lease.0),
        };
        serde_json::to_string(&line).expect("texts and numbers are JSON")
    }

    /// Reads a line from another gateway. `None` for a line that this version does not know, and for a line that no
    /// gateway writes.
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
            is_waiting: line.waiting.unwrap_or_default(),
            position: line.position,
            order: line.order.map(OrderNumber::new).transpose().ok()?,
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

/// The time for a number of ms since 1970; an impossible time becomes the beginning of 1970.
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
                is_waiting: true,
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
            ("deploy:eu", "deploy//eu"),
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
