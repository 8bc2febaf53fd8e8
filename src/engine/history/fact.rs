//! One fact about one lease, and the text in which stores keep it.

use std::{borrow::Cow, collections::BTreeMap, fmt, net::IpAddr, sync::Arc, time::SystemTime};

use serde::{Deserialize, Serialize};

use crate::{
    lock::{FencingToken, Metadata, Mode, Owner},
    store::history::HistoryRecord,
};

/// The party that acquired, released or broke a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// The API key with this name, or somebody who has signed in with it.
    Key(Arc<str>),
    /// A caller without an API key, at this address.
    Address(IpAddr),
}

/// One fact about a lease: its beginning, its end, or something else that happened to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What happened: `OPENED`, one of `ENDS`, or another word of the API such as `release-requested`.
    pub kind: Cow<'static, str>,
    /// When it happened, by the clock of the gateway that wrote the fact, in milliseconds since 1970.
    pub at: u64,
    /// When the lease was granted, in milliseconds since 1970, if that is known.
    pub since: Option<u64>,
    /// Who caused it, if that is known: the name of an API key, or an address.
    pub by: Option<String>,
    /// The reason that was given.
    pub reason: Option<String>,
    /// What the lease was; only where no earlier fact says it.
    #[serde(flatten)]
    pub lease: Option<Box<LeaseFacts>>,
}

/// What a lease was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseFacts {
    /// Whether the lease shared the lock.
    pub shared: bool,
    /// The slot of the lease.
    pub slot: Option<u16>,
    /// The owner text of the lease.
    pub owner: Option<String>,
    /// The metadata of the lease, as far as there was room for it.
    pub metadata: BTreeMap<String, String>,
    /// How long the request waited for the lock, in milliseconds.
    pub waited: Option<u64>,
    /// Who acquired the lease, if that is known: the name of an API key, or an address.
    pub acquired_by: Option<String>,
}

/// The kind of the fact that a lease was granted, and has lasted a while.
pub(super) const OPENED: &str = "opened";
/// The kinds of the ends of a lease. If gateways recorded different ends of a lease, the last of them here is right: a
/// gateway that only sees that a lease is gone does not know of a release at another gateway.
pub(super) const ENDS: [&str; 4] = [EXPIRED, LOST, RELEASED, BROKEN];
/// The lease was not renewed in time, or reached its hold limit.
pub(super) const EXPIRED: &str = "expired";
/// The lease was gone before its time, and no gateway has ended it.
pub(super) const LOST: &str = "lost";
pub(super) const RELEASED: &str = "released";
pub(super) const BROKEN: &str = "broken";

/// The largest size of a fact, in bytes. Metadata that does not fit is left out.
const MAX_BYTES: usize = 1_024;

// === impl Actor ===

impl Actor {
    /// The name of the API key, if the actor has one.
    pub fn key(&self) -> Option<&Arc<str>> {
        match self {
            Self::Key(name) => Some(name),
            Self::Address(_) => None,
        }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

// === impl Fact ===

impl Fact {
    /// The position of the fact among the ends of a lease; `None` if it is no end.
    pub(super) fn end(&self) -> Option<usize> {
        ENDS.iter().position(|end| *end == self.kind)
    }

    /// The record of this fact about a lease. It is vital unless it is about an ordinary beginning or end.
    pub(super) fn record(mut self, fence: FencingToken) -> HistoryRecord {
        let is_vital = ![OPENED, EXPIRED, RELEASED].contains(&&*self.kind);
        loop {
            let text = serde_json::to_string(&self).expect("a fact has texts and numbers only");
            let facts = self.lease.as_mut().filter(|_| text.len() > MAX_BYTES);
            if facts.is_none_or(|facts| facts.metadata.pop_last().is_none()) {
                return HistoryRecord::new(fence, &text, is_vital);
            }
        }
    }

    /// Reads a record; `None` if no gateway wrote it.
    pub(super) fn read(text: &str) -> Option<(FencingToken, Self)> {
        let (fence, fact) = HistoryRecord::read(text)?;
        Some((fence, serde_json::from_str(fact).ok()?))
    }
}

// === impl LeaseFacts ===

impl LeaseFacts {
    pub(in crate::engine) fn new(mode: Mode, owner: Option<&Owner>, metadata: &Metadata) -> Self {
        let entries = metadata.iter();
        Self {
            shared: mode.is_shared(),
            slot: mode.slot(),
            owner: owner.map(|owner| owner.as_str().to_owned()),
            metadata: entries
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            ..Self::default()
        }
    }
}

/// A wall time in milliseconds since 1970.
pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(kind: &'static str, lease: Option<Box<LeaseFacts>>) -> Fact {
        Fact {
            kind: kind.into(),
            lease,
            ..Fact::default()
        }
    }

    #[test]
    fn metadata_that_does_not_fit_is_left_out_and_nothing_else() {
        let entries = (b'a'..=b'e').map(|name| (char::from(name).to_string(), "x".repeat(300)));
        let metadata = Metadata::new(entries.collect()).unwrap();
        let owner = Owner::new("ci \"7\"").unwrap();
        let mode = Mode::Shared { slot: Some(2) };
        let lease = LeaseFacts::new(mode, Some(&owner), &metadata);
        let fence = FencingToken::new(42).unwrap();
        let record = fact(OPENED, Some(Box::new(lease))).record(fence);
        assert!(record.text.len() < MAX_BYTES + 20 && !record.text.contains('\n'));
        let (read, fact) = Fact::read(&record.text).unwrap();
        assert_eq!(
            Fact::read(&fact.clone().record(fence).text),
            Some((fence, fact.clone()))
        );
        let lease = fact.lease.unwrap();
        assert_eq!(
            (read, lease.metadata.len(), lease.slot),
            (fence, 2, Some(2))
        );
        assert_eq!(
            (lease.owner.as_deref(), lease.shared),
            (Some("ci \"7\""), true)
        );
    }

    #[test]
    fn breaks_losses_and_notes_are_vital() {
        let is_vital = |kind| fact(kind, None).record(FencingToken::MAX).is_vital;
        assert!(
            [BROKEN, LOST, "release-requested"]
                .into_iter()
                .all(is_vital)
        );
        assert!(![OPENED, EXPIRED, RELEASED].into_iter().any(is_vital));
    }
}
