//! The log: every transaction, one record behind the other, in segments of which the last one is written.
//!
//! A segment is a file that is filled with zeros before it is used, so that a record overwrites what is
//! there: its sync is one write of data and no change of the file's own entries. A record goes out only when
//! the one before it is durable, so at most one can be torn, the last. What lives is copied into a new
//! segment, some rows with each transaction, when the one before has become long; then that one is removed.
//! Nothing is written behind a record that failed: a new segment begins with everything instead.
//!
//! Segment: header of [`HEADER`] bytes, records, zeros. Record: salt of the segment, length, CRC-32, numbers
//! of [`Link`], [`Meta`], rows, zeros up to a multiple of eight bytes, and a last byte that is not zero.

use std::{collections::HashMap, fmt, io, ops::RangeInclusive};

use tracing::warn;

use crate::lock::LockName;

use super::{
    lease::{Lease, Moment},
    row::{self, Fields, Meta, RowError, RowKey, Rows, Tombstone},
};

/// What every segment begins with.
const MAGIC: [u8; 8] = *b"latchlog";
/// The layout that this program reads and writes.
pub(super) const LAYOUT: u32 = 1;
/// Magic, layout, salt, the checksum of these, four bytes that are zero, and [`REACHED`].
const HEADER: usize = 40;
/// Where in the header the number of a record stands that the log has reached for certain: zero, or the
/// number, its checksum and four bytes that are zero. Written when the log is closed in good order; less than
/// a sector, so it is written whole or not at all. If the log ends before it, the disk has lost records.
const REACHED: usize = 24;
/// Salt, length and checksum.
const RECORD_HEADER: usize = 12;
const ALIGNMENT: usize = 8;
/// The first segment of a log.
const FIRST: u64 = 1;
/// The last byte of a record: one of which the last bytes were not written is not taken for whole.
const LAST_BYTE: u8 = 0xff;
/// How much longer than what lives a segment becomes.
const GARBAGE: u64 = 4;

/// Where segments are: a directory, or a disk in a test.
pub(super) trait Volume: fmt::Debug + Send {
    /// The segments that there are, in any order.
    fn generations(&self) -> io::Result<Vec<u64>>;
    /// All of a segment.
    fn read(&self, generation: u64) -> io::Result<Vec<u8>>;
    /// A segment to write to.
    fn open(&self, generation: u64) -> io::Result<Box<dyn Segment>>;
    /// A new segment with these bytes, durable, that has no place yet.
    fn draft(&self, bytes: &[u8]) -> io::Result<Box<dyn Segment>>;
    /// Gives the draft its place, durably.
    fn put_in_place(&self, generation: u64) -> io::Result<()>;
    /// Removes a segment. It may come back after a loss of power.
    fn remove(&self, generation: u64) -> io::Result<()>;
    /// How many bytes of zeros a segment grows by.
    fn growth(&self) -> usize {
        256 * 1024
    }
    /// How long a segment becomes at least before the next one begins.
    fn shortest_segment(&self) -> u64 {
        16 * 1024 * 1024
    }
}

/// A segment that is open.
pub(super) trait Segment: fmt::Debug + Send {
    /// Overwrites what is there, or appends.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes all of it durable.
    fn sync(&self) -> io::Result<()>;
}

/// The log of a data directory, open for writing.
#[derive(Debug)]
pub(super) struct Log {
    volume: Box<dyn Volume>,
    segment: Box<dyn Segment>,
    generation: u64,
    salt: u32,
    /// Where the next record goes.
    end: u64,
    /// Up to where the segment is filled with zeros, durably.
    allocated: u64,
    /// At which length of the segment the next one begins.
    full_at: u64,
    /// The first segment that is needed.
    base: u64,
    /// The highest generation that was tried.
    highest: u64,
    /// The last record that is durable, and the last one that was tried.
    durable: u64,
    sequence: u64,
    /// Kept for its memory.
    record: Vec<u8>,
}

