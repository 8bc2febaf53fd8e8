//! The stored row of a lease: its encoding, decoding and length.

use std::collections::BTreeMap;

use crate::{
    lock::{
        FencingToken, Fingerprint, IdempotencyHash, Limit, LockName, Mode, Owner, Reason, Said,
        Salt, TokenHash, Ttl,
    },
    store::{
        contract::Idempotency,
        embedded::state::{Lease, LeaseDelivery, LeaseEnds, LeaseKey, LeaseRequest, Moment, Rest},
    },
};

use super::{
    fields::{Fields, ROW_HEADER, RowError, put_text},
    keys::RowKey,
};

/// The version of a lease's row that this program writes, and the only version that it reads.
const VERSION: u8 = 1;

/// Bits of the flags in a lease's row: which optional fields follow, which callers know of the lease, and whether the
/// lease is shared.
mod flag {
    pub(crate) const HOLD_LIMIT: u16 = 1;
    pub(crate) const OWNER: u16 = 1 << 1;
    pub(crate) const METADATA: u16 = 1 << 2;
    pub(crate) const KEY: u16 = 1 << 3;
    pub(crate) const REPLAYED: u16 = 1 << 4;
    pub(crate) const UNDELIVERED: u16 = 1 << 5;
    pub(crate) const SHARED: u16 = 1 << 6;
    pub(crate) const SLOT: u16 = 1 << 7;
    pub(crate) const REQUEST: u16 = 1 << 8;
    pub(crate) const RESTS_UNTIL: u16 = 1 << 9;
    pub(crate) const RESTS_NOW: u16 = 1 << 10;
    /// The bits of the flags without a meaning, which must not be set.
    pub(crate) const UNKNOWN: u16 = !((1 << 11) - 1);
}

/// Appends the encoded row of a lease to a buffer.
pub(crate) fn encode(lease: &Lease, row: &mut Vec<u8>) {
    write(lease, &mut |bytes| row.extend_from_slice(bytes));
}

fn write(lease: &Lease, put: &mut impl FnMut(&[u8])) {
    let hold_ends_at = lease.hold_ends_at();
    let ours = lease.said.ours(lease.reservation());
    let entries = || lease.said.stored(ours.as_ref());
    let entry_count = u8::try_from(entries().count());
    let entry_count = entry_count.expect("metadata has at most 16 entries, and one of ours");
    let flags = [
        (flag::HOLD_LIMIT, hold_ends_at.is_some()),
        (flag::OWNER, lease.said.owner.is_some()),
        (flag::METADATA, entry_count > 0),
        (flag::KEY, lease.key.is_some()),
        (flag::REPLAYED, lease.was_replayed()),
        (flag::UNDELIVERED, lease.is_undelivered()),
        (flag::SHARED, lease.mode.is_shared()),
        (flag::SLOT, lease.mode.slot().is_some()),
        (flag::REQUEST, lease.request.is_some()),
        (flag::RESTS_UNTIL, matches!(lease.rests, Rest::Until(_))),
        (flag::RESTS_NOW, lease.rests == Rest::Now),
    ];
    let flags = flags.into_iter().filter(|(_, is)| *is);
    let flags = flags.fold(0, |set, (bit, _)| set | bit);
    put(&[VERSION]);
    put(&flags.to_le_bytes());
    put(&lease.fence.get().to_le_bytes());
    put(lease.token.as_bytes());
    put(&lease.ttl.as_millis().to_le_bytes());
    put(&lease.granted_at.as_micros().to_le_bytes());
    put(&lease.expires_at.as_micros().to_le_bytes());
    if let Some(slot) = lease.mode.slot() {
        put(&slot.to_le_bytes());
    }
    if let Some(end) = hold_ends_at {
        put(&end.as_micros().to_le_bytes());
    }
    if let Rest::Until(until) = lease.rests {
        put(&until.as_micros().to_le_bytes());
    }
    if let Some(owner) = &lease.said.owner {
        put_text(put, owner.as_str());
    }
    if entry_count > 0 {
        put(&[entry_count]);
        for (name, value) in entries() {
            put_text(put, name);
            put_text(put, value);
        }
    }
    if let Some(request) = &lease.request {
        put_text(put, request.by.as_deref().unwrap_or_default());
        put_text(put, request.reason.as_str());
        put(&request.until.as_micros().to_le_bytes());
    }
    if let Some(key) = &lease.key {
        put(key.idempotency.hash.as_bytes());
        put(key.idempotency.fingerprint.as_bytes());
        put(key.idempotency.salt.as_bytes());
    }
}

