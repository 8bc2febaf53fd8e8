//! The one row about the file itself.

use crate::clock::BootId;

use super::{
    field::{Fields, RowError, put_text},
    moment::Moment,
};

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
