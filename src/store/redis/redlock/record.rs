//! Reads a lease from the replies of the scripts of a quorum.

use std::time::Duration;

use crate::{
    lock::{FencingToken, ForeignMark, HeldLease, Mode, TokenHash, Ttl},
    store::{StoreError, contract::Holder},
};

use super::super::{
    client::{Reply, read_request, read_said, token_hash},
    keys::Keys,
};

/// Holder of a lock at one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeHolder {
    /// The lease of this token, or a try. The fence of a try means nothing until the second round has named the fence.
    Lease(TokenHash, HeldLease),
    /// A foreign client: the time until its value expires (`None`: never), and the mark of that value.
    Foreign(Option<Duration>, ForeignMark),
}

// === impl NodeHolder ===

impl NodeHolder {
    /// The holder of the lock, as callers see it.
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
    /// Reads a lease from the next fields of the reply. If these fields make no lease, the record was not written by a
    /// gateway.
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
            is_resting: false,
            ttl: Ttl::from_millis(u64::try_from(self.integer()?).ok()?).ok()?,
            expires_in: millis(self.integer()?)?,
            held_for: millis(self.integer()?)?,
            // -1 in the reply: the lease has no hold limit.
            hold_expires_in: millis(self.integer()?),
            // A quorum grants no reservations.
            reservation: None,
            said: read_said(&self.text()?, &self.text()?)?.0,
            release_requested: match self.text()?.as_str() {
                "" => None,
                asked => Some(Box::new(read_request(asked, Duration::from_millis)?)),
            },
            as_of: self.sent(),
        })
    }

    /// The same reply; an error if the record at the node has another layout.
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

    /// Reads the holder of the lock at a node from a reply of the kind `held` or `foreign`.
    pub(super) fn holder(&mut self, keys: &Keys) -> Result<NodeHolder, StoreError> {
        if self.kind() == "held" {
            return Ok(NodeHolder::Lease(self.token()?, self.lease(keys)?));
        }
        match (self.integer(), self.mark()) {
            // -1 in the reply: the foreign value does not expire.
            (Some(left), Some(mark)) => Ok(NodeHolder::Foreign(millis(left), mark)),
            _ => Err(self.unexpected()),
        }
    }

    /// Reads the hash of a token from the reply.
    pub(super) fn token(&mut self) -> Result<TokenHash, StoreError> {
        let token = self.text().as_deref().and_then(token_hash);
        token.ok_or_else(|| self.unexpected())
    }
}

pub(super) fn millis(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// Passes any bytes to the readers of replies that only nodes of a quorum send, and returns their results as a text,
/// for fuzzers.
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
