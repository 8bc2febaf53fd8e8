//! A lease as the scripts tell it.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    lock::{FencingToken, HeldLease, Metadata, Owner, Ttl},
    store::{StoreError, contract::Holder},
};

use super::{super::keys::Keys, Reply};

// === impl Reply ===

impl Reply {
    /// The lease in the fields that follow. If they make no lease, the record was not written by us.
    pub(super) fn lease(&mut self, keys: &Keys) -> Result<HeldLease, StoreError> {
        self.read_lease().ok_or_else(|| StoreError::ForeignData {
            key: keys.info().to_owned(),
            found: "a lease record that makes no sense".into(),
        })
    }

    pub(super) fn read_lease(&mut self) -> Option<HeldLease> {
        Some(HeldLease {
            fence: FencingToken::new(u64::try_from(self.integer()?).ok()?).ok()?,
            ttl: Ttl::from_millis(u64::try_from(self.integer()?).ok()?).ok()?,
            expires_in: millis(self.integer()?)?,
            held_for: millis(self.integer()?)?,
            hold_expires_in: limit(self.integer()?),
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
        let left = self.integer()?;
        Some(Holder::Foreign {
            expires_in: millis(left),
        })
    }

    /// A record of another layout.
    pub(super) fn layout(&mut self, keys: &Keys) -> StoreError {
        let found = match self.foreign_text().as_deref() {
            None | Some("") => "a hash without a layout version".into(),
            Some(version) => format!("a lease record of layout version \"{version}\"").into(),
        };
        StoreError::ForeignData {
            key: keys.info().to_owned(),
            found,
        }
    }
}

/// What is left until a limit, of which -1 means that there is none.
pub(super) fn limit(ms: i64) -> Option<Duration> {
    millis(ms)
}

fn millis(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// Metadata as a record keeps it; empty if there is none.
pub(super) fn metadata_json(metadata: &Metadata) -> String {
    if metadata.is_empty() {
        return String::new();
    }
    let entries: BTreeMap<&str, &str> = metadata.iter().collect();
    serde_json::to_string(&entries).expect("texts by name are JSON")
}
