//! What one node says of a lease.

use std::time::Duration;

use crate::{
    lock::{HeldLease, TokenHash},
    store::StoreError,
};

use super::super::{
    keys::Keys,
    scripts::{Reply, token_hash},
};

/// A lease as one node has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) token: TokenHash,
    /// What is left of it at that node.
    pub(super) left: Duration,
    /// Its fence means nothing where the second round has not named one.
    pub(super) lease: HeldLease,
}

/// What a record says for its fence until the second round has named it, as in `reserve.lua`.
const UNRATIFIED: u64 = 1;

// === impl Claim ===

impl Claim {
    /// Reads what is left, the token and the lease.
    pub(super) fn read(reply: &mut Reply, keys: &Keys) -> Result<Self, StoreError> {
        let left = reply.integer().and_then(|ms| u64::try_from(ms).ok());
        let token = reply.text().as_deref().and_then(token_hash);
        let (Some(left), Some(token)) = (left, token) else {
            return Err(reply.unexpected());
        };
        Ok(Self {
            token,
            left: Duration::from_millis(left),
            lease: reply.lease(keys)?,
        })
    }

    /// Whether the second round has named its fence at that node.
    pub(super) fn is_ratified(&self) -> bool {
        is_ratified(&self.lease)
    }
}

/// Whether the second round has named the fence of a lease.
pub(super) fn is_ratified(lease: &HeldLease) -> bool {
    lease.fence.get() > UNRATIFIED
}
