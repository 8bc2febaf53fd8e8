//! Keys of stored rows: leases, and tombstones, whose value is the time of their end and perhaps an order.

use std::{borrow::Borrow, sync::Arc};

use crate::lock::{FencingToken, IdempotencyHash, LockName, TokenHash};

use super::fields::RowError;

/// Length in bytes of the longest key of a row: a kind, a hash and a name.
const MAX_KEY_LEN: usize = 1 + 32 + LockName::MAX_LEN;

/// A key of a row, built on the stack for a look-up.
///
/// The first byte is the kind of the row: `l` an exclusive lease, by its name; `s` a shared lease, by its
/// fencing token and the name; `k` a used idempotency key; `r` the token of a released lease; `g` the token of
/// an attempt that was given back; `b` the token of a broken lease; `n` the token or the idempotency key of a waiter that
/// a newer waiter took out of the queue; `o` the order of a lock, by its name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowKey {
    bytes: [u8; MAX_KEY_LEN],
    len: usize,
}

/// The key of a tombstone, a row that remembers for a while that a lease, an attempt or an idempotency key has ended,
/// or for which order a lock was granted.
/// Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tombstone(Arc<[u8]>);

// === impl RowKey ===

impl RowKey {
    const EXCLUSIVE: u8 = b'l';
    const SHARED: u8 = b's';
    const USED_KEY: u8 = b'k';
    const RELEASED: u8 = b'r';
    const GIVEN_BACK: u8 = b'g';
    const BROKEN: u8 = b'b';
    const OUTDATED: u8 = b'n';
    const ORDER: u8 = b'o';

    /// The key of the exclusive lease of a lock, or of its shared lease with this fencing token.
    pub(crate) fn lease(name: &LockName, shared: Option<FencingToken>) -> Self {
        match shared {
            None => Self::build(Self::EXCLUSIVE, &[], name.as_str()),
            Some(fence) => Self::build(Self::SHARED, &fence.get().to_be_bytes(), name.as_str()),
        }
    }

    /// Decodes the key of a lease: the name and, for a shared lease, its fencing token. `None` if the key is
    /// not of a lease.
    pub(crate) fn parse_lease(
        key: &[u8],
    ) -> Option<Result<(LockName, Option<FencingToken>), RowError>> {
        let (fence, name) = match key.split_first()? {
            (&Self::EXCLUSIVE, name) => (None, name),
            (&Self::SHARED, rest) => match rest.split_first_chunk() {
                Some((fence, name)) => (Some(u64::from_be_bytes(*fence)), name),
                None => return Some(Err(RowError::CutShort)),
            },
            _ => return None,
        };
        let name = std::str::from_utf8(name)
            .ok()
            .and_then(|name| LockName::new(name).ok());
        let fence = fence.map(FencingToken::new).transpose();
        let key = name.zip(fence.ok());
        Some(key.ok_or(RowError::Invalid("key of a lease")))
    }

    /// The key of the tombstone for an idempotency key whose lease has ended. The hash covers the name.
    pub(crate) fn used_key(hash: &IdempotencyHash) -> Self {
        Self::build(Self::USED_KEY, hash.as_bytes(), "")
    }

    /// The key of the tombstone for the token of a released lease that had an idempotency key.
    pub(crate) fn released(name: &LockName, token: &TokenHash) -> Self {
        Self::build(Self::RELEASED, token.as_bytes(), name.as_str())
    }

    /// The key of the tombstone for the token of an attempt that was given back.
    pub(crate) fn given_back(name: &LockName, token: &TokenHash) -> Self {
        Self::build(Self::GIVEN_BACK, token.as_bytes(), name.as_str())
    }

    /// The key of the tombstone for the token of a lease that was broken.
    pub(crate) fn broken(name: &LockName, token: &TokenHash) -> Self {
        Self::build(Self::BROKEN, token.as_bytes(), name.as_str())
    }

    /// The key of the tombstone for the token of a waiter that a newer waiter took out of the queue.
    pub(crate) fn outdated(name: &LockName, token: &TokenHash) -> Self {
        Self::build(Self::OUTDATED, token.as_bytes(), name.as_str())
    }

    /// The key of the tombstone for the idempotency key of such a waiter. The hash covers the name.
    pub(crate) fn outdated_key(hash: &IdempotencyHash) -> Self {
        Self::build(Self::OUTDATED, hash.as_bytes(), "")
    }

    /// The key of the tombstone for the order that a lock remembers.
    pub(crate) fn order(name: &LockName) -> Self {
        Self::build(Self::ORDER, &[], name.as_str())
    }

    /// The bytes of the row's key.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn build(kind: u8, hash: &[u8], name: &str) -> Self {
        let mut bytes = [0; MAX_KEY_LEN];
        let mut len = 0;
        for part in [&[kind], hash, name.as_bytes()] {
            bytes[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        Self { bytes, len }
    }
}

// === impl Tombstone ===

impl Tombstone {
    /// Decodes the key of a tombstone; `None` if the key is of another kind or not valid.
    pub(crate) fn parse(key: &[u8]) -> Option<Self> {
        let (kind, rest) = key.split_first()?;
        let hash_len = if *kind == RowKey::ORDER { 0 } else { 32 };
        let (_hash, name) = rest.split_at_checked(hash_len)?;
        let name = std::str::from_utf8(name).ok()?;
        let valid = match *kind {
            RowKey::USED_KEY => name.is_empty(),
            RowKey::RELEASED | RowKey::GIVEN_BACK | RowKey::BROKEN | RowKey::ORDER => {
                LockName::new(name).is_ok()
            }
            RowKey::OUTDATED => name.is_empty() || LockName::new(name).is_ok(),
            _ => false,
        };
        valid.then(|| Self(key.into()))
    }

    /// Whether the tombstone is of the order that a lock remembers.
    pub(crate) fn is_of_order(&self) -> bool {
        self.0.first() == Some(&RowKey::ORDER)
    }

    /// The bytes of the tombstone's key.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&RowKey> for Tombstone {
    fn from(key: &RowKey) -> Self {
        Self(key.as_bytes().into())
    }
}

impl Borrow<[u8]> for Tombstone {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}