/// How many bytes the row of a lease takes in the log.
pub(crate) fn len_of_lease(name: &LockName, lease: &Lease) -> u64 {
    let mut len = ROW_HEADER + RowKey::lease(name, lease.row()).as_bytes().len();
    write(lease, &mut |bytes| len += bytes.len());
    len as u64
}

/// Decodes the row of a lease.
pub(crate) fn decode(row: &[u8]) -> Result<Lease, RowError> {
    let mut fields = Fields::new(row);
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
    let rests_twice = is(flag::RESTS_UNTIL) && is(flag::RESTS_NOW);
    if is(flag::UNKNOWN) || rests_twice || is(flag::SLOT) && !is(flag::SHARED) {
        return Err(RowError::Invalid("set of flags"));
    }
    let fence =
        FencingToken::new(fields.u64()?).map_err(|_error| RowError::Invalid("fencing token"))?;
    let token = TokenHash::from_bytes(fields.array()?);
    let ttl = Ttl::from_millis(fields.u64()?).map_err(|_error| RowError::Invalid("TTL"))?;
    let granted_at = Moment::from_micros(fields.i64()?);
    let expires_at = Moment::from_micros(fields.i64()?);
    let mode = if is(flag::SHARED) {
        let slot = is(flag::SLOT).then(|| slot(&mut fields));
        Mode::Shared {
            slot: slot.transpose()?,
        }
    } else {
        Mode::Exclusive
    };
    let hold_ends_at = is(flag::HOLD_LIMIT)
        .then(|| fields.i64().map(Moment::from_micros))
        .transpose()?;
    let rests = if is(flag::RESTS_UNTIL) {
        Rest::Until(Moment::from_micros(fields.i64()?))
    } else if is(flag::RESTS_NOW) {
        Rest::Now
    } else {
        Rest::Never
    };
    let owner = is(flag::OWNER).then(|| owner(&mut fields)).transpose()?;
    let entries = is(flag::METADATA)
        .then(|| entries(&mut fields))
        .transpose()?;
    let (said, reservation) = Said::from_stored(owner, entries.unwrap_or_default())
        .map_err(|_error| RowError::Invalid(METADATA))?;
    let ends = match (reservation, hold_ends_at) {
        (Some(reservation), Some(end)) => LeaseEnds::At(Box::new(reservation), end),
        (Some(_), None) => return Err(RowError::Invalid("reservation")),
        (None, hold_ends_at) => LeaseEnds::Ttl(hold_ends_at),
    };
    let request = is(flag::REQUEST)
        .then(|| request(&mut fields).map(Box::new))
        .transpose()?;
    let key = is(flag::KEY)
        .then(|| key(&mut fields, delivery).map(Box::new))
        .transpose()?;
    fields.end()?;
    Ok(Lease {
        fence,
        mode,
        token,
        ttl,
        granted_at,
        expires_at,
        ends,
        rests,
        said,
        key,
        request,
        recipient: None,
    })
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

/// The name of the metadata field in the error for a row that cannot be read.
const METADATA: &str = "metadata";

fn entries(fields: &mut Fields<'_>) -> Result<BTreeMap<String, String>, RowError> {
    let count = fields.byte()?;
    let mut entries = BTreeMap::new();
    for _ in 0..count {
        let name = fields.text(METADATA)?.to_owned();
        entries.insert(name, fields.text(METADATA)?.to_owned());
    }
    if count == 0 || entries.len() != usize::from(count) {
        return Err(RowError::Invalid(METADATA));
    }
    Ok(entries)
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
