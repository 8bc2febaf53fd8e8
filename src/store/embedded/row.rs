//! What is written to the log: rows, and how they are read.

use std::{borrow::Borrow, collections::BTreeMap, sync::Arc};

use crate::{
    clock::BootId,
    lock::{
        FencingToken, Fingerprint, IdempotencyHash, Limit, LockName, Metadata, Mode, Owner, Reason,
        Salt, TokenHash, Ttl,
    },
    store::contract::Idempotency,
};

use super::lease::{Lease, LeaseDelivery, LeaseKey, LeaseRequest, Moment};

/// Rows to write and to remove, as they stand in a record of the log: length of the key, length of the
/// value, key, value.
#[derive(Debug, Default)]
pub(super) struct Rows {
    bytes: Vec<u8>,
    count: u64,
}

/// The lengths of a key and of a value.
const ROW_HEADER: usize = 2 + 4;
/// Instead of the length of a value: the row is removed.
const REMOVED: u32 = u32::MAX;

// === impl Rows ===

impl Rows {
    /// Writes the row of a lease.
    pub(super) fn lease(&mut self, name: &LockName, lease: &Lease) {
        let key = RowKey::of_lease(name, lease);
        self.put(key.as_bytes(), |row| encode(lease, row));
    }

    /// Removes the row of a lease that was alone.
    pub(super) fn no_lease(&mut self, name: &LockName) {
        self.remove(RowKey::exclusive(name).as_bytes());
    }

    /// Removes the row of a lease that shared its lock.
    pub(super) fn no_shared_lease(&mut self, name: &LockName, fence: FencingToken) {
        self.remove(RowKey::shared(name, fence).as_bytes());
    }

    /// Writes or removes the row of a tombstone.
    pub(super) fn tombstone(&mut self, tombstone: &Tombstone, until: Option<Moment>) {
        let key = tombstone.as_bytes();
        match until {
            Some(until) => self.put(key, |row| {
                row.extend_from_slice(&until.as_micros().to_le_bytes());
            }),
            None => self.remove(key),
        }
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many they are.
    pub(super) fn len(&self) -> u64 {
        self.count
    }

    /// All of them.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn put(&mut self, key: &[u8], encode: impl FnOnce(&mut Vec<u8>)) {
        let value_len = self.begin(key, 0);
        let start = self.bytes.len();
        encode(&mut self.bytes);
        let len = u32::try_from(self.bytes.len() - start).expect("a row is short");
        self.bytes[value_len..value_len + 4].copy_from_slice(&len.to_le_bytes());
    }

    fn remove(&mut self, key: &[u8]) {
        self.begin(key, REMOVED);
    }

    /// Answers where the length of the value stands.
    fn begin(&mut self, key: &[u8], value_len: u32) -> usize {
        let len = u16::try_from(key.len()).expect("a key is short");
        self.count += 1;
        self.bytes.extend_from_slice(&len.to_le_bytes());
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&value_len.to_le_bytes());
        self.bytes.extend_from_slice(key);
        at
    }
}

// === Row key ===
//
// The key of a row.

/// The longest key: a kind, a hash and a name.
const LONGEST: usize = 1 + 32 + LockName::MAX_LEN;

