//! The facts that the history records about leases, and the text in which stores keep them.
//!
//! A fact is an entry of the history of which only a few fields are known. The end of a lease is one of its notes.

use std::{fmt, net::IpAddr, sync::Arc};

use tokio::time::Instant;

use crate::{
    lock::{CallerId, FencingToken, HeldLease, HistoryEntry, HistoryNote, Mode, Said},
    store::history::HistoryRecord,
};

/// The party that acquired, released or broke a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// The caller with this mark ([`CallerId::mark`]): it has an API key, or has signed in with it.
    Key(Arc<str>),
    /// A caller without an API key, at this address.
    Address(IpAddr),
}

/// A lease that the history records. The lease may be over for this gateway.
#[derive(Debug)]
pub(in crate::engine) struct RecordedLease {
    /// What is known of the lease, without times.
    pub(in crate::engine) entry: HistoryEntry,
    /// When the lease was granted, if that is known.
    pub(in crate::engine) since: Option<Instant>,
    /// When the lease would have expired, as far as this gateway knew.
    pub(in crate::engine) until: Instant,
    /// A release whose answer has not come to this gateway.
    pub(in crate::engine) unheard: Option<UnheardRelease>,
    /// Whether the lease is recorded even if it was short.
    pub(in crate::engine) even_if_short: bool,
    /// Whether the lease was gone before its time.
    pub(in crate::engine) is_lost: bool,
}

/// A release that the store has not answered, and its caller if that is known.
#[derive(Debug, Clone)]
pub(in crate::engine) struct UnheardRelease(pub(in crate::engine) Option<Actor>);

/// The ends of a lease. If gateways recorded different ends of a lease, the last of them here is right: a gateway that
/// only sees that a lease is gone does not know of a release at another gateway.
pub(super) const ENDS: [&str; 4] = [EXPIRED, LOST, RELEASED, BROKEN];
/// The lease was not renewed in time, or reached its hold limit.
pub(in crate::engine) const EXPIRED: &str = "expired";
/// The lease was gone before its time, and no gateway has ended it.
pub(super) const LOST: &str = "lost";
pub(in crate::engine) const RELEASED: &str = "released";
pub(in crate::engine) const BROKEN: &str = "broken";

/// A check refused the fencing token after the end of its lease. Callers choose the number that is checked.
pub(in crate::engine) const STALE_WRITE_REFUSED: &str = "stale-write-refused";

/// The largest size of a fact, in bytes. Metadata that does not fit is left out.
const MAX_BYTES: usize = 1_024;

// === impl Actor ===

impl Actor {
    /// The mark of the caller, if the actor has an API key.
    pub fn mark(&self) -> Option<&Arc<str>> {
        match self {
            Self::Key(mark) => Some(mark),
            Self::Address(_) => None,
        }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(mark) => f.write_str(CallerId::label_of_mark(mark)),
            Self::Address(address) => address.fmt(f),
        }
    }
}

// === impl RecordedLease ===

impl From<FencingToken> for RecordedLease {
    fn from(fence: FencingToken) -> Self {
        let entry = HistoryEntry {
            fencing_token: fence.get(),
            ..HistoryEntry::default()
        };
        let (since, until) = (None, Instant::now());
        Self {
            entry,
            since,
            until,
            unheard: None,
            even_if_short: false,
            is_lost: false,
        }
    }
}

impl From<&HeldLease> for RecordedLease {
    fn from(lease: &HeldLease) -> Self {
        Self {
            entry: entry(lease.fence, lease.mode, &lease.said),
            since: lease.as_of.checked_sub(lease.held_for),
            until: lease.as_of + lease.expires_in,
            unheard: None,
            even_if_short: false,
            is_lost: false,
        }
    }
}

