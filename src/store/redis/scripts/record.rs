//! A lease as the scripts tell it.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    lock::{FencingToken, ForeignMark, HeldLease, Metadata, Owner, Ttl},
    store::{
        StoreError,
        contract::{Contention, Holder},
    },
};

use super::{
    super::{keys::Keys, layout::Record},
    Reply,
};

// === impl Reply ===

impl Reply {
    /// The lease in the fields that follow. If they make no lease, the record was not written by us.
    pub(in crate::store::redis) fn lease(&mut self, keys: &Keys) -> Result<HeldLease, StoreError> {
        self.read_lease().ok_or_else(|| StoreError::ForeignData {
            key: keys.info(),
            found: "a lease record that makes no sense".into(),
        })
    }

    /// The lease in the fields that follow: its text, and the time. If it makes none, it was not written by us.
    pub(super) fn held(&mut self, keys: &Keys) -> Result<HeldLease, StoreError> {
        self.read_held().ok_or_else(|| StoreError::ForeignData {
            key: keys.lock().to_owned(),
            found: "a lease that makes no sense".into(),
        })
    }

    pub(super) fn read_held(&mut self) -> Option<HeldLease> {
        let text = self.text()?;
        Record::read(&text)?.lease(self.micros()?)
    }

    /// A time of the store, in microseconds.
    pub(super) fn micros(&mut self) -> Option<u64> {
        self.str()?.parse().ok()
    }

    pub(super) fn read_lease(&mut self) -> Option<HeldLease> {
        Some(HeldLease {
            fence: FencingToken::new(u64::try_from(self.integer()?).ok()?).ok()?,
            ttl: Ttl::from_millis(u64::try_from(self.integer()?).ok()?).ok()?,
            expires_in: millis(self.integer()?)?,
            held_for: millis(self.integer()?)?,
            // -1: there is no limit.
            hold_expires_in: millis(self.integer()?),
            owner: match self.text()?.as_str() {
                "" => None,
                owner => Some(Owner::new(owner).ok()?),
            },
            metadata: match self.text()?.as_str() {
                "" => Metadata::default(),
                json => {
                    let entries: BTreeMap<String, String> = serde_json::from_str(json).ok()?;
                    Metadata::new(entries).ok()?
                }
            },
        })
    }

    /// A holder that is no gateway's client.
    pub(super) fn foreign(&mut self) -> Option<Holder> {
        Some(Holder::Foreign {
            expires_in: millis(self.integer()?),
            mark: Some(self.mark()?),
        })
    }

    /// What a foreign client has written.
    pub(in crate::store::redis) fn mark(&mut self) -> Option<ForeignMark> {
        ForeignMark::new(&self.text()?).ok()
    }

    /// A record of another layout.
    pub(in crate::store::redis) fn layout(&mut self, keys: &Keys) -> StoreError {
        let found = match self.foreign_text().as_deref() {
            None | Some("") => "a hash without a layout version".into(),
            Some(version) => format!("a lease record of layout version \"{version}\"").into(),
        };
        StoreError::ForeignData {
            key: keys.info(),
            found,
        }
    }
}

fn millis(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

// === Contention ===
//
// What stands between an attempt and a lock, as the scripts tell it.

// === impl Reply ===

impl Reply {
    /// The contention in the fields that follow.
    pub(super) fn contention(&mut self, keys: &Keys) -> Result<Contention, StoreError> {
        let waiters = self.integer().and_then(|count| u64::try_from(count).ok());
        let waiters = waiters.ok_or_else(|| self.unexpected())?;
        let holder = match self.text().as_deref() {
            Some("held") => Some(Holder::Lease(self.held(keys)?)),
            Some("foreign") => Some(self.foreign().ok_or_else(|| self.unexpected())?),
            Some("passing") => None,
            _ => return Err(self.unexpected()),
        };
        Ok(Contention { holder, waiters })
    }
}
