//! What is to be written to the file.

use std::{borrow::Borrow, collections::BTreeMap, ops::Range, sync::Arc};

use crate::{
    clock::BootId,
    lock::{
        FencingToken, Fingerprint, IdempotencyHash, LockName, Metadata, Owner, Salt, TokenHash, Ttl,
    },
    store::contract::Idempotency,
};

use super::lease::{Lease, LeaseDelivery, LeaseKey, Moment};

/// Rows to write and to remove, in one piece of memory.
#[derive(Debug, Default)]
pub(super) struct Rows {
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    key: Range<usize>,
    /// `None` removes the row.
    value: Option<Range<usize>>,
}

// === impl Rows ===

impl Rows {
    /// Writes the row of a lease.
    pub(super) fn lease(&mut self, name: &LockName, lease: &Lease) {
        let key = RowKey::lease(name, lease.fence);
        self.put(key.as_bytes(), |row| encode(lease, row));
    }

    /// Removes the row of a lease.
    pub(super) fn no_lease(&mut self, name: &LockName, fence: FencingToken) {
        self.remove(RowKey::lease(name, fence).as_bytes());
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

    /// Writes the row about the file itself.
    pub(super) fn meta(&mut self, meta: &Meta) {
        self.put(RowKey::META, |row| meta.encode(row));
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Key and value of each row; no value: to be removed.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.rows.iter().map(|row| {
            let value = row.value.clone().map(|value| &self.bytes[value]);
            (&self.bytes[row.key.clone()], value)
        })
    }

    fn put(&mut self, key: &[u8], encode: impl FnOnce(&mut Vec<u8>)) {
        let range = self.append(key);
        let start = self.bytes.len();
        encode(&mut self.bytes);
        seal(key, &mut self.bytes, start);
        self.rows.push(Row {
            key: range,
            value: Some(start..self.bytes.len()),
        });
    }

    fn remove(&mut self, key: &[u8]) {
        let key = self.append(key);
        self.rows.push(Row { key, value: None });
    }

    fn append(&mut self, key: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        start..self.bytes.len()
    }
}

// === Row key ===
//
// The key of a row in the file.

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

// === Lease row ===
//
// The row of a lease.

/// The version that this program writes, and the only one it reads.
const VERSION: u8 = 1;

/// Which optional fields follow, and who was told. Other bits are refused.
mod flag {
    pub(super) const HOLD_LIMIT: u8 = 1;
    pub(super) const OWNER: u8 = 1 << 1;
    pub(super) const METADATA: u8 = 1 << 2;
    pub(super) const KEY: u8 = 1 << 3;
    pub(super) const REPLAYED: u8 = 1 << 4;
    pub(super) const UNDELIVERED: u8 = 1 << 5;
    pub(super) const ALL: u8 = HOLD_LIMIT | OWNER | METADATA | KEY | REPLAYED | UNDELIVERED;
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
    ];
    let flags = flags
        .iter()
        .fold(0, |set, &(bit, is)| if is { set | bit } else { set });
    row.extend_from_slice(&[VERSION, flags]);
    row.extend_from_slice(&lease.fence.get().to_le_bytes());
    row.extend_from_slice(lease.token.as_bytes());
    row.extend_from_slice(&lease.ttl.as_millis().to_le_bytes());
    row.extend_from_slice(&lease.granted_at.as_micros().to_le_bytes());
    row.extend_from_slice(&lease.expires_at.as_micros().to_le_bytes());
    if let Some(end) = lease.hold_ends_at {
        row.extend_from_slice(&end.as_micros().to_le_bytes());
    }
    if let Some(owner) = &lease.owner {
        put_text(row, owner.as_str());
    }
    if !lease.metadata.is_empty() {
        let count = lease.metadata.iter().count();
        row.push(u8::try_from(count).expect("metadata has at most 16 entries"));
        for (name, value) in lease.metadata.iter() {
            put_text(row, name);
            put_text(row, value);
        }
    }
    if let Some(key) = &lease.key {
        row.extend_from_slice(key.idempotency.hash.as_bytes());
        row.extend_from_slice(key.idempotency.fingerprint.as_bytes());
        row.extend_from_slice(key.idempotency.salt.as_bytes());
    }
}

