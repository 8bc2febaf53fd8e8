//! Fields of a row, which are read one after the other.

/// What is left of a row.
#[derive(Debug)]
pub(crate) struct Fields<'row>(&'row [u8]);

/// The row was not written by this version, or not by us, or is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RowError {
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

/// The lengths of a key and of a value.
pub(super) const ROW_HEADER: usize = 2 + 4;
/// Instead of the length of a value: the row is removed.
pub(super) const REMOVED: u32 = u32::MAX;

// === impl Fields ===

impl<'row> Fields<'row> {
    /// Begins with the first field.
    pub(crate) fn of(row: &'row [u8]) -> Self {
        Self(row)
    }

    /// The next bytes, as many as the array has.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], RowError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(RowError::CutShort)?;
        self.0 = rest;
        Ok(*array)
    }

    /// The next byte.
    pub(crate) fn byte(&mut self) -> Result<u8, RowError> {
        self.array().map(u8::from_le_bytes)
    }

    /// The next 64-bit number.
    pub(crate) fn u64(&mut self) -> Result<u64, RowError> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next 64-bit number with a sign.
    pub(crate) fn i64(&mut self) -> Result<i64, RowError> {
        self.array().map(i64::from_le_bytes)
    }

    /// The next text, with its length before it.
    pub(crate) fn text(&mut self, what: &'static str) -> Result<&'row str, RowError> {
        let len = usize::from(u16::from_le_bytes(self.array()?));
        let text = self.bytes(len)?;
        std::str::from_utf8(text).map_err(|_not_utf8| RowError::Invalid(what))
    }

    /// The next row of a record: its key, and its value if it is not removed.
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

    /// There must be no more.
    pub(crate) fn end(self) -> Result<(), RowError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(RowError::TooLong)
        }
    }
}

/// Writes a text that [`Fields::text`] reads.
pub(super) fn put_text(put: &mut impl FnMut(&[u8]), text: &str) {
    let len = u16::try_from(text.len()).expect("owners and metadata are shorter than 64 KiB");
    put(&len.to_le_bytes());
    put(text.as_bytes());
}