/// All that a log holds.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) meta: Meta,
    pub(super) leases: Vec<(LockName, Lease)>,
    pub(super) tombstones: Vec<(Tombstone, Moment)>,
}

/// How a record hangs together with the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    sequence: u64,
    /// The record before it.
    follows: u64,
    /// The first segment that is needed from here on.
    base: u64,
}

/// A write that failed.
#[derive(Debug)]
pub(super) struct WriteFailure {
    pub(super) error: io::Error,
    /// Whether the record may be found when the log is read.
    pub(super) may_be_found: bool,
}

/// Why a log could not be opened.
#[derive(Debug)]
pub(super) struct Unreadable {
    /// The segment that is to blame.
    pub(super) generation: u64,
    pub(super) error: LogError,
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
    /// A record that was followed by others is not as it was written.
    #[error("the record at byte {0} is damaged, and others follow")]
    Damaged(usize),
    /// A row is not as it should be.
    #[error("the row {key:?} {error}")]
    Row { key: String, error: RowError },
    /// Rows are missing, or there are too many.
    #[error("it holds {found} rows instead of {expected}")]
    Count { found: u64, expected: u64 },
}

// === impl Log ===

impl Log {
    /// Begins the log of an empty volume.
    pub(super) fn create(volume: &dyn Volume, meta: &Meta) -> io::Result<()> {
        let link = Link {
            sequence: 1,
            follows: 0,
            base: FIRST,
        };
        let salt = new_salt();
        let mut bytes = header(salt);
        append_record(&mut bytes, salt, link, meta, &Rows::default());
        fill(&mut bytes, volume.growth());
        volume.draft(&bytes)?;
        volume.put_in_place(FIRST)
    }

    /// Reads the whole log and opens it. Says, too, whether it ends as it should: if not, what was read
    /// must be written anew.
    pub(super) fn open(volume: Box<dyn Volume>) -> Result<(Self, Contents, bool), Unreadable> {
        let of = |generation| move |error: LogError| Unreadable { generation, error };
        let io = |generation| move |error: io::Error| of(generation)(error.into());
        let mut generations = volume.generations().map_err(io(FIRST))?;
        generations.sort_unstable();
        let newest = generations.pop().unwrap_or(FIRST);
        let bytes = volume.read(newest).map_err(io(newest))?;
        let last = ParsedSegment::parse(&bytes).map_err(of(newest))?;
        let link = last.records.last().map(|record| record.link);
        let link = link.ok_or(LogError::Gap(0)).map_err(of(newest))?;
        let mut replay = Replay::default();
        for &older in generations.iter().filter(|&&it| it >= link.base) {
            let bytes = volume.read(older).map_err(io(older))?;
            // How it ends does not matter: if records are missing there, the next one does not follow.
            let segment = ParsedSegment::parse(&bytes).map_err(of(older))?;
            replay.add(&segment).map_err(of(older))?;
        }
        replay.add(&last).map_err(of(newest))?;
        let live = replay.bytes();
        let contents = replay.finish().map_err(of(newest))?;
        if !last.is_clean {
            warn!(
                "the last transaction in the data directory is incomplete or damaged and is rolled back; \
                 that is in order after a loss of power while it was written, before anybody had its answer; \
                 if the disk has damaged it, what was granted, renewed or released last is forgotten"
            );
        }
        let log = Self {
            segment: volume.open(newest).map_err(io(newest))?,
            generation: newest,
            salt: last.salt,
            end: last.end as u64,
            allocated: bytes.len() as u64,
            full_at: volume.shortest_segment().max(GARBAGE * live),
            base: link.base,
            highest: newest,
            durable: link.sequence,
            sequence: link.sequence,
            record: Vec::new(),
            volume,
        };
        log.remove_older();
        Ok((log, contents, last.is_clean))
    }

    /// Whether the next transaction had better begin a new segment, into which all that lives is copied.
    pub(super) fn is_full(&self) -> bool {
        self.base == self.generation && self.end >= self.full_at
    }

    /// The segments that are needed, and perhaps numbers between them that are none.
    pub(super) fn segments(&self) -> RangeInclusive<u64> {
        self.base..=self.generation
    }

