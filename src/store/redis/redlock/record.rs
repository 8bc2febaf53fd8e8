//! A lease as the scripts of a quorum tell it.

use std::time::Duration;

use crate::{
    lock::{FencingToken, ForeignMark, HeldLease, Mode, Owner, TokenHash, Ttl},
    store::{StoreError, contract::Holder},
};

use super::super::{
    client::{Reply, metadata_from_json, read_request, token_hash},
    keys::Keys,
};

/// Who holds a lock at one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeHolder {
    /// The lease of this token, or a try. Its fence means nothing until the second round has named one.
    Lease(TokenHash, HeldLease),
    /// A foreign client, for so long (`None`: without an expiry), with a mark of what it has written.
    Foreign(Option<Duration>, ForeignMark),
}

// === impl NodeHolder ===

impl NodeHolder {
    /// The holder, as callers are told of it.
    pub(super) fn holder(self) -> Holder {
        match self {
            Self::Lease(_, lease) => Holder::Lease(lease),
            Self::Foreign(expires_in, mark) => Holder::Foreign {
                expires_in,
                mark: Some(mark),
            },
        }
    }
}

// === impl Reply ===

impl Reply {
    /// The lease in the fields that follow. If they make no lease, the record was not written by us.
    pub(super) fn lease(&mut self, keys: &Keys) -> Result<HeldLease, StoreError> {
        self.read_lease().ok_or_else(|| StoreError::ForeignData {
            key: keys.of_name("info"),
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

    /// The reply itself; an error if it tells of a record of another layout.
    pub(super) fn of_known_layout(mut self, keys: &Keys) -> Result<Self, StoreError> {
        if self.kind() != "layout" {
            return Ok(self);
        }
        let found = match self.foreign_text().as_deref() {
            None | Some("") => "a hash without a layout version".into(),
            Some(version) => format!("a lease record of layout version \"{version}\"").into(),
        };
        let key = keys.of_name("info");
        Err(StoreError::ForeignData { key, found })
    }

    /// Who holds the lock at a node, as a reply of the kind `held` or `foreign` says.
    pub(super) fn holder(&mut self, keys: &Keys) -> Result<NodeHolder, StoreError> {
        if self.kind() == "held" {
            return Ok(NodeHolder::Lease(self.token()?, self.lease(keys)?));
        }
        match (self.integer(), self.mark()) {
            // -1: it does not expire.
            (Some(left), Some(mark)) => Ok(NodeHolder::Foreign(millis(left), mark)),
            _ => Err(self.unexpected()),
        }
    }

    /// The hash of a token.
    pub(super) fn token(&mut self) -> Result<TokenHash, StoreError> {
        let token = self.text().as_deref().and_then(token_hash);
        token.ok_or_else(|| self.unexpected())
    }
}

pub(super) fn millis(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// What every reader of what only nodes answer makes of the bytes, for fuzzers.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzzed_quorum_reply(bytes: &[u8]) -> String {
    use super::super::client::{fuzzed, shown};

    fuzzed(
        bytes,
        &[
            |reply, keys| shown(reply.lease(keys)),
            |reply, keys| shown(reply.holder(keys)),
        ],
    )
}