/// A key that is built on the stack, to look something up with.
///
/// Its first byte says what the row is: `l` a lease that is alone, by its name, `s` one that shares its lock, by its
/// fencing token and the name, `k` a used idempotency key, `r` a released token, `g` a token that was given back,
/// `b` one whose lease was broken.
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
    const EXCLUSIVE: u8 = b'l';
    const SHARED: u8 = b's';
    const USED_KEY: u8 = b'k';
    const RELEASED: u8 = b'r';
    const GIVEN_BACK: u8 = b'g';
    const BROKEN: u8 = b'b';

    /// A lease of a name.
    pub(super) fn of_lease(name: &LockName, lease: &Lease) -> Self {
        match lease.mode {
            Mode::Exclusive => Self::exclusive(name),
            Mode::Shared { .. } => Self::shared(name, lease.fence),
        }
    }

    /// The lease that is alone of a name.
    pub(super) fn exclusive(name: &LockName) -> Self {
        Self::build(Self::EXCLUSIVE, &[], name.as_str())
    }

    /// One of the leases that share a lock.
    pub(super) fn shared(name: &LockName, fence: FencingToken) -> Self {
        Self::build(Self::SHARED, &fence.get().to_be_bytes(), name.as_str())
    }

    /// Reads the key of a lease: of which name it is, and with which fencing token if it shares the lock. None if
    /// it is the key of something else.
    pub(super) fn parse_lease(
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
    /// Reads the key of a row that is no lease.
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

// === Lease row ===
//
// The row of a lease.

/// The version that this program writes, and the only one it reads.
const VERSION: u8 = 1;

/// Which optional fields follow, who was told, and whether the lock is shared: every bit has a meaning.
mod flag {
    pub(super) const HOLD_LIMIT: u16 = 1;
    pub(super) const OWNER: u16 = 1 << 1;
    pub(super) const METADATA: u16 = 1 << 2;
    pub(super) const KEY: u16 = 1 << 3;
    pub(super) const REPLAYED: u16 = 1 << 4;
    pub(super) const UNDELIVERED: u16 = 1 << 5;
    pub(super) const SHARED: u16 = 1 << 6;
    pub(super) const SLOT: u16 = 1 << 7;
    pub(super) const REQUEST: u16 = 1 << 8;
    /// Those that have no meaning.
    pub(super) const UNKNOWN: u16 = !((1 << 9) - 1);
}

/// Appends the row of a lease.
pub(super) fn encode(lease: &Lease, row: &mut Vec<u8>) {
    let flags = [
        (flag::HOLD_LIMIT, lease.hold_ends_at.is_some()),
        (flag::OWNER, lease.owner.is_some()),
        (flag::METADATA, !lease.metadata.is_empty()),
        (flag::KEY, lease.key.is_some()),
        (flag::REPLAYED, lease.was_replayed()),
        (flag::UNDELIVERED, lease.is_undelivered()),
        (flag::SHARED, lease.mode.is_shared()),
        (flag::SLOT, lease.mode.slot().is_some()),
        (flag::REQUEST, lease.request.is_some()),
    ];
    let flags = flags
        .iter()
        .fold(0, |set, &(bit, is)| if is { set | bit } else { set });
    row.push(VERSION);
    row.extend_from_slice(&flags.to_le_bytes());
    row.extend_from_slice(&lease.fence.get().to_le_bytes());
    row.extend_from_slice(lease.token.as_bytes());
    row.extend_from_slice(&lease.ttl.as_millis().to_le_bytes());
    row.extend_from_slice(&lease.granted_at.as_micros().to_le_bytes());
    row.extend_from_slice(&lease.expires_at.as_micros().to_le_bytes());
    if let Some(slot) = lease.mode.slot() {
        row.extend_from_slice(&slot.to_le_bytes());
    }
    if let Some(end) = lease.hold_ends_at {
        row.extend_from_slice(&end.as_micros().to_le_bytes());
    }
    if let Some(owner) = &lease.owner {
        put_text(row, owner.as_str());
    }
    if !lease.metadata.is_empty() {
        let count = lease.metadata.stored().count();
        row.push(u8::try_from(count).expect("metadata has at most 16 entries, and a group"));
        for (name, value) in lease.metadata.stored() {
            put_text(row, name);
            put_text(row, value);
        }
    }
    if let Some(request) = &lease.request {
        put_text(row, request.by.as_deref().unwrap_or_default());
        put_text(row, request.reason.as_str());
        row.extend_from_slice(&request.until.as_micros().to_le_bytes());
    }
    if let Some(key) = &lease.key {
        row.extend_from_slice(key.idempotency.hash.as_bytes());
        row.extend_from_slice(key.idempotency.fingerprint.as_bytes());
        row.extend_from_slice(key.idempotency.salt.as_bytes());
    }
}

/// How many bytes the row of a lease takes.
pub(super) fn len_of_lease(name: &LockName, lease: &Lease) -> u64 {
    let owner = lease.owner.as_ref().map_or(0, |it| 2 + it.as_str().len());
    let metadata = lease.metadata.stored();
    let metadata: usize = metadata
        .map(|(name, value)| 4 + name.len() + value.len())
        .sum();
    let key = lease.key.as_ref().map_or(0, |key| {
        let Idempotency {
            hash,
            fingerprint,
            salt,
        } = &key.idempotency;
        hash.as_bytes().len() + fingerprint.as_bytes().len() + salt.as_bytes().len()
    });
    let request = lease.request.as_ref().map_or(0, |request| {
        4 + 8 + request.by.as_ref().map_or(0, |by| by.len()) + request.reason.as_str().len()
    });
    let fixed = 3 + 8 + lease.token.as_bytes().len() + 8 + 8 + 8;
    let optional =
        8 * usize::from(lease.hold_ends_at.is_some()) + usize::from(!lease.metadata.is_empty());
    let (fence_in_key, slot) = match lease.mode {
        Mode::Exclusive => (0, 0),
        Mode::Shared { slot } => (8, 2 * usize::from(slot.is_some())),
    };
    let value = fixed + slot + optional + owner + metadata + request + key;
    (ROW_HEADER + 1 + fence_in_key + name.as_str().len() + value) as u64
}

/// How many bytes the row of a tombstone takes.
pub(super) fn len_of_tombstone(tombstone: &Tombstone) -> u64 {
    (ROW_HEADER + tombstone.as_bytes().len() + 8) as u64
}

/// Reads the row of a lease.
pub(super) fn decode(row: &[u8]) -> Result<Lease, RowError> {
    let mut fields = Fields::of(row);
    let version = fields.byte()?;
    if version != VERSION {
        return Err(RowError::Version(version));
    }
    let flags = u16::from_le_bytes(fields.array()?);
    let is = |bit: u16| flags & bit != 0;
    let delivery = match (is(flag::KEY), is(flag::REPLAYED), is(flag::UNDELIVERED)) {
        (_, false, false) => LeaseDelivery::Once,
        (true, true, false) => LeaseDelivery::Again,
        (true, false, true) => LeaseDelivery::Never,
        (false, ..) | (true, true, true) => return Err(RowError::Invalid("set of flags")),
    };
    if is(flag::UNKNOWN) || is(flag::SLOT) && !is(flag::SHARED) {
        return Err(RowError::Invalid("set of flags"));
    }
    let lease = Lease {
        fence: FencingToken::new(fields.u64()?)
            .map_err(|_error| RowError::Invalid("fencing token"))?,
        token: TokenHash::from_bytes(fields.array()?),
        ttl: Ttl::from_millis(fields.u64()?).map_err(|_error| RowError::Invalid("TTL"))?,
        granted_at: Moment::from_micros(fields.i64()?),
        expires_at: Moment::from_micros(fields.i64()?),
        mode: if is(flag::SHARED) {
            let slot = is(flag::SLOT).then(|| slot(&mut fields));
            Mode::Shared {
                slot: slot.transpose()?,
            }
        } else {
            Mode::Exclusive
        },
        hold_ends_at: is(flag::HOLD_LIMIT)
            .then(|| fields.i64().map(Moment::from_micros))
            .transpose()?,
        owner: is(flag::OWNER).then(|| owner(&mut fields)).transpose()?,
        metadata: if is(flag::METADATA) {
            metadata(&mut fields)?
        } else {
            Metadata::default()
        },
        request: is(flag::REQUEST)
            .then(|| request(&mut fields).map(Box::new))
            .transpose()?,
        key: is(flag::KEY)
            .then(|| key(&mut fields, delivery).map(Box::new))
            .transpose()?,
        keeper: None,
    };
    fields.end()?;
    Ok(lease)
}

fn slot(fields: &mut Fields<'_>) -> Result<u16, RowError> {
    let slot = u16::from_le_bytes(fields.array()?);
    if slot < Limit::MAX {
        Ok(slot)
    } else {
        Err(RowError::Invalid("slot"))
    }
}

fn owner(fields: &mut Fields<'_>) -> Result<Owner, RowError> {
    Owner::new(fields.text("owner")?).map_err(|_error| RowError::Invalid("owner"))
}

fn metadata(fields: &mut Fields<'_>) -> Result<Metadata, RowError> {
    const WHAT: &str = "metadata";
    let count = fields.byte()?;
    let mut entries = BTreeMap::new();
    for _ in 0..count {
        let name = fields.text(WHAT)?.to_owned();
        entries.insert(name, fields.text(WHAT)?.to_owned());
    }
    if count == 0 || entries.len() != usize::from(count) {
        return Err(RowError::Invalid(WHAT));
    }
    Metadata::from_stored(entries).map_err(|_error| RowError::Invalid(WHAT))
}

fn request(fields: &mut Fields<'_>) -> Result<LeaseRequest, RowError> {
    const WHAT: &str = "request to release";
    let by = fields.text(WHAT)?;
    Ok(LeaseRequest {
        by: (!by.is_empty()).then(|| by.into()),
        reason: Reason::new(fields.text(WHAT)?).map_err(|_error| RowError::Invalid(WHAT))?,
        until: Moment::from_micros(fields.i64()?),
    })
}

fn key(fields: &mut Fields<'_>, delivery: LeaseDelivery) -> Result<LeaseKey, RowError> {
    Ok(LeaseKey {
        idempotency: Idempotency {
            hash: IdempotencyHash::from_bytes(fields.array()?),
            fingerprint: Fingerprint::from_bytes(fields.array()?),
            salt: Salt::from_bytes(fields.array()?),
        },
        delivery,
        queued_since: None,
    })
}

// === Meta ===

/// What a transaction says of the whole store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meta {
    /// The highest fencing token that was ever granted.
    pub(super) fence: u64,
    /// The boot that every moment counts from.
    pub(super) boot: BootId,
    /// When the transaction was written.
    pub(super) written_at: Moment,
    /// How many rows there are.
    pub(super) rows: u64,
}

