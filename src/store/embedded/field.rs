//! Reads the fields of a row, one after the other.

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