/// Reads the row of a lease.
pub(super) fn decode(row: &[u8]) -> Result<Lease, RowError> {
    let mut fields = Fields::of(row);
    let version = fields.byte()?;
    if version != VERSION {
        return Err(RowError::Version(version));
    }
    let flags = fields.byte()?;
    let is = |bit| flags & bit != 0;
    let delivery = match (is(flag::KEY), is(flag::REPLAYED), is(flag::UNDELIVERED)) {
        (_, false, false) => LeaseDelivery::Once,
        (true, true, false) => LeaseDelivery::Again,
        (true, false, true) => LeaseDelivery::Never,
        (false, ..) | (true, true, true) => return Err(RowError::Invalid("set of flags")),
    };
    if flags & !flag::ALL != 0 {
        return Err(RowError::Invalid("set of flags"));
    }
    let lease = Lease {
        fence: FencingToken::new(fields.u64()?)
            .map_err(|_error| RowError::Invalid("fencing token"))?,
        token: TokenHash::from_bytes(fields.array()?),
        ttl: Ttl::from_millis(fields.u64()?).map_err(|_error| RowError::Invalid("TTL"))?,
        granted_at: Moment::from_micros(fields.i64()?),
        expires_at: Moment::from_micros(fields.i64()?),
        hold_ends_at: is(flag::HOLD_LIMIT)
            .then(|| fields.i64().map(Moment::from_micros))
            .transpose()?,
        owner: is(flag::OWNER).then(|| owner(&mut fields)).transpose()?,
        metadata: if is(flag::METADATA) {
            metadata(&mut fields)?
        } else {
            Metadata::default()
        },
        key: is(flag::KEY)
            .then(|| key(&mut fields, delivery).map(Box::new))
            .transpose()?,
        keeper: None,
    };
    fields.end()?;
    Ok(lease)
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
    Metadata::new(entries).map_err(|_error| RowError::Invalid(WHAT))
}

fn key(fields: &mut Fields<'_>, delivery: LeaseDelivery) -> Result<LeaseKey, RowError> {
    Ok(LeaseKey {
        idempotency: Idempotency {
            hash: IdempotencyHash::from_bytes(fields.array()?),
            fingerprint: Fingerprint::from_bytes(fields.array()?),
            salt: Salt::from_bytes(fields.array()?),
        },
        delivery,
    })
}

// === Meta ===
//
// The one row about the file itself.

/// What the file says of itself. Written in every transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meta {
    /// The number of the last transaction: which of our batches are in the file.
    pub(super) sequence: u64,
    /// The highest fencing token that was ever granted.
    pub(super) fence: u64,
    /// The boot that every moment in the file counts from.
    pub(super) boot: BootId,
    /// When the last transaction was written.
    pub(super) written_at: Moment,
    /// How many rows there are besides this one.
    pub(super) rows: u64,
}

// === impl Meta ===

impl Meta {
    /// The layout of the whole file that this program reads and writes.
    pub(super) const LAYOUT: u8 = 1;

    /// Appends the row.
    pub(super) fn encode(&self, row: &mut Vec<u8>) {
        row.push(Self::LAYOUT);
        row.extend_from_slice(&self.sequence.to_le_bytes());
        row.extend_from_slice(&self.fence.to_le_bytes());
        row.extend_from_slice(&self.written_at.as_micros().to_le_bytes());
        row.extend_from_slice(&self.rows.to_le_bytes());
        put_text(row, self.boot.as_str());
    }

    /// Whether the file has the layout that this program knows.
    pub(super) fn check_layout(row: &[u8]) -> Result<(), RowError> {
        match Fields::of(row).byte()? {
            Self::LAYOUT => Ok(()),
            other => Err(RowError::Version(other)),
        }
    }

    /// Reads the row.
    pub(super) fn decode(row: &[u8]) -> Result<Self, RowError> {
        Self::check_layout(row)?;
        let mut fields = Fields::of(row);
        fields.byte()?;
        let meta = Self {
            sequence: fields.u64()?,
            fence: fields.u64()?,
            written_at: Moment::from_micros(fields.i64()?),
            rows: fields.u64()?,
            boot: BootId::new(fields.text("boot id")?),
        };
        fields.end()?;
        Ok(meta)
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
        let (text, rest) = self.0.split_at_checked(len).ok_or(RowError::CutShort)?;
        self.0 = rest;
        std::str::from_utf8(text).map_err(|_not_utf8| RowError::Invalid(what))
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

// === Seal ===
//
// A checksum over key and value that ends every row.
//
// The database checks its pages only after a crash. Without this a damaged byte in a file that was
// closed in good order would be a lock that nobody holds any more.

/// How many bytes a row grows by.
const LEN: usize = 4;

/// Ends a value.
pub(super) fn seal(key: &[u8], value: &mut Vec<u8>, start: usize) {
    let sum = checksum(key, &value[start..]);
    value.extend_from_slice(&sum.to_le_bytes());
}

/// Takes the end off a value and checks it.
pub(super) fn unseal<'row>(key: &[u8], value: &'row [u8]) -> Result<&'row [u8], RowError> {
    let (value, sum) = value.split_last_chunk::<LEN>().ok_or(RowError::CutShort)?;
    if u32::from_le_bytes(*sum) == checksum(key, value) {
        Ok(value)
    } else {
        Err(RowError::Invalid("checksum"))
    }
}

/// FNV-1a of 32 bits: stable for ever, and finds every row of which one byte has changed.
fn checksum(key: &[u8], value: &[u8]) -> u32 {
    let bytes = key.iter().chain(value);
    bytes.fold(0x811c_9dc5, |sum: u32, byte| {
        (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}