    /// Whether an older segment is still needed, because not all that lives was copied.
    pub(super) fn is_copying(&self) -> bool {
        self.base < self.generation
    }

    /// Writes a transaction behind the last one; durable when this returns.
    pub(super) fn append(&mut self, meta: &Meta, rows: &Rows) -> Result<(), WriteFailure> {
        self.append_with(meta, rows, self.base)
    }

    /// The same with the last rows that were still to be copied: older segments are not needed any more.
    pub(super) fn append_last_copied(
        &mut self,
        meta: &Meta,
        rows: &Rows,
    ) -> Result<(), WriteFailure> {
        self.append_with(meta, rows, self.generation)?;
        self.forget_older();
        Ok(())
    }

    /// Begins a new segment with this transaction; the older ones stay.
    pub(super) fn begin_segment(&mut self, meta: &Meta, rows: &Rows) -> Result<(), WriteFailure> {
        let base = self.base;
        self.begin(meta, rows, |_new| base)
    }

    /// Begins a new segment with every row; nothing else is needed any more.
    pub(super) fn rewrite(&mut self, meta: &Meta, everything: &Rows) -> Result<(), WriteFailure> {
        self.begin(meta, everything, |new| new)?;
        self.forget_older();
        Ok(())
    }

    /// Ends in good order: from now on a record that is missing at the end is noticed.
    pub(super) fn close(self) -> io::Result<()> {
        let reached = reached(self.salt, self.durable);
        self.segment.write_at(&reached, REACHED as u64)?;
        self.segment.sync()
    }

    fn append_with(&mut self, meta: &Meta, rows: &Rows, base: u64) -> Result<(), WriteFailure> {
        let link = self.next_link(base);
        self.record.clear();
        append_record(&mut self.record, self.salt, link, meta, rows);
        // A reader knows by what is behind the last record that there is no more.
        let needed = self.end + (self.record.len() + ALIGNMENT) as u64;
        if needed > self.allocated {
            self.grow(needed).map_err(WriteFailure::certain)?;
        }
        self.segment
            .write_at(&self.record, self.end)
            .map_err(WriteFailure::certain)?;
        self.segment.sync().map_err(WriteFailure::uncertain)?;
        self.end += self.record.len() as u64;
        self.durable = link.sequence;
        self.base = base;
        Ok(())
    }

    fn grow(&mut self, needed: u64) -> io::Result<()> {
        let growth = self.volume.growth() as u64;
        let allocated = needed.next_multiple_of(growth);
        let zeros = vec![0; usize::try_from(allocated - self.allocated).unwrap_or(usize::MAX)];
        self.segment.write_at(&zeros, self.allocated)?;
        self.segment.sync()?;
        self.allocated = allocated;
        Ok(())
    }

    fn begin(
        &mut self,
        meta: &Meta,
        rows: &Rows,
        base: impl FnOnce(u64) -> u64,
    ) -> Result<(), WriteFailure> {
        self.highest += 1;
        let (generation, salt) = (self.highest, new_salt());
        let link = self.next_link(base(generation));
        let mut bytes = header(salt);
        append_record(&mut bytes, salt, link, meta, rows);
        let end = bytes.len() as u64;
        fill(&mut bytes, self.volume.growth());
        let segment = self.volume.draft(&bytes).map_err(WriteFailure::certain)?;
        self.volume
            .put_in_place(generation)
            .map_err(WriteFailure::uncertain)?;
        self.segment = segment;
        self.generation = generation;
        self.salt = salt;
        self.end = end;
        self.allocated = bytes.len() as u64;
        self.durable = link.sequence;
        self.base = link.base;
        Ok(())
    }

    fn next_link(&mut self, base: u64) -> Link {
        self.sequence += 1;
        Link {
            sequence: self.sequence,
            follows: self.durable,
            base,
        }
    }

    fn forget_older(&mut self) {
        self.full_at = self.volume.shortest_segment().max(GARBAGE * self.end);
        self.remove_older();
    }

