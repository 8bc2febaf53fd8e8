//! The log: every transaction is a record, appended in order to the newest of its segments.
//!
//! A segment is a file that is filled with zeros before it is used, so that a record overwrites what is
//! there: its sync is one write of data and no change of the file's own entries. A record goes out only when
//! the one before it is durable, so at most one can be torn, the last. What lives is copied into a new
//! segment, some rows with each transaction, when the one before has become long; then that one is removed.
//! Nothing is written behind a record that failed, or that another process has written: a new segment begins
//! with everything instead.
//!
//! Segment: header of [`HEADER`] bytes, records, zeros. Record: salt of the segment, length, CRC-32, numbers
//! of [`Link`], [`Meta`], rows, zeros up to a multiple of eight bytes, and a last byte that is not zero.

use std::{
    collections::HashMap,
    fmt,
    io::{self, ErrorKind},
    ops::RangeInclusive,
    slice,
};

use tracing::warn;

use crate::{clock::Clock, lock::LockName};

use super::{
    lease::{Lease, Moment},
    row::{self, Fields, Meta, RowError, RowKey, Rows, Tombstone},
};

/// What every segment begins with.
const MAGIC: [u8; 8] = *b"latchlog";
/// The layout that this program reads and writes.
pub(super) const LAYOUT: u32 = 1;
/// Magic, layout, salt, the checksum of these, [`CONTINUED`] and [`REACHED`].
const HEADER: usize = 40;
/// Where in the header it says that a newer segment was put in place: zero, or [`IS_CONTINUED`]. Without that one
/// the log is not whole.
const CONTINUED: usize = 20;
const IS_CONTINUED: u32 = 0x7478_656e;
/// Where in the header the number of a record stands that the log has reached for certain: zero, or the
/// number, its checksum and four bytes that are zero. Written when the log is closed in good order; less than
/// a sector, so it is written whole or not at all. If the log ends before it, the disk has lost records.
const REACHED: usize = 24;
/// Salt, length and checksum.
const RECORD_HEADER: usize = 12;
const ALIGNMENT: usize = 8;
/// What a file system gives at least.
const BLOCK: usize = 4096;
/// The first segment of a log.
const FIRST: u64 = 1;
/// The last byte of a record: one of which the last bytes were not written is not taken for whole.
const LAST_BYTE: u8 = 0xff;
/// How many times as long as after its last copy a segment becomes.
const GARBAGE: u64 = 2;

/// Where segments are: a directory, or a disk in a test.
pub(super) trait Volume: fmt::Debug + Send {
    /// The segments that there are, in any order.
    fn generations(&self) -> io::Result<Vec<u64>>;
    /// All of a segment.
    fn read(&self, generation: u64) -> io::Result<Vec<u8>>;
    /// A new segment with these bytes, durable, that has no place yet.
    fn draft(&self, bytes: &[u8]) -> io::Result<Box<dyn Segment>>;
    /// Gives the draft its place, durably.
    fn put_in_place(&self, generation: u64) -> io::Result<()>;
    /// Makes sure that some space is kept, so that a segment can begin when the disk is full.
    fn keep_reserve(&self) -> io::Result<()>;
    /// Gives that space up.
    fn give_up_reserve(&self) -> io::Result<()>;
    /// Removes a segment. It may come back after a loss of power.
    fn remove(&self, generation: u64) -> io::Result<()>;
    /// How many bytes of zeros a segment grows by.
    fn growth(&self) -> usize;
    /// How long a segment becomes at least before the next one begins.
    fn shortest_segment(&self) -> u64;
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
    /// Whether part of a record may be behind the last one that is durable.
    is_torn: bool,
    /// Kept for its memory.
    record: Vec<u8>,
}

/// Where a log ends that was read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LogEnd {
    generation: u64,
    sequence: u64,
    /// Whether part of one more record is there.
    pub(super) is_torn: bool,
}

/// All that a log holds.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) meta: Meta,
    pub(super) leases: Vec<(LockName, Lease)>,
    pub(super) tombstones: Vec<(Tombstone, Moment)>,
}

