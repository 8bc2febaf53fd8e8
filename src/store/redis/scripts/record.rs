//! A lease as the scripts tell it.

use std::{collections::BTreeMap, time::Duration};

use bb8_redis::redis::Value;

use crate::{
    lock::{FencingToken, ForeignMark, HeldLease, Metadata, Owner, Ttl},
    store::{StoreError, contract::Holder},
};

use super::{super::keys::Keys, Reply};

/// The layout of the records that this version reads and writes, as in `record.lua`.
pub(in crate::store::redis) const RECORD_LAYOUT: &[u8] = b"1";

/// The fields of a record that a lease is told from, as in `tell.lua`.
pub(in crate::store::redis) const TOLD: [&str; 6] =
    ["fence", "ttl", "acquired", "hold", "owner", "metadata"];

/// The lease in the fields of [`TOLD`], with what is left of it and the time, in milliseconds: the
/// same that `tell.lua` tells.
pub(in crate::store::redis) fn told_lease(
    fields: &[Value],
    left: i64,
    now: i64,
) -> Option<HeldLease> {
    let [fence, ttl, acquired, hold, owner, metadata] = fields else {
        return None;
    };
    let text = |field: &Value| match field {
        Value::Nil => Value::BulkString(Vec::new()),
        other => other.clone(),
    };
    let until_limit = number(hold).map_or(-1, |hold| hold.saturating_sub(now).max(0));
    let held_for = number(acquired).map_or(0, |acquired| now.saturating_sub(acquired).max(0));
    let told = vec![
        Value::Int(number(fence)?),
        Value::Int(number(ttl)?),
        Value::Int(left),
        Value::Int(held_for),
        Value::Int(until_limit),
        text(owner),
        text(metadata),
    ];
    Reply::of_fields(told).read_lease()
}

fn number(field: &Value) -> Option<i64> {
    match field {
        Value::BulkString(digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}

// === impl Reply ===

impl Reply {
    /// The lease in the fields that follow. If they make no lease, the record was not written by us.
    pub(in crate::store::redis) fn lease(&mut self, keys: &Keys) -> Result<HeldLease, StoreError> {
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
            key: keys.info().to_owned(),
            found,
        }
    }
}

/// What is left until a limit, of which -1 means that there is none.
pub(in crate::store::redis) fn limit(ms: i64) -> Option<Duration> {
    millis(ms)
}

fn millis(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// Metadata as a record keeps it; empty if there is none.
pub(in crate::store::redis) fn metadata_json(metadata: &Metadata) -> String {
    if metadata.is_empty() {
        return String::new();
    }
    let entries: BTreeMap<&str, &str> = metadata.iter().collect();
    serde_json::to_string(&entries).expect("texts by name are JSON")
}
