//! Layout of a log file: how records are written, and which records are accepted when the file is read.
//!
//! File: header of [`HEADER`] bytes, records, zeros. Record: salt of the file, length, CRC-32, [`Meta`], rows, zeros
//! up to a multiple of eight bytes, and a last byte that is not zero.

use std::io;

use crate::store::embedded::records::{Meta, RowError, Rows};

/// The first bytes of every log file.
const MAGIC: [u8; 8] = *b"latchlog";
/// The layout version that this program reads and writes.
pub(crate) const LAYOUT: u32 = 2;
/// Length of a log file's header: magic, layout, salt, the checksum of these, [`MARK`] and [`REACHED`].
const HEADER: usize = 40;
/// Offset of the kind of the file in a log file's header: zero, or [`IS_BACKUP`].
const MARK: usize = 20;
/// Mark in the header of a backup. After the backup was made, the store may have granted larger fencing tokens.
const IS_BACKUP: u32 = 0x7075_6b62;
/// Offset in a log file's header of the length that the log has certainly reached: zero, or the length, its checksum
/// and four bytes that are zero. The length is written when the log is closed in good order. The field is shorter than
/// a sector, so it is written whole or not at all. If the last record ends before this length, the disk has lost
/// records.
pub(crate) const REACHED: usize = 24;
/// Length of a record's header: salt, length and checksum.
pub(crate) const RECORD_HEADER: usize = 12;
pub(crate) const ALIGNMENT: usize = 8;
/// The smallest unit in which a file system allocates space.
pub(crate) const BLOCK: usize = 4096;
/// The last byte of a record: a record whose last bytes were not written is not accepted as whole.
const LAST_BYTE: u8 = 0xff;

/// A defect of a log file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// The operating system reported an error at reading the file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file does not begin as a log file does.
    #[error("it does not begin as a log does")]
    NoLog,
    /// The file was written by another version of this program.
    #[error("it has the layout version {0}, which this program does not know")]
    Layout(u32),
    /// The log file ends where more bytes must follow.
    #[error("it is cut short")]
    CutShort,
    /// The log file has no records, or ends before the length that the log has reached.
    #[error("records are missing behind byte {0}")]
    Gap(usize),
    /// The bytes behind the last whole record of the log file are not what an unfinished write leaves.
    #[error("it is damaged at byte {0}: an unfinished write does not leave what is there")]
    Damaged(usize),
    /// A row in a record of the log cannot be decoded.
    #[error("the row {key:?} {error}")]
    Row { key: String, error: RowError },
    /// The log has fewer or more rows than its last record says.
    #[error("it holds {found} rows instead of {expected}")]
    Count { found: u64, expected: u64 },
}

// === Writing ===

/// A random number that almost certainly no other log file of this directory has. Without this salt, old bytes of
/// another log file could be taken for a record.
pub(crate) fn new_salt() -> u32 {
    let random = getrandom::u32().expect("the operating system gives random numbers");
    random.max(1)
}

pub(crate) fn header(salt: u32) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&LAYOUT.to_le_bytes());
    bytes.extend_from_slice(&salt.to_le_bytes());
    let sum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.resize(HEADER, 0);
    bytes
}

pub(crate) fn reached(salt: u32, end: u64) -> [u8; HEADER - REACHED] {
    let mut bytes = [0; HEADER - REACHED];
    bytes[..8].copy_from_slice(&end.to_le_bytes());
    let mut sum = crc32fast::Hasher::new();
    sum.update(&salt.to_le_bytes());
    sum.update(&bytes[..8]);
    bytes[8..12].copy_from_slice(&sum.finalize().to_le_bytes());
    bytes
}

/// Marks a log file of this length as a backup, in its header.
pub(crate) fn mark_backup(bytes: &mut [u8], salt: u32, end: u64) {
    bytes[MARK..REACHED].copy_from_slice(&IS_BACKUP.to_le_bytes());
    bytes[REACHED..HEADER].copy_from_slice(&reached(salt, end));
}

pub(crate) fn append_record(bytes: &mut Vec<u8>, salt: u32, meta: &Meta, rows: &Rows) {
    let start = bytes.len();
    bytes.extend_from_slice(&salt.to_le_bytes());
    bytes.extend_from_slice(&[0; RECORD_HEADER - 4]);
    meta.encode(bytes);
    bytes.extend_from_slice(&rows.len().to_le_bytes());
    bytes.extend_from_slice(rows.as_bytes());
    finish_record(bytes, start);
}

/// Pads a record of the log, and fills in its length and checksum.
fn finish_record(bytes: &mut Vec<u8>, start: usize) {
    let len = (bytes.len() - start + 1).next_multiple_of(ALIGNMENT);
    bytes.resize(start + len - 1, 0);
    bytes.push(LAST_BYTE);
    let record = &mut bytes[start..];
    let len = u32::try_from(len).expect("a transaction is shorter than 4 GiB");
    record[4..8].copy_from_slice(&len.to_le_bytes());
    let sum = record_checksum(record);
    record[8..12].copy_from_slice(&sum.to_le_bytes());
}