/// The entry that says what a lease is.
pub(in crate::engine) fn entry(fence: FencingToken, mode: Mode, said: &Said) -> HistoryEntry {
    // The pattern names every field, so that a new field cannot be forgotten here.
    let Said {
        owner,
        metadata,
        group: _,
        order,
    } = said;
    let rollback = order.as_ref().and_then(|it| it.rollback.as_ref());
    let metadata = metadata.iter();
    HistoryEntry {
        fencing_token: fence.get(),
        mode: Some(mode.as_str().to_owned()),
        slot: mode.slot(),
        owner: owner.as_ref().map(|owner| owner.as_str().to_owned()),
        order: order.as_ref().map(|it| it.number.get()),
        rollback: rollback.map(|why| why.as_str().to_owned()),
        metadata: metadata
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        ..HistoryEntry::default()
    }
}

/// The record of a fact. It is vital unless it is about an ordinary beginning or end.
pub(super) fn record(mut fact: HistoryEntry) -> HistoryRecord {
    let is_vital = |note: &HistoryNote| ![EXPIRED, RELEASED].contains(&&*note.kind);
    let is_vital = fact.notes.iter().any(is_vital);
    loop {
        let mut json = serde_json::json!(fact);
        let fields = json.as_object_mut().expect("a fact has fields");
        fields.retain(|_, value| !value.is_null());
        let text = json.to_string();
        if text.len() <= MAX_BYTES || fact.metadata.pop_last().is_none() {
            let record = HistoryRecord::new(fact.fencing_token, &text, is_vital);
            return if is_proof(&fact) {
                record
            } else {
                record.unproven()
            };
        }
    }
}

/// Whether the lease of this entry exists. If all that is known of a lease are refused checks, a caller may have invented
/// its fencing token: it must not take the place of a lease in the history.
pub(super) fn is_proof(entry: &HistoryEntry) -> bool {
    let is_refusal = |note: &HistoryNote| note.kind == STALE_WRITE_REFUSED;
    entry.mode.is_some()
        || entry.acquired_at.is_some()
        || entry.ended.is_some()
        || entry.notes.is_empty()
        || !entry.notes.iter().all(is_refusal)
}

/// Reads the fact of a record; `None` if no gateway wrote it.
pub(super) fn read(record: &str) -> Option<HistoryEntry> {
    serde_json::from_str(record.split_once(' ')?.1).ok()
}

#[cfg(test)]
mod tests {
    use crate::lock::{Metadata, Owner};

    use super::*;

    #[test]
    fn metadata_that_does_not_fit_is_left_out_and_nothing_else() {
        let entries = (b'a'..=b'e').map(|name| (char::from(name).to_string(), "x".repeat(300)));
        let metadata = Metadata::new(entries.collect()).unwrap();
        let mode = Mode::Shared { slot: Some(2) };
        let fence = FencingToken::new(42).unwrap();
        let said = Said {
            owner: Owner::new("ci \"7\"").ok(),
            metadata,
            ..Said::default()
        };
        let whole = entry(fence, mode, &said);
        let text = record(whole.clone()).text;
        assert!(text.len() < MAX_BYTES + 20 && !text.contains('\n'));
        let fact = read(&text).unwrap();
        assert_eq!(read(&record(fact.clone()).text), Some(fact.clone()));
        assert_eq!(fact.metadata.len(), 3);
        let metadata = whole.metadata.clone();
        assert_eq!(HistoryEntry { metadata, ..fact }, whole);
    }

    #[test]
    fn breaks_losses_and_notes_are_vital() {
        let is_vital = |kind: &str| {
            let note = HistoryNote {
                kind: kind.to_owned(),
                ..HistoryNote::default()
            };
            let mut fact = HistoryEntry::default();
            let is_vital = record(fact.clone()).is_vital;
            fact.notes.push(note);
            record(fact).is_vital || is_vital
        };
        assert!(
            [BROKEN, LOST, "release-requested"]
                .into_iter()
                .all(is_vital)
        );
        assert!(![EXPIRED, RELEASED].into_iter().any(is_vital));
    }
}