// === impl Meta ===

impl Meta {
    /// Appends it to a record.
    pub(super) fn encode(&self, record: &mut Vec<u8>) {
        record.extend_from_slice(&self.fence.to_le_bytes());
        record.extend_from_slice(&self.written_at.as_micros().to_le_bytes());
        record.extend_from_slice(&self.rows.to_le_bytes());
        put_text(record, self.boot.as_str());
    }

    /// Reads it from a record.
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Self, RowError> {
        Ok(Self {
            fence: fields.u64()?,
            written_at: Moment::from_micros(fields.i64()?),
            rows: fields.u64()?,
            boot: BootId::new(fields.text("boot id")?),
        })
    }
}

// === Field ===
//
// Reads the fields of a row, one after the other.

/// What is left of a row.
#[derive(Debug)]
pub(super) struct Fields<'row>(&'row [u8]);

/// The row was not written by this version, or not by us, or is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RowError {
    /// It ends before its last field.
    #[error("is cut short")]
    CutShort,
    /// It goes on behind its last field.
    #[error("has bytes behind its last field")]
    TooLong,
    /// It begins with a version that we do not know.
    #[error("has the layout version {0}, which this program does not know")]
    Version(u8),
    /// A field holds what it cannot hold.
    #[error("holds no valid {0}")]
    Invalid(&'static str),
}