    fn remove_older(&self) {
        let removed = self.volume.generations().and_then(|generations| {
            let mut older = generations.into_iter().filter(|&it| it < self.base);
            older.try_for_each(|it| self.volume.remove(it))
        });
        if let Err(error) = removed {
            warn!(%error, "cannot remove an old file of the data directory; that is tried again later");
        }
    }
}

// === impl WriteFailure ===

impl WriteFailure {
    fn certain(error: io::Error) -> Self {
        Self {
            error,
            may_be_found: false,
        }
    }

    fn uncertain(error: io::Error) -> Self {
        Self {
            error,
            may_be_found: true,
        }
    }
}

// === Writing ===

/// A number that no other segment of this directory has, by all odds: what is left of another file is
/// never taken for a record.
fn new_salt() -> u32 {
    let random = getrandom::u32().expect("the operating system gives random numbers");
    random.max(1)
}

fn header(salt: u32) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&LAYOUT.to_le_bytes());
    bytes.extend_from_slice(&salt.to_le_bytes());
    let sum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.resize(HEADER, 0);
    bytes
}

fn reached(salt: u32, sequence: u64) -> [u8; HEADER - REACHED] {
    let mut bytes = [0; HEADER - REACHED];
    bytes[..8].copy_from_slice(&sequence.to_le_bytes());
    let mut sum = crc32fast::Hasher::new();
    sum.update(&salt.to_le_bytes());
    sum.update(&bytes[..8]);
    bytes[8..12].copy_from_slice(&sum.finalize().to_le_bytes());
    bytes
}

fn append_record(bytes: &mut Vec<u8>, salt: u32, link: Link, meta: &Meta, rows: &Rows) {
    let start = bytes.len();
    bytes.extend_from_slice(&salt.to_le_bytes());
    bytes.extend_from_slice(&[0; RECORD_HEADER - 4]);
    for number in [link.sequence, link.follows, link.base] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    meta.encode(bytes);
    bytes.extend_from_slice(&rows.len().to_le_bytes());
    bytes.extend_from_slice(rows.as_bytes());
    let len = (bytes.len() - start + 1).next_multiple_of(ALIGNMENT);
    bytes.resize(start + len - 1, 0);
    bytes.push(LAST_BYTE);
    let record = &mut bytes[start..];
    let len = u32::try_from(len).expect("a transaction is shorter than 4 GiB");
    record[4..8].copy_from_slice(&len.to_le_bytes());
    let sum = record_checksum(record);
    record[8..12].copy_from_slice(&sum.to_le_bytes());
}

fn fill(bytes: &mut Vec<u8>, growth: usize) {
    bytes.resize((bytes.len() + ALIGNMENT).next_multiple_of(growth), 0);
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
struct ParsedSegment<'bytes> {
    salt: u32,
    records: Vec<ParsedRecord<'bytes>>,
    /// Where the last record ends.
    end: usize,
    /// Whether nothing but zeros is behind it.
    is_clean: bool,
}

#[derive(Debug)]
struct ParsedRecord<'bytes> {
    link: Link,
    meta: Meta,
    rows: Vec<(&'bytes [u8], Option<&'bytes [u8]>)>,
}

/// What the records leave behind, one after the other.
#[derive(Debug, Default)]
struct Replay {
    last: Option<(Link, Meta)>,
    rows: HashMap<Vec<u8>, Vec<u8>>,
}

// === impl ParsedSegment ===