/// How a record is linked to the others.
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
    /// Reads the whole log of a volume; none if there is none.
    pub(super) fn read(volume: &dyn Volume) -> Result<Option<(Contents, LogEnd)>, Unreadable> {
        let of = |generation| move |error: LogError| Unreadable { generation, error };
        let io = |generation| move |error: io::Error| of(generation)(error.into());
        let mut generations = volume.generations().map_err(io(FIRST))?;
        generations.sort_unstable();
        let Some(newest) = generations.pop() else {
            return Ok(None);
        };
        let bytes = volume.read(newest).map_err(io(newest))?;
        let last = ParsedSegment::parse(&bytes).map_err(of(newest))?;
        let link = last.last_link().map_err(of(newest))?;
        if last.is_continued {
            return Err(of(newest)(LogError::Gap(link.sequence)));
        }
        let mut replay = Replay::default();
        for &older in generations.iter().filter(|&&it| it >= link.base) {
            let bytes = volume.read(older).map_err(io(older))?;
            // How it ends does not matter: if records are missing there, the next one does not follow.
            let segment = ParsedSegment::parse(&bytes).map_err(of(older))?;
            replay.add(&segment).map_err(of(older))?;
        }
        replay.add(&last).map_err(of(newest))?;
        let contents = replay.finish().map_err(of(newest))?;
        let end = LogEnd {
            generation: newest,
            sequence: link.sequence,
            is_torn: !last.is_clean,
        };
        Ok(Some((contents, end)))
    }

    /// Goes on where a log ended, with a segment that begins with every row.
    ///
    /// What was read may be in the page cache only, whoever wrote it: nothing is appended to it.
    pub(super) fn begin(
        volume: Box<dyn Volume>,
        end: LogEnd,
        meta: &Meta,
        everything: &[Rows],
    ) -> Result<Self, WriteFailure> {
        let generation = end.generation + 1;
        let link = Link {
            sequence: end.sequence,
            follows: end.sequence,
            base: generation,
        };
        let draft = Draft::new(link, meta, everything);
        let segment = draft.put_in_place(&*volume, generation)?;
        let mut log = Self {
            segment,
            generation,
            salt: draft.salt,
            end: draft.end,
            allocated: draft.bytes.len() as u64,
            full_at: 0,
            base: generation,
            highest: generation,
            durable: draft.last,
            sequence: draft.last,
            is_torn: false,
            record: Vec::new(),
            volume,
        };
        log.forget_older();
        Ok(log)
    }

    /// Whether the next transaction had better begin a new segment, into which all that lives is copied.
    pub(super) fn is_full(&self) -> bool {
        self.base == self.generation && self.end >= self.full_at
    }

    /// No new segment can begin: this one becomes longer.
    pub(super) fn extend(&mut self) {
        self.full_at = self.end + self.volume.shortest_segment();
    }

    /// Makes sure that there is room for a transaction, as far as one can know.
    pub(super) fn reserve(&mut self) -> io::Result<()> {
        let needed = self.end + self.volume.growth() as u64;
        if needed > self.allocated {
            self.grow(needed)?;
        }
        Ok(())
    }

    /// Somebody else has changed the newest segment: nothing may be appended to it.
    pub(super) fn distrust(&mut self) {
        self.is_torn = true;
    }

    /// Whether nothing may be appended, because part of a record may be there.
    pub(super) fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// The segments that are needed. Those between the first and the last that were never put in place are
    /// numbered, too.
    pub(super) fn segments(&self) -> RangeInclusive<u64> {
        self.base..=self.generation
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
        self.go_on_in(self.highest + 1, self.base, meta, slice::from_ref(rows))
    }

    /// Begins a new segment with every row; nothing else is needed any more.
    pub(super) fn rewrite(&mut self, meta: &Meta, everything: &[Rows]) -> Result<(), WriteFailure> {
        let generation = self.highest + 1;
        self.go_on_in(generation, generation, meta, everything)?;
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
        self.sequence += 1;
        let link = Link {
            sequence: self.sequence,
            follows: self.durable,
            base,
        };
        self.record.clear();
        append_record(&mut self.record, self.salt, link, meta, rows);
        // A reader knows by what is behind the last record that there is no more.
        let needed = self.end + (self.record.len() + ALIGNMENT) as u64;
        if needed > self.allocated {
            self.grow(needed).map_err(WriteFailure::certain)?;
        }
        self.is_torn = true;
        self.segment
            .write_at(&self.record, self.end)
            .map_err(WriteFailure::of_write)?;
        self.segment.sync().map_err(WriteFailure::uncertain)?;
        self.is_torn = false;
        self.end += self.record.len() as u64;
        self.durable = link.sequence;
        self.base = base;
        Ok(())
    }

    fn grow(&mut self, needed: u64) -> io::Result<()> {
        let growth = self.volume.growth() as u64;
        self.fill_up_to(needed.next_multiple_of(growth))
            // The last space there is.
            .or_else(|_full| self.fill_up_to(needed.next_multiple_of(BLOCK as u64)))
    }

    fn fill_up_to(&mut self, allocated: u64) -> io::Result<()> {
        let zeros = vec![0; usize::try_from(allocated - self.allocated).unwrap_or(usize::MAX)];
        self.segment.write_at(&zeros, self.allocated)?;
        self.segment.sync()?;
        self.allocated = allocated;
        Ok(())
    }

    fn go_on_in(
        &mut self,
        generation: u64,
        base: u64,
        meta: &Meta,
        rows: &[Rows],
    ) -> Result<(), WriteFailure> {
        self.highest = generation;
        let last = Link {
            sequence: self.sequence,
            follows: self.durable,
            base,
        };
        let draft = Draft::new(last, meta, rows);
        // No number twice: this one may be found.
        self.sequence = draft.last;
        let segment = match draft.put_in_place(&*self.volume, generation) {
            Ok(segment) => segment,
            Err(failure) => {
                self.is_torn |= failure.may_be_found;
                return Err(failure);
            }
        };
        let before = std::mem::replace(&mut self.segment, segment);
        let continued = before.write_at(&IS_CONTINUED.to_le_bytes(), CONTINUED as u64);
        // Without the mark nothing is wrong but what somebody does with the files.
        continued.and_then(|()| before.sync()).ok();
        self.generation = generation;
        self.salt = draft.salt;
        self.end = draft.end;
        self.allocated = draft.bytes.len() as u64;
        self.durable = draft.last;
        self.is_torn = false;
        self.base = base;
        Ok(())
    }

    fn forget_older(&mut self) {
        self.full_at = self.volume.shortest_segment().max(GARBAGE * self.end);
        let generations = self.volume.generations().unwrap_or_default();
        for older in generations.into_iter().filter(|&it| it < self.base) {
            if let Err(error) = self.volume.remove(older) {
                warn!(%error, older, "cannot remove an old file of the data directory");
            }
        }
        // Without it the log is as good, until the disk is full.
        self.volume.keep_reserve().ok();
    }
}