// === impl Fields ===

impl<'row> Fields<'row> {
    /// Begins with the first field.
    pub(super) fn of(row: &'row [u8]) -> Self {
        Self(row)
    }

    /// The next bytes, as many as the array has.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], RowError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(RowError::CutShort)?;
        self.0 = rest;
        Ok(*array)
    }

    /// The next byte.
    pub(super) fn byte(&mut self) -> Result<u8, RowError> {
        self.array().map(u8::from_le_bytes)
    }

    /// The next 64-bit number.
    pub(super) fn u64(&mut self) -> Result<u64, RowError> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next 64-bit number with a sign.
    pub(super) fn i64(&mut self) -> Result<i64, RowError> {
        self.array().map(i64::from_le_bytes)
    }

    /// The next text, with its length before it.
    pub(super) fn text(&mut self, what: &'static str) -> Result<&'row str, RowError> {
        let len = usize::from(u16::from_le_bytes(self.array()?));
        let text = self.bytes(len)?;
        std::str::from_utf8(text).map_err(|_not_utf8| RowError::Invalid(what))
    }

    /// The next row of a record: its key, and its value if it is not removed.
    pub(super) fn row(&mut self) -> Result<(&'row [u8], Option<&'row [u8]>), RowError> {
        let key_len = u16::from_le_bytes(self.array()?);
        let value_len = u32::from_le_bytes(self.array()?);
        let key = self.bytes(usize::from(key_len))?;
        if value_len == REMOVED {
            return Ok((key, None));
        }
        let len = usize::try_from(value_len).map_err(|_beyond| RowError::CutShort)?;
        Ok((key, Some(self.bytes(len)?)))
    }

    fn bytes(&mut self, len: usize) -> Result<&'row [u8], RowError> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(RowError::CutShort)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// There must be no more.
    pub(super) fn end(self) -> Result<(), RowError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(RowError::TooLong)
        }
    }
}

/// Writes a text that [`Fields::text`] reads.
pub(super) fn put_text(row: &mut Vec<u8>, text: &str) {
    let len = u16::try_from(text.len()).expect("owners and metadata are shorter than 64 KiB");
    row.extend_from_slice(&len.to_le_bytes());
    row.extend_from_slice(text.as_bytes());
}
