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
}

// === impl Meta ===

impl Meta {
    /// The layout of the whole file that this program reads and writes.
    pub(super) const LAYOUT: u8 = 1;

    /// The row.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut row = vec![Self::LAYOUT];
        row.extend_from_slice(&self.sequence.to_le_bytes());
        row.extend_from_slice(&self.fence.to_le_bytes());
        row.extend_from_slice(&self.written_at.as_micros().to_le_bytes());
        put_text(&mut row, self.boot.as_str());
        row
    }

    /// Reads the row.
    pub(super) fn decode(row: &[u8]) -> Result<Self, RowError> {
        let mut fields = Fields::of(row);
        let layout = fields.byte()?;
        if layout != Self::LAYOUT {
            return Err(RowError::Version(layout));
        }
        let meta = Self {
            sequence: fields.u64()?,
            fence: fields.u64()?,
            written_at: Moment::from_micros(fields.i64()?),
            boot: BootId::new(fields.text("boot id")?),
        };
        fields.end()?;
        Ok(meta)
    }
}
