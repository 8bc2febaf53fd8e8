//! How a segment of the log is laid out: what is written, and what is taken for whole when it is read.
//!
//! Segment: header of [`HEADER`] bytes, records, zeros. Record: salt of the segment, length, CRC-32, numbers
//! of [`Link`], [`Meta`], rows, zeros up to a multiple of eight bytes, and a last byte that is not zero.

use std::io;

use super::row::{Fields, Meta, RowError, Rows};

/// What every segment begins with.
const MAGIC: [u8; 8] = *b"latchlog";
/// The layout that this program reads and writes.
pub(super) const LAYOUT: u32 = 1;
/// Magic, layout, salt, the checksum of these, [`MARK`] and [`REACHED`].
const HEADER: usize = 40;
/// Where in the header it says what a segment is besides the newest of a log: zero, [`IS_CONTINUED`] or
/// [`IS_BACKUP`].
pub(super) const MARK: usize = 20;
/// A newer segment was put in place. Without that one the log is not whole.
pub(super) const IS_CONTINUED: u32 = 0x7478_656e;
/// It was written for a backup: after it was made, others were granted fencing tokens that it does not know.
const IS_BACKUP: u32 = 0x7075_6b62;
/// Where in the header the number of a record stands that the log has reached for certain: zero, or the
/// number, its checksum and four bytes that are zero. Written when the log is closed in good order; less than
/// a sector, so it is written whole or not at all. If the log ends before it, the disk has lost records.
pub(super) const REACHED: usize = 24;
/// Salt, length and checksum.
pub(super) const RECORD_HEADER: usize = 12;
pub(super) const ALIGNMENT: usize = 8;
/// What a file system gives at least.
pub(super) const BLOCK: usize = 4096;
/// The last byte of a record: one of which the last bytes were not written is not taken for whole.
const LAST_BYTE: u8 = 0xff;

/// How a record is linked to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) sequence: u64,
    /// The record before it.
    pub(super) follows: u64,
    /// The first segment that is needed from here on.
    pub(super) base: u64,
}

/// What is wrong with a segment.
#[derive(Debug, thiserror::Error)]
pub(super) enum LogError {
    /// The operating system could not.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is no segment.
    #[error("it does not begin as a log does")]
    NoLog,
    /// It was written by another version of this program.
    #[error("it has the layout version {0}, which this program does not know")]
    Layout(u32),
    /// It ends where there must be more.
    #[error("it is cut short")]
    CutShort,
    /// It holds nothing, or records are missing in the middle.
    #[error("records are missing behind number {0}")]
    Gap(u64),
    /// There is no whole record, and what is there is not what an unfinished write of the last one leaves.
    #[error("it is damaged at byte {0}: an unfinished write does not leave what is there")]
    Damaged(usize),
    /// A row is not as it should be.
    #[error("the row {key:?} {error}")]
    Row { key: String, error: RowError },
    /// Rows are missing, or there are too many.
    #[error("it holds {found} rows instead of {expected}")]
    Count { found: u64, expected: u64 },
    /// It is older than what is needed, and not what that goes on from.
    #[error("it belongs to another log than segment {newest}, or to an earlier state of it")]
    AnotherLog { newest: u64 },
}

// === Writing ===

/// A number that with overwhelming probability no other segment of this directory has: what is left of another
/// file is never taken for a record.
pub(super) fn new_salt() -> u32 {
    let random = getrandom::u32().expect("the operating system gives random numbers");
    random.max(1)
}

pub(super) fn header(salt: u32) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&LAYOUT.to_le_bytes());
    bytes.extend_from_slice(&salt.to_le_bytes());
    let sum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.resize(HEADER, 0);
    bytes
}

pub(super) fn reached(salt: u32, sequence: u64) -> [u8; HEADER - REACHED] {
    let mut bytes = [0; HEADER - REACHED];
    bytes[..8].copy_from_slice(&sequence.to_le_bytes());
    let mut sum = crc32fast::Hasher::new();
    sum.update(&salt.to_le_bytes());
    sum.update(&bytes[..8]);
    bytes[8..12].copy_from_slice(&sum.finalize().to_le_bytes());
    bytes
}

