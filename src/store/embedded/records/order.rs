//! The stored row of a tombstone; that of a lock's order is a tombstone which also says what the lock remembers.

use crate::{
    lock::{OrderNumber, Owner, TokenHash},
    store::embedded::state::{HighestOrder, Memory, Moment, OrderedGrant},
};

use super::{
    fields::{Fields, ROW_HEADER, RowError, put_text},
    keys::Tombstone,
};

/// The version of an order's row that this program writes, and the only version that it reads.
const VERSION: u8 = 1;

/// Bits of the flags in an order's row: which fields follow.
const PREVIOUS: u8 = 1;
const GRANT: u8 = 1 << 1;

/// The name of the row in the error for a row that cannot be read.
const ORDER: &str = "order";

pub(super) fn write(memory: &Memory, put: &mut impl FnMut(&[u8])) {
    put(&memory.until.as_micros().to_le_bytes());
    let Some(order) = &memory.order else {
        return;
    };
    let previous = order.previous.map_or(0, |_| PREVIOUS);
    let grant = order.grant.as_ref().map_or(0, |_| GRANT);
    put(&[VERSION, previous | grant]);
    put(&order.number.get().to_le_bytes());
    if let Some(previous) = order.previous {
        put(&previous.get().to_le_bytes());
    }
    if let Some(grant) = &order.grant {
        put(grant.token.as_bytes());
        put(&grant.at.to_le_bytes());
        put_text(put, grant.by.as_deref().unwrap_or_default());
        put_text(put, grant.owner.as_ref().map_or("", Owner::as_str));
    }
}

/// How many bytes the row of a tombstone takes in the log.
pub(crate) fn len_of_tombstone(tombstone: &Tombstone, memory: &Memory) -> u64 {
    let mut len = ROW_HEADER + tombstone.as_bytes().len();
    write(memory, &mut |bytes| len += bytes.len());
    len as u64
}

/// Decodes the row of a tombstone.
pub(crate) fn decode_memory(tombstone: &Tombstone, row: &[u8]) -> Result<Memory, RowError> {
    let mut fields = Fields::new(row);
    let until = Moment::from_micros(fields.i64()?);
    let order = tombstone.is_of_order().then(|| order(&mut fields));
    let order = order.transpose()?.map(Box::new);
    fields.end()?;
    Ok(Memory { until, order })
}

fn order(fields: &mut Fields<'_>) -> Result<HighestOrder, RowError> {
    let version = fields.byte()?;
    if version != VERSION {
        return Err(RowError::Version(version));
    }
    let flags = fields.byte()?;
    if flags & !(PREVIOUS | GRANT) != 0 {
        return Err(RowError::Invalid("set of flags"));
    }
    Ok(HighestOrder {
        number: number(fields)?,
        previous: (flags & PREVIOUS != 0)
            .then(|| number(fields))
            .transpose()?,
        grant: (flags & GRANT != 0).then(|| grant(fields)).transpose()?,
    })
}

fn number(fields: &mut Fields<'_>) -> Result<OrderNumber, RowError> {
    OrderNumber::new(fields.u64()?).map_err(|_error| RowError::Invalid(ORDER))
}

fn grant(fields: &mut Fields<'_>) -> Result<OrderedGrant, RowError> {
    let (token, at) = (TokenHash::from_bytes(fields.array()?), fields.i64()?);
    let (by, owner) = (fields.text(ORDER)?, fields.text(ORDER)?);
    let owner = (!owner.is_empty()).then(|| Owner::new(owner));
    Ok(OrderedGrant {
        token,
        at,
        by: (!by.is_empty()).then(|| by.into()),
        owner: (owner.transpose()).map_err(|_error| RowError::Invalid(ORDER))?,
    })
}
