//! Decoding of a row: its fields are read one after the other.

/// The bytes of a row that were not read yet.
#[derive(Debug)]
pub(crate) struct Fields<'row>(&'row [u8]);

/// A row that cannot be decoded: damaged, or written by another version or program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RowError {
    /// The row ends before its last field.
    #[error("is cut short")]
    CutShort,
    /// The row has bytes behind its last field.
    #[error("has bytes behind its last field")]
    TooLong,
    /// The row begins with an unknown version.
    #[error("has the layout version {0}, which this program does not know")]
    Version(u8),
    /// A field has a value that is not valid for it.
    #[error("holds no valid {0}")]
    Invalid(&'static str),
}

/// Length of a row's header: the lengths of its key and of its value.
pub(super) const ROW_HEADER: usize = 2 + 4;
/// Marks a removed row, instead of the length of its value.
pub(super) const REMOVED: u32 = u32::MAX;

// === impl Fields ===

impl<'row> Fields<'row> {
    /// Starts at the first field of a row.
    pub(crate) fn new(row: &'row [u8]) -> Self {
        Self(row)
    }

    /// Reads the next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], RowError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(RowError::CutShort)?;
        self.0 = rest;
        Ok(*array)
    }

    /// Reads the next byte.
    pub(crate) fn byte(&mut self) -> Result<u8, RowError> {
        self.array().map(u8::from_le_bytes)
    }

    /// Reads the next 64-bit number.
    pub(crate) fn u64(&mut self) -> Result<u64, RowError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads the next signed 64-bit number.
    pub(crate) fn i64(&mut self) -> Result<i64, RowError> {
        self.array().map(i64::from_le_bytes)
    }

    /// Reads the next text, whose length precedes it; `what` names the field in an error.
    pub(crate) fn text(&mut self, what: &'static str) -> Result<&'row str, RowError> {
        let len = usize::from(u16::from_le_bytes(self.array()?));
        let text = self.bytes(len)?;
        std::str::from_utf8(text).map_err(|_not_utf8| RowError::Invalid(what))
    }

    /// Reads the next row of a record: its key, and its value unless the row is removed.
    pub(crate) fn row(&mut self) -> Result<(&'row [u8], Option<&'row [u8]>), RowError> {
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

    /// Fails if bytes are left behind the last field.
    pub(crate) fn end(self) -> Result<(), RowError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(RowError::TooLong)
        }
    }
}

/// Writes a text in the format that [`Fields::text`] reads.
pub(super) fn put_text(put: &mut impl FnMut(&[u8]), text: &str) {
    let len = u16::try_from(text.len()).expect("owners and metadata are shorter than 64 KiB");
    put(&len.to_le_bytes());
    put(text.as_bytes());
}