impl<'bytes> ParsedSegment<'bytes> {
    fn parse(bytes: &'bytes [u8]) -> Result<Self, LogError> {
        let (salt, reached) = read_header(bytes)?;
        let mut records: Vec<ParsedRecord<'_>> = Vec::new();
        let mut end = HEADER;
        while let Some(record) = whole_record(bytes, end, salt) {
            records.push(ParsedRecord::decode(record)?);
            end += record.len();
        }
        let rest = &bytes[end..];
        let is_clean = rest.iter().all(|&byte| byte == 0);
        if rest.len() < ALIGNMENT || announced_len(rest, salt).is_some_and(|len| len > rest.len()) {
            return Err(LogError::CutShort);
        }
        if !is_clean {
            let behind = (end + ALIGNMENT..bytes.len()).step_by(ALIGNMENT);
            for at in behind {
                if whole_record(bytes, at, salt).is_some() {
                    return Err(LogError::Damaged(end));
                }
            }
        }
        let last = records.last().map_or(0, |record| record.link.sequence);
        if last < reached {
            return Err(LogError::Gap(last));
        }
        Ok(Self {
            salt,
            records,
            end,
            is_clean,
        })
    }
}

/// The salt of a segment, and the number of a record that it has reached for certain.
fn read_header(bytes: &[u8]) -> Result<(u32, u64), LogError> {
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
    if number(20) == 0 && as_written {
        Ok((salt, sequence))
    } else {
        Err(LogError::NoLog)
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

// === impl ParsedRecord ===

impl<'bytes> ParsedRecord<'bytes> {
    /// Reads what was found to be as it was written: what makes no sense then was not written by us.
    fn decode(record: &'bytes [u8]) -> Result<Self, LogError> {
        let mut fields = Fields::of(&record[RECORD_HEADER..]);
        Self::read(&mut fields).map_err(|error| LogError::Row {
            key: "about the log".to_owned(),
            error,
        })
    }

    fn read(fields: &mut Fields<'bytes>) -> Result<Self, RowError> {
        let link = Link {
            sequence: fields.u64()?,
            follows: fields.u64()?,
            base: fields.u64()?,
        };
        let meta = Meta::read(fields)?;
        let count = fields.u64()?;
        let mut rows = Vec::new();
        for _ in 0..count {
            rows.push(fields.row()?);
        }
        Ok(Self { link, meta, rows })
    }
}

// === impl Replay ===

impl Replay {
    fn add(&mut self, segment: &ParsedSegment<'_>) -> Result<(), LogError> {
        for record in &segment.records {
            if let Some((last, _meta)) = &self.last
                && record.link.follows != last.sequence
            {
                return Err(LogError::Gap(last.sequence));
            }
            for (key, value) in &record.rows {
                match value {
                    Some(value) => self.rows.insert(key.to_vec(), value.to_vec()),
                    None => self.rows.remove(*key),
                };
            }
            self.last = Some((record.link, record.meta.clone()));
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let rows = self.rows.iter();
        rows.map(|(key, value)| (key.len() + value.len()) as u64)
            .sum()
    }

    fn finish(self) -> Result<Contents, LogError> {
        let (_link, meta) = self.last.ok_or(LogError::Gap(0))?;
        let (found, expected) = (self.rows.len() as u64, meta.rows);
        if found != expected {
            return Err(LogError::Count { found, expected });
        }
        let mut contents = Contents {
            meta,
            leases: Vec::new(),
            tombstones: Vec::new(),
        };
        for (key, value) in &self.rows {
            contents.take(key, value).map_err(|error| LogError::Row {
                key: key.escape_ascii().to_string(),
                error,
            })?;
        }
        Ok(contents)
    }
}

// === impl Contents ===

impl Contents {
    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), RowError> {
        if let Some(name) = RowKey::parse_lease(key) {
            self.leases.push((name?, row::decode(value)?));
            return Ok(());
        }
        let tombstone = Tombstone::parse(key).ok_or(RowError::Invalid("kind"))?;
        let mut fields = Fields::of(value);
        let until = Moment::from_micros(fields.i64()?);
        fields.end()?;
        self.tombstones.push((tombstone, until));
        Ok(())
    }
}

/// Reads any bytes as a segment, for fuzzers: what is taken for one is read, and nothing panics.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn fuzzed_segment(bytes: &[u8]) -> String {
    let replayed = ParsedSegment::parse(bytes).and_then(|segment| {
        let mut replay = Replay::default();
        replay.add(&segment)?;
        replay.finish()
    });
    format!("{replayed:?}")
}
