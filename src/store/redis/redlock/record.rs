//! A lease as the scripts of a quorum tell it.

use std::time::Duration;

use crate::{
    lock::{FencingToken, HeldLease, Mode, Owner, Ttl},
    store::StoreError,
};

use super::super::{
    client::calls::{Reply, metadata_from_json, read_request},
    keys::Keys,
};

// === impl Reply ===

impl Reply {
    /// The lease in the fields that follow. If they make no lease, the record was not written by us.
    pub(super) fn lease(&mut self, keys: &Keys) -> Result<HeldLease, StoreError> {
        self.read_lease().ok_or_else(|| StoreError::ForeignData {
            key: keys.info(),
            found: "a lease record that makes no sense".into(),
        })
    }

    fn read_lease(&mut self) -> Option<HeldLease> {
        Some(HeldLease {
            fence: FencingToken::new(u64::try_from(self.integer()?).ok()?).ok()?,
            mode: Mode::Exclusive,
            ttl: Ttl::from_millis(u64::try_from(self.integer()?).ok()?).ok()?,
            expires_in: millis(self.integer()?)?,
            held_for: millis(self.integer()?)?,
            // -1: there is no limit.
            hold_expires_in: millis(self.integer()?),
            owner: match self.text()?.as_str() {
                "" => None,
                owner => Some(Owner::new(owner).ok()?),
            },
            metadata: metadata_from_json(&self.text()?)?,
            release_requested: match self.text()?.as_str() {
                "" => None,
                asked => Some(Box::new(read_request(asked, Duration::from_millis)?)),
            },
            as_of: self.sent(),
        })
    }

    /// A record of another layout.
    pub(super) fn layout(&mut self, keys: &Keys) -> StoreError {
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

pub(super) fn millis(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// What every reader of what only nodes answer makes of the bytes, for fuzzers.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzzed_quorum_reply(bytes: &[u8]) -> String {
    use super::super::client::calls::{fuzzed, shown};

    fuzzed(
        bytes,
        &[
            |reply, keys| shown(reply.lease(keys)),
            |reply, keys| reply.layout(keys).to_string(),
        ],
    )
}