/// The checksum of a record of the log over all of its bytes except the checksum itself.
fn record_checksum(record: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&record[..8]);
    sum.update(&record[RECORD_HEADER..]);
    sum.finalize()
}

// === Reading ===

/// A log file that was read, split into its records.
#[derive(Debug)]
pub(crate) struct ParsedLog<'bytes> {
    pub(crate) records: Vec<&'bytes [u8]>,
    /// Whether only zeros follow the last record of the log file.
    pub(crate) is_clean: bool,
    pub(crate) is_backup: bool,
}

// === impl ParsedLog ===

impl<'bytes> ParsedLog<'bytes> {
    pub(crate) fn parse(bytes: &'bytes [u8]) -> Result<Self, LogError> {
        let Header {
            salt,
            reached,
            is_backup,
        } = read_header(bytes)?;
        let mut records = Vec::new();
        let mut end = HEADER;
        while let Some(record) = whole_record(bytes, end, salt) {
            records.push(record);
            end += record.len();
        }
        let rest = &bytes[end..];
        if rest.len() < ALIGNMENT || announced_len(rest, salt).is_some_and(|len| len > rest.len()) {
            return Err(LogError::CutShort);
        }
        let is_clean = rest.iter().all(|&byte| byte == 0);
        let is_unfinished = || {
            let mut behind = (end + ALIGNMENT..bytes.len()).step_by(ALIGNMENT);
            may_be_unfinished(rest, salt)
                && behind.all(|at| whole_record(bytes, at, salt).is_none())
        };
        if !is_clean && !is_unfinished() {
            return Err(LogError::Damaged(end));
        }
        if records.is_empty() || (end as u64) < reached {
            return Err(LogError::Gap(end));
        }
        Ok(Self {
            records,
            is_clean,
            is_backup,
        })
    }
}

/// The content of a log file's header.
struct Header {
    salt: u32,
    /// The length that the log has certainly reached.
    reached: u64,
    is_backup: bool,
}

fn read_header(bytes: &[u8]) -> Result<Header, LogError> {
    let header = bytes.first_chunk::<HEADER>().ok_or(LogError::CutShort)?;
    let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| header[at + byte]));
    if header[..8] != MAGIC || number(16) != crc32fast::hash(&header[..16]) {
        return Err(LogError::NoLog);
    }
    let (layout, salt) = (number(8), number(12));
    if layout != LAYOUT {
        return Err(LogError::Layout(layout));
    }
    let end = u64::from(number(REACHED)) | u64::from(number(REACHED + 4)) << 32;
    let as_written =
        header[REACHED..] == [0; HEADER - REACHED] || header[REACHED..] == reached(salt, end);
    if !as_written || ![0, IS_BACKUP].contains(&number(MARK)) {
        return Err(LogError::NoLog);
    }
    Ok(Header {
        salt,
        reached: end,
        is_backup: number(MARK) == IS_BACKUP,
    })
}

/// Whether an unfinished write of the last record can have left these bytes. A record's salt and length are in one
/// sector, so both are written or neither, and nothing was ever written behind the record's end.
fn may_be_unfinished(bytes: &[u8], salt: u32) -> bool {
    match announced_len(bytes, salt) {
        Some(len) => {
            let is_length = len > RECORD_HEADER && len.is_multiple_of(ALIGNMENT);
            is_length && bytes[len..].iter().all(|&byte| byte == 0)
        }
        None => bytes[..ALIGNMENT] == [0; ALIGNMENT],
    }
}

/// The length that a record announces in its header at the beginning of these bytes; `None` if no record with
/// this salt begins there.
fn announced_len(bytes: &[u8], salt: u32) -> Option<usize> {
    let (begin, rest) = bytes.split_first_chunk()?;
    let (len, _rest) = rest.split_first_chunk()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    (u32::from_le_bytes(*begin) == salt).then_some(len)
}

/// The record that begins at this offset; `None` if the record is not whole.
fn whole_record(bytes: &[u8], at: usize, salt: u32) -> Option<&[u8]> {
    let bytes = bytes.get(at..)?;
    let record = bytes.get(..announced_len(bytes, salt)?)?;
    let sum = record.get(8..RECORD_HEADER)?;
    let is_whole = record.len().is_multiple_of(ALIGNMENT)
        && record.last() == Some(&LAST_BYTE)
        && sum == record_checksum(record).to_le_bytes();
    is_whole.then_some(record)
}

/// Makes a log with one record around these bytes, for fuzzers.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn around(bytes: &[u8]) -> Vec<u8> {
    let mut log = header(1);
    log.extend_from_slice(&1_u32.to_le_bytes());
    log.extend_from_slice(&[0; RECORD_HEADER - 4]);
    log.extend_from_slice(bytes);
    finish_record(&mut log, HEADER);
    log.extend_from_slice(&[0; ALIGNMENT]);
    log
}