/// What a segment that was written for a backup has in place of the marks of one that is in use.
pub(super) fn mark_backup(bytes: &mut [u8], salt: u32, sequence: u64) {
    bytes[MARK..REACHED].copy_from_slice(&IS_BACKUP.to_le_bytes());
    bytes[REACHED..HEADER].copy_from_slice(&reached(salt, sequence));
}

pub(super) fn append_record(bytes: &mut Vec<u8>, salt: u32, link: Link, meta: &Meta, rows: &Rows) {
    let start = bytes.len();
    bytes.extend_from_slice(&salt.to_le_bytes());
    bytes.extend_from_slice(&[0; RECORD_HEADER - 4]);
    for number in [link.sequence, link.follows, link.base] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    meta.encode(bytes);
    bytes.extend_from_slice(&rows.len().to_le_bytes());
    bytes.extend_from_slice(rows.as_bytes());
    finish_record(bytes, start);
}

/// Pads a record, and writes its length and checksum.
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

/// Over all but itself.
fn record_checksum(record: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&record[..8]);
    sum.update(&record[RECORD_HEADER..]);
    sum.finalize()
}

// === Reading ===

/// A segment as it was found.
#[derive(Debug)]
pub(super) struct ParsedSegment<'bytes> {
    pub(super) records: Vec<&'bytes [u8]>,
    /// Whether nothing but zeros is behind the last one.
    pub(super) is_clean: bool,
    pub(super) mark: Mark,
}

/// What a segment is besides the newest of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    None,
    Continued,
    Backup,
}

// === impl ParsedSegment ===

impl<'bytes> ParsedSegment<'bytes> {
    /// Reads the newest segment of a log.
    pub(super) fn parse(bytes: &'bytes [u8]) -> Result<Self, LogError> {
        Self::parse_with(bytes, true)
    }

    /// Reads a segment that a newer one has followed. If records are missing at its end, `follows` of the next segment
    /// shows it. Noise behind the last whole record is no damage, unless whole records stand behind the noise.
    pub(super) fn parse_older(bytes: &'bytes [u8]) -> Result<Self, LogError> {
        Self::parse_with(bytes, false)
    }

    fn parse_with(bytes: &'bytes [u8], is_newest: bool) -> Result<Self, LogError> {
        let Header {
            salt,
            reached,
            mark,
        } = read_header(bytes)?;
        let mut records = Vec::new();
        let mut end = HEADER;
        while let Some(record) = whole_record(bytes, end, salt) {
            records.push(record);
            end += record.len();
        }
        let rest = &bytes[end..];
        let is_clean = rest.iter().all(|&byte| byte == 0);
        let is_cut =
            rest.len() < ALIGNMENT || announced_len(rest, salt).is_some_and(|len| len > rest.len());
        if is_newest && is_cut {
            return Err(LogError::CutShort);
        }
        if !is_clean {
            if is_newest && !may_be_unfinished(rest, salt) {
                return Err(LogError::Damaged(end));
            }
            let behind = (end + ALIGNMENT..bytes.len()).step_by(ALIGNMENT);
            for at in behind {
                if whole_record(bytes, at, salt).is_some() {
                    return Err(LogError::Damaged(end));
                }
            }
        }
        let segment = Self {
            records,
            is_clean,
            mark,
        };
        let last = segment.last_link()?.sequence;
        if last < reached {
            return Err(LogError::Gap(last));
        }
        Ok(segment)
    }

    pub(super) fn last_link(&self) -> Result<Link, LogError> {
        link_of(self.records.last())
    }

    pub(super) fn first_link(&self) -> Result<Link, LogError> {
        link_of(self.records.first())
    }

    /// Whether a log of which the first record follows this one went on from this segment, or was put in place
    /// instead of it: its last record may have been lost, or be one of which nobody was told.
    fn leads_to(&self, follows: u64) -> Result<bool, LogError> {
        let before_last = self.records.len().checked_sub(2);
        let before_last = before_last.map(|at| link_of(self.records.get(at)));
        let (first, last) = (self.first_link()?, self.last_link()?);
        let before_last = before_last.transpose()?.map(|link| link.sequence);
        Ok(first.follows == follows
            || last.sequence == follows
            || last.sequence + 1 == follows
            || before_last == Some(follows))
    }
}