// === impl WriteFailure ===

impl WriteFailure {
    pub(super) fn certain(error: io::Error) -> Self {
        Self {
            error,
            may_be_found: false,
        }
    }

    /// These are said before anything is written; after any other all of it may have been.
    fn of_write(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem => {
                Self::certain(error)
            }
            _ => Self::uncertain(error),
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

/// A segment that is about to be made.
struct Draft {
    bytes: Vec<u8>,
    salt: u32,
    /// Where the last record ends, and its number.
    end: u64,
    last: u64,
}

// === impl Draft ===

impl Draft {
    /// With a record for each of these, and one at least. `before` has the last number that was tried, and
    /// the record that the first of these follows.
    fn new(before: Link, meta: &Meta, rows: &[Rows]) -> Self {
        let salt = new_salt();
        let mut bytes = header(salt);
        let (none, mut link) = (Rows::default(), before);
        for rows in rows.iter().chain(rows.is_empty().then_some(&none)) {
            link.sequence += 1;
            append_record(&mut bytes, salt, link, meta, rows);
            link.follows = link.sequence;
        }
        let end = bytes.len();
        // No more than that: on a full disk this is the way to become shorter.
        bytes.resize((end + ALIGNMENT).next_multiple_of(BLOCK), 0);
        Self {
            bytes,
            salt,
            end: end as u64,
            last: link.sequence,
        }
    }

    fn put_in_place(
        &self,
        volume: &dyn Volume,
        generation: u64,
    ) -> Result<Box<dyn Segment>, WriteFailure> {
        let segment = volume.draft(&self.bytes).or_else(|_full| {
            volume.give_up_reserve()?;
            volume.draft(&self.bytes)
        });
        let segment = segment.map_err(WriteFailure::certain)?;
        volume
            .put_in_place(generation)
            .map_err(WriteFailure::uncertain)?;
        Ok(segment)
    }
}

/// A number that with overwhelming probability no other segment of this directory has: what is left of another
/// file is never taken for a record.
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
struct ParsedSegment<'bytes> {
    records: Vec<&'bytes [u8]>,
    /// Whether nothing but zeros is behind the last one.
    is_clean: bool,
    is_continued: bool,
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
        let Header {
            salt,
            reached,
            is_continued,
        } = read_header(bytes)?;
        let mut records = Vec::new();
        let mut end = HEADER;
        while let Some(record) = whole_record(bytes, end, salt) {
            records.push(record);
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
        let segment = Self {
            records,
            is_clean,
            is_continued,
        };
        let last = segment.last_link()?.sequence;
        if last < reached {
            return Err(LogError::Gap(last));
        }
        Ok(segment)
    }

    fn last_link(&self) -> Result<Link, LogError> {
        let last = self.records.last().ok_or(LogError::Gap(0))?;
        Link::read(&mut Fields::of(&last[RECORD_HEADER..])).map_err(LogError::of_record)
    }
}

/// What the header of a segment says.
struct Header {
    salt: u32,
    /// The number of a record that it has reached for certain.
    reached: u64,
    /// Whether there is a newer segment.
    is_continued: bool,
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
    let is_continued = number(CONTINUED) == IS_CONTINUED;
    if (number(CONTINUED) == 0 || is_continued) && as_written {
        Ok(Header {
            salt,
            reached: sequence,
            is_continued,
        })
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

// === impl Link ===

impl Link {
    fn read(fields: &mut Fields<'_>) -> Result<Self, RowError> {
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
    fn of_record(error: RowError) -> Self {
        Self::Row {
            key: "about the log".to_owned(),
            error,
        }
    }
}

// === impl Replay ===

impl Replay {
    fn add(&mut self, segment: &ParsedSegment<'_>) -> Result<(), LogError> {
        for record in &segment.records {
            let mut fields = Fields::of(&record[RECORD_HEADER..]);
            let link = Link::read(&mut fields).map_err(LogError::of_record)?;
            if let Some((last, _meta)) = &self.last
                && link.follows != last.sequence
            {
                return Err(LogError::Gap(last.sequence));
            }
            let meta = self.take_rows(&mut fields).map_err(LogError::of_record)?;
            self.last = Some((link, meta));
        }
        Ok(())
    }

    fn take_rows(&mut self, fields: &mut Fields<'_>) -> Result<Meta, RowError> {
        let meta = Meta::read(fields)?;
        for _ in 0..fields.u64()? {
            match fields.row()? {
                (key, Some(value)) => self.rows.insert(key.to_vec(), value.to_vec()),
                (key, None) => self.rows.remove(key),
            };
        }
        Ok(meta)
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
    /// Those of a store that holds nothing.
    pub(super) fn none(clock: &dyn Clock) -> Self {
        Self {
            meta: Meta {
                fence: 0,
                boot: clock.boot_id(),
                written_at: Moment::now(clock),
                rows: 0,
            },
            leases: Vec::new(),
            tombstones: Vec::new(),
        }
    }

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

/// Reads any bytes as a segment, and as what is in a record of one, for fuzzers: nothing panics.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn fuzzed_segment(bytes: &[u8]) -> String {
    let replayed = |bytes: &[u8]| {
        let segment = ParsedSegment::parse(bytes)?;
        let mut replay = Replay::default();
        replay.add(&segment)?;
        replay.finish()
    };
    let mut record = header(1);
    record.extend_from_slice(&1_u32.to_le_bytes());
    record.extend_from_slice(&[0; RECORD_HEADER - 4]);
    record.extend_from_slice(bytes);
    finish_record(&mut record, HEADER);
    record.extend_from_slice(&[0; ALIGNMENT]);
    format!("{:?} {:?}", replayed(bytes), replayed(&record))
}
