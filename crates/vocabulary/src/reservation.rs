//! Reservations: people hold a lock until a time of the wall clock, without a renewal.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{CallerId, Reason, Ttl};

/// A reservation: an exclusive lease that lasts until a time of the wall clock, which no renewal changes.
///
/// A store keeps it beside the metadata of the lease ([`Said::stored`](crate::Said::stored)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// When the lease ends, by the clock of the store: in milliseconds since 1970.
    pub until_ms: u64,
    /// Why the lock is reserved: a text for people to read.
    pub reason: Reason,
    /// The mark of the caller that reserved the lock ([`CallerId::mark`]); `None` at a gateway without keys.
    pub by: Option<Arc<str>>,
}

/// How the stored text of a reservation begins. The scripts of Redis search for it.
const MARK: char = '@';

// === impl Reservation ===

impl Reservation {
    /// The TTL that records and answers show of a reservation, whose end does not depend on a TTL.
    pub const TTL: Ttl = Ttl::MAX;

    /// The caller that reserved the lock, as people are shown it.
    pub fn by_label(&self) -> Option<&str> {
        self.by.as_deref().map(CallerId::label_of_mark)
    }

    /// When the lease ends, by the clock of the store.
    pub fn until(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.until_ms)
    }

    /// The text that a store keeps.
    pub(crate) fn stored(&self) -> String {
        let by = self.by.as_deref().unwrap_or_default();
        format!("{MARK}{}\t{by}\t{}", self.until_ms, self.reason)
    }

    /// Reads the text that a store has kept.
    pub(crate) fn from_stored(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(MARK)?.splitn(3, '\t');
        let until_ms = parts.next()?.parse().ok().filter(|&ms| ms <= LATEST_MS)?;
        let by = parts.next()?;
        Some(Self {
            until_ms,
            reason: Reason::new(parts.next()?).ok()?,
            by: (!by.is_empty()).then(|| by.into()),
        })
    }
}

/// The end of the year 9999, in milliseconds since 1970: no reservation is made until a later time.
const LATEST_MS: u64 = 253_402_300_799_999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_from_its_stored_text() {
        for by in [None, Some("ops".into())] {
            let reservation = Reservation {
                until_ms: 1_795_000_000_123,
                reason: Reason::new("load test, see #ops \u{e4}").unwrap(),
                by,
            };
            let stored = reservation.stored();
            assert_eq!(Reservation::from_stored(&stored), Some(reservation));
        }
        let golden = "@1795000000123\tops\tload test";
        assert_eq!(Reservation::from_stored(golden).unwrap().stored(), golden);
    }

    #[test]
    fn any_other_text_is_none() {
        for text in [
            "",
            "3 a",
            "@",
            "@1\tops",
            "@1\tops\t",
            "@x\t\ty",
            "@999999999999999\t\ty",
        ] {
            assert_eq!(Reservation::from_stored(text), None, "{text:?}");
        }
    }
}