fn link_of(record: Option<&&[u8]>) -> Result<Link, LogError> {
    let record = record.ok_or(LogError::Gap(0))?;
    Link::read(&mut Fields::of(&record[RECORD_HEADER..])).map_err(LogError::of_record)
}

/// Whether an old segment is only left because it was not removed, or has come back with a loss of power: the
/// log of which the first record follows this one holds what it held.
pub(super) fn is_left_over(bytes: &[u8], follows: u64) -> bool {
    let is_continued = read_header(bytes).is_ok_and(|header| header.mark == Mark::Continued);
    is_continued
        || ParsedSegment::parse_older(bytes).is_ok_and(|it| it.leads_to(follows).unwrap_or(false))
}

/// What the header of a segment says.
struct Header {
    salt: u32,
    /// The number of a record that it has reached for certain.
    reached: u64,
    mark: Mark,
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
    let sequence = u64::from(number(REACHED)) | u64::from(number(REACHED + 4)) << 32;
    let as_written =
        header[REACHED..] == [0; HEADER - REACHED] || header[REACHED..] == reached(salt, sequence);
    let mark = match number(MARK) {
        0 => Mark::None,
        IS_CONTINUED => Mark::Continued,
        IS_BACKUP => Mark::Backup,
        _ => return Err(LogError::NoLog),
    };
    if as_written {
        Ok(Header {
            salt,
            reached: sequence,
            mark,
        })
    } else {
        Err(LogError::NoLog)
    }
}

/// Whether a write of the last record that did not come to its end can have left these bytes. Its salt and length are
/// in one sector, so both are there or neither is, and behind its end nothing was ever written.
fn may_be_unfinished(bytes: &[u8], salt: u32) -> bool {
    match announced_len(bytes, salt) {
        Some(len) => {
            let is_length = len > RECORD_HEADER && len.is_multiple_of(ALIGNMENT);
            is_length && bytes[len..].iter().all(|&byte| byte == 0)
        }
        None => bytes[..ALIGNMENT] == [0; ALIGNMENT],
    }
}

/// How long the record is that begins here, as far as one does.
fn announced_len(bytes: &[u8], salt: u32) -> Option<usize> {
    let (begin, rest) = bytes.split_first_chunk()?;
    let (len, _rest) = rest.split_first_chunk()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    (u32::from_le_bytes(*begin) == salt).then_some(len)
}

/// The record that begins here, if it is whole.
fn whole_record(bytes: &[u8], at: usize, salt: u32) -> Option<&[u8]> {
    let bytes = bytes.get(at..)?;
    let record = bytes.get(..announced_len(bytes, salt)?)?;
    let sum = record.get(8..RECORD_HEADER)?;
    let is_whole = record.len().is_multiple_of(ALIGNMENT)
        && record.last() == Some(&LAST_BYTE)
        && sum == record_checksum(record).to_le_bytes();
    is_whole.then_some(record)
}

// === impl Link ===

impl Link {
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Self, RowError> {
        Ok(Self {
            sequence: fields.u64()?,
            follows: fields.u64()?,
            base: fields.u64()?,
        })
    }
}

// === impl LogError ===

impl LogError {
    /// The record was found to be as it was written: what makes no sense then was not written by us.
    pub(super) fn of_record(error: RowError) -> Self {
        Self::Row {
            key: "about the log".to_owned(),
            error,
        }
    }
}

/// A segment with one record around these bytes, for fuzzers.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn around(bytes: &[u8]) -> Vec<u8> {
    let mut segment = header(1);
    segment.extend_from_slice(&1_u32.to_le_bytes());
    segment.extend_from_slice(&[0; RECORD_HEADER - 4]);
    segment.extend_from_slice(bytes);
    finish_record(&mut segment, HEADER);
    segment.extend_from_slice(&[0; ALIGNMENT]);
    segment
}
