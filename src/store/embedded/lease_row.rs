//! The row of a lease.

use std::collections::BTreeMap;

use crate::{
    lock::{FencingToken, Fingerprint, IdempotencyHash, Metadata, Owner, Salt, TokenHash, Ttl},
    store::contract::Idempotency,
};

use super::{
    field::{Fields, RowError, put_text},
    lease::{Lease, LeaseDelivery, LeaseKey},
    moment::Moment,
};

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
