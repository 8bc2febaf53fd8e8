//! A checksum over key and value that ends every row.
//!
//! The database checks its pages only after a crash. Without this a damaged byte in a file that was
//! closed in good order would be a lock that nobody holds any more.

use super::field::RowError;

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
