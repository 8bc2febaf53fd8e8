//! The key of a row in the file.

use std::{borrow::Borrow, sync::Arc};

use crate::lock::{FencingToken, IdempotencyHash, LockName, TokenHash};

use super::field::RowError;

/// The longest key: a kind, a hash and a name.
const LONGEST: usize = 1 + 32 + LockName::MAX_LEN;

/// A key that is built on the stack, to look something up with.
///
/// Its first byte says what the row is: `m` the state of the file, `l` a lease by its fence and name,
/// `k` a used idempotency key, `r` a released token, `g` a token that was given back, `b` one whose
/// lease was broken.
///
/// Fences rise, so that leases of the same time lie side by side: a commit writes the page or two in
/// which everything new is, and not one page for each name.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowKey {
    bytes: [u8; LONGEST],
    len: usize,
}

/// The key of a tombstone: of a row that remembers for a while what has ended. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Tombstone(Arc<[u8]>);

// === impl RowKey ===

impl RowKey {
    /// The kind of the row of which there is one.
    pub(super) const META: &'static [u8] = b"m";
    /// The kind of a lease.
    pub(super) const LEASE: u8 = b'l';
    const USED_KEY: u8 = b'k';
    const RELEASED: u8 = b'r';
    const GIVEN_BACK: u8 = b'g';
    const BROKEN: u8 = b'b';

    /// A lease of a name.
    pub(super) fn lease(name: &LockName, fence: FencingToken) -> Self {
        Self::build(Self::LEASE, &fence.get().to_be_bytes(), name.as_str())
    }

    /// Reads the key of a lease; none if it is the key of something else.
    pub(super) fn parse_lease(key: &[u8]) -> Option<Result<(LockName, FencingToken), RowError>> {
        let (&Self::LEASE, rest) = key.split_first()? else {
            return None;
        };
        let invalid = RowError::Invalid("key of a lease");
        Some(
            rest.split_first_chunk()
                .ok_or(invalid)
                .and_then(|(fence, name)| {
                    let fence = FencingToken::new(u64::from_be_bytes(*fence));
                    let name = std::str::from_utf8(name)
                        .ok()
                        .and_then(|name| LockName::new(name).ok());
                    name.zip(fence.ok())
                        .ok_or(RowError::Invalid("key of a lease"))
                }),
        )
    }

    /// An idempotency key whose lease has ended. Its hash covers the name.
    pub(super) fn used_key(hash: &IdempotencyHash) -> Self {
        Self::build(Self::USED_KEY, hash.as_bytes(), "")
    }

    /// The token of a released lease that had an idempotency key.
    pub(super) fn released(name: &LockName, token: &TokenHash) -> Self {
        Self::build(Self::RELEASED, token.as_bytes(), name.as_str())
    }

    /// The token of an attempt that was given back.
    pub(super) fn given_back(name: &LockName, token: &TokenHash) -> Self {
        Self::build(Self::GIVEN_BACK, token.as_bytes(), name.as_str())
    }

    /// The token of a lease that was broken.
    pub(super) fn broken(name: &LockName, token: &TokenHash) -> Self {
        Self::build(Self::BROKEN, token.as_bytes(), name.as_str())
    }

    /// The bytes of the key.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn build(kind: u8, hash: &[u8], name: &str) -> Self {
        let mut bytes = [0; LONGEST];
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
    /// Reads the key of a row that is neither the file's state nor a lease.
    pub(super) fn parse(key: &[u8]) -> Option<Self> {
        let (kind, rest) = key.split_first()?;
        let (_hash, name) = rest.split_at_checked(32)?;
        let name = std::str::from_utf8(name).ok()?;
        let valid = match *kind {
            RowKey::USED_KEY => name.is_empty(),
            RowKey::RELEASED | RowKey::GIVEN_BACK | RowKey::BROKEN => LockName::new(name).is_ok(),
            _ => false,
        };
        valid.then(|| Self(key.into()))
    }

    /// The bytes of the key.
    pub(super) fn as_bytes(&self) -> &[u8] {
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
