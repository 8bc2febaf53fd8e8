//! The log: every transaction is a record, appended in order to the newest of its segments.
//!
//! A segment is a file that is filled with zeros before it is used, so that a record overwrites what is
//! there: its sync is one write of data and no change of the file's own entries. A record goes out only when
//! the one before it is durable, so at most one can be torn, the last. What lives is copied into a new
//! segment, some rows with each transaction, when the one before has become long; then that one is removed.
//! Nothing is written behind a record that failed, or that another process has written: a new segment begins
//! with everything instead.
//!
//! **A full disk.** A file is kept in which a segment can begin, as long as [`Log::space_needed`] says. When no
//! file can become longer, the log goes on in it, with everything that lives, and the segment before becomes the file
//! that is kept next: no block is given up in between, so nobody else can take it. That repeats for as long as what
//! lives fits, at least a quarter of a megabyte of records each time. What lives must therefore not grow meanwhile
//! ([`Log::shortage`]): who holds a lock can renew and release it, and nobody acquires one.

use std::{
    fmt,
    io::{self, ErrorKind},
    ops::RangeInclusive,
    slice,
};

use tracing::warn;

use super::{
    layout::{
        ALIGNMENT, BLOCK, IS_CONTINUED, Link, LogError, MARK, Mark, ParsedSegment, REACHED,
        append_record, header, is_left_over, new_salt, reached,
    },
    replay::{Contents, Replay},
    row::{Meta, Rows},
};

/// The first segment of a log.
const FIRST: u64 = 1;
/// How many times as long as after its last copy a segment becomes.
const GARBAGE: u64 = 2;
/// How many times what a segment grows by is kept at once for when the disk is full. All who renew a lease
/// meanwhile wait for that.
const PIECE: u64 = 4;

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
    /// How many bytes are kept for when the disk is full.
    fn reserved(&self) -> io::Result<u64>;
    /// Makes sure that it is so many, and no more. If there is no room for them, it is as many as before.
    fn keep_reserve(&self, len: u64) -> io::Result<()>;
    /// As [`Volume::draft`], in the space that is kept, and as long as that is. Answers how long.
    fn draft_in_reserve(&self, bytes: &[u8]) -> io::Result<(Box<dyn Segment>, u64)>;
    /// Keeps the space of a segment that is not needed any more, which is no segment then, durably. Answers how
    /// much that is.
    fn recycle(&self, generation: u64) -> io::Result<u64>;
    /// Removes a segment, when those that are there have their place durably. It may come back after a loss of power.
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
    /// The same of the segment before, while what lives is copied out of it.
    allocated_before: u64,
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
    /// How many bytes are kept for when the disk is full.
    reserved: u64,
    /// Whether space can be kept at all, as far as is known.
    keeps_space: bool,
    /// How the disk last said that it is full, if it is.
    shortage: Option<ErrorKind>,
    /// Kept for its memory.
    record: Vec<u8>,
}

/// Where a log ends that was read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LogEnd {
    generation: u64,
    sequence: u64,
    /// The first segment that was needed when the newest one began: that is durable for certain.
    base: u64,
    /// Whether part of one more record is there.
    pub(super) is_torn: bool,
    /// Whether it was written for a backup.
    pub(super) is_backup: bool,
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
        if last.mark == Mark::Continued {
            return Err(of(newest)(LogError::Gap(link.sequence)));
        }
        let mut replay = Replay::default();
        let mut first = last.first_link().map_err(of(newest))?;
        let base = first.base;
        let (needed, older): (Vec<u64>, Vec<u64>) =
            generations.into_iter().partition(|&it| it >= link.base);
        for (at, &older) in needed.iter().enumerate() {
            let bytes = volume.read(older).map_err(io(older))?;
            let segment = ParsedSegment::parse_older(&bytes).map_err(of(older))?;
            replay.add(&segment).map_err(of(older))?;
            if at == 0 {
                first = segment.first_link().map_err(of(older))?;
            }
        }
        for older in older {
            // They are about to be removed: somebody may have put them here, to go on from there.
            let bytes = volume.read(older).map_err(io(older))?;
            if !is_left_over(&bytes, first.follows) {
                return Err(of(older)(LogError::AnotherLog { newest }));
            }
        }
        replay.add(&last).map_err(of(newest))?;
        let contents = replay.finish().map_err(of(newest))?;
        let end = LogEnd {
            generation: newest,
            sequence: link.sequence,
            base,
            is_torn: !last.is_clean,
            is_backup: last.mark == Mark::Backup,
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
        let mut reserved = volume.reserved().map_err(WriteFailure::certain)?;
        // Before there is another segment: each start that is killed would leave one more, and the first of them does
        // not lead to the last. On a full disk, the reserve may have become a segment, and nothing the reserve yet.
        remove_before(&*volume, end.base, &mut reserved).map_err(WriteFailure::certain)?;
        let placed = draft.put_in_place(&*volume, generation, WhenFull::UseReserve)?;
        if placed.in_reserve {
            reserved = 0;
        }
        let mut log = Self {
            segment: placed.segment,
            generation,
            salt: draft.salt,
            end: draft.end,
            allocated: placed.len,
            allocated_before: 0,
            full_at: 0,
            base: generation,
            highest: generation,
            durable: draft.last,
            sequence: draft.last,
            is_torn: false,
            reserved,
            keeps_space: true,
            shortage: placed.in_reserve.then_some(ErrorKind::StorageFull),
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

    /// How the disk has said that it is full, if it is: nothing may be added to what lives.
    pub(super) fn shortage(&self) -> Option<ErrorKind> {
        self.shortage
    }

    /// Whether more space is needed to go on when the disk is full, while so many bytes of rows live, or less.
    pub(super) fn lacks_space(&self, live: u64) -> bool {
        let needed = self.space_needed(live);
        let is_enough = self.allocated >= needed && (needed..=4 * needed).contains(&self.reserved);
        self.keeps_space && !is_enough
    }

    /// Makes the segment and the reserve longer by a piece each, if they lack space. Once the disk is full, this looks
    /// whether it has room for more than what is kept anyway. Answers whether to go on at once.
    pub(super) fn keep_space(&mut self, live: u64) -> bool {
        let needed = self.space_needed(live);
        let kept = match self.shortage {
            Some(_) => self.look_for_room(needed),
            None if self.lacks_space(live) => self.keep_piece(needed),
            None => return false,
        };
        match kept {
            Ok(()) => self.shortage.is_some() || self.lacks_space(live),
            Err(error) if is_full(&error) => {
                // What lives is still in the segment before, and that makes room when it goes.
                let can_wait = self.recyclable().min(self.reserved) >= needed;
                if !can_wait {
                    self.shortage = Some(error.kind());
                }
                false
            }
            Err(error) => {
                // Nothing says that the disk is full. Until it is, the log is as good without.
                warn!(%error, "cannot keep space for when the disk is full");
                self.shortage = None;
                self.keeps_space = false;
                false
            }
        }
    }

    fn look_for_room(&mut self, needed: u64) -> io::Result<()> {
        if self.reserved > needed {
            // Others need what is too much.
            self.keep_reserve(needed)?;
        }
        if self.allocated.min(self.reserved) < needed {
            return self.keep_piece(needed);
        }
        // The reserve and the segment can grow once more each.
        let reserved = self.reserved;
        self.keep_reserve(reserved + 2 * self.volume.growth() as u64)?;
        self.keep_reserve(reserved)?;
        self.shortage = None;
        Ok(())
    }

    fn keep_piece(&mut self, needed: u64) -> io::Result<()> {
        let growth = self.volume.growth() as u64;
        let piece_from = |len: u64| (len + PIECE * growth).min(needed + growth);
        // The last space there is in smaller pieces.
        if !(needed..=4 * needed).contains(&self.reserved) {
            self.keep_reserve(piece_from(self.reserved))
                .or_else(|_full| self.keep_reserve(self.reserved + growth))?;
        }
        if self.allocated < needed {
            self.fill_up_to(piece_from(self.allocated))
                .or_else(|_full| self.fill_up_to(self.allocated + growth))?;
        }
        Ok(())
    }

    fn keep_reserve(&mut self, len: u64) -> io::Result<()> {
        self.volume.keep_reserve(len)?;
        self.reserved = len;
        Ok(())
    }

    /// Whether what lives has room in a new segment on a full disk, and in the one that follows it.
    pub(super) fn can_go_on(&self, live: u64) -> bool {
        // A segment has a header, and ends with a whole block of which the last bytes are zeros.
        live.saturating_add(2 * BLOCK as u64) < self.recyclable().min(self.reserved)
    }

    /// Whether so many bytes more may live on a full disk, and leave half of the room that is kept beside what lives.
    pub(super) fn has_room_beside(&self, live: u64, more: u64) -> bool {
        self.can_go_on(live.saturating_add(live / 2).saturating_add(more))
    }

    /// How long the segment is that becomes the reserve if that is used.
    fn recyclable(&self) -> u64 {
        if self.base < self.generation {
            self.allocated_before
        } else {
            self.allocated
        }
    }

    /// Whether much of the log is not needed any more, while so many bytes of rows live.
    pub(super) fn is_wasteful(&self, live: u64) -> bool {
        let needed = self.space_needed(live);
        self.base < self.generation || self.end > needed || self.allocated > 2 * needed
    }

    /// How many bytes have to become free before locks are acquired again on a full disk, at most.
    pub(super) fn space_lacking(&self, live: u64) -> u64 {
        let needed = self.space_needed(live);
        let lacking = |kept: u64| needed.saturating_sub(kept) + self.volume.growth() as u64;
        lacking(self.allocated) + lacking(self.reserved)
    }

    /// How long the segment and the reserve are at least while so many bytes of rows live: for these, as much
    /// again and more than one growth for the records that follow.
    fn space_needed(&self, live: u64) -> u64 {
        let growth = self.volume.growth() as u64;
        (2 * live / growth + 2) * growth
    }

    /// Makes sure that there is room for a transaction, as far as one can know.
    pub(super) fn reserve(&mut self) -> io::Result<()> {
        let growth = self.volume.growth() as u64;
        let needed = self.end + growth;
        if needed > self.allocated {
            self.fill_up_to(needed.next_multiple_of(growth))?;
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
        let rows = slice::from_ref(rows);
        self.go_on_in(self.highest + 1, self.base, meta, rows, WhenFull::Refuse)
    }

    /// Begins a new segment with every row; nothing else is needed any more. On a full disk that is in the space
    /// that is kept for it.
    pub(super) fn rewrite(&mut self, meta: &Meta, everything: &[Rows]) -> Result<(), WriteFailure> {
        let generation = self.highest + 1;
        let when_full = WhenFull::UseReserve;
        self.go_on_in(generation, generation, meta, everything, when_full)?;
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
        let link = Link {
            sequence: self.sequence + 1,
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
        // No number twice: from here on this one may be found.
        self.sequence = link.sequence;
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
        let Err(error) = self.fill_up_to(needed.next_multiple_of(growth)) else {
            return Ok(());
        };
        if is_full(&error) {
            self.shortage = Some(error.kind());
        }
        // The last space there is.
        self.fill_up_to(needed.next_multiple_of(BLOCK as u64))
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
        when_full: WhenFull,
    ) -> Result<(), WriteFailure> {
        self.highest = generation;
        let last = Link {
            sequence: self.sequence,
            follows: self.durable,
            base,
        };
        let draft = Draft::new(last, meta, rows);
        let placed = match draft.put_in_place(&*self.volume, generation, when_full) {
            Ok(placed) => placed,
            Err(failure) => {
                if failure.is_of_space() {
                    self.shortage = Some(failure.error.kind());
                } else if failure.may_be_found {
                    self.is_torn = true;
                    // No number twice.
                    self.sequence = draft.last;
                }
                return Err(failure);
            }
        };
        self.sequence = draft.last;
        if placed.in_reserve {
            self.reserved = 0;
        }
        self.allocated_before = self.allocated;
        let before = std::mem::replace(&mut self.segment, placed.segment);
        let continued = before.write_at(&IS_CONTINUED.to_le_bytes(), MARK as u64);
        // Without the mark nothing is wrong but what somebody does with the files.
        continued.and_then(|()| before.sync()).ok();
        self.generation = generation;
        self.salt = draft.salt;
        self.end = draft.end;
        self.allocated = placed.len;
        self.durable = draft.last;
        self.is_torn = false;
        self.base = base;
        Ok(())
    }

    fn forget_older(&mut self) {
        self.full_at = self.volume.shortest_segment().max(GARBAGE * self.end);
        if let Err(error) = remove_before(&*self.volume, self.base, &mut self.reserved) {
            warn!(%error, "cannot remove an old file of the data directory");
        }
    }
}

/// Removes the segments before this one. If no space is kept for a full disk, that of the first of them is: it is the
/// longest while what lives is copied out of it.
fn remove_before(volume: &dyn Volume, base: u64, reserved: &mut u64) -> io::Result<()> {
    let mut older = volume.generations()?;
    older.retain(|&it| it < base);
    older.sort_unstable();
    for older in older {
        if *reserved == 0
            && let Ok(len) = volume.recycle(older)
        {
            *reserved = len;
        } else {
            volume.remove(older)?;
        }
    }
    Ok(())
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

// === impl WriteFailure ===

impl WriteFailure {
    /// Whether nothing was written because the disk is full.
    pub(super) fn is_of_space(&self) -> bool {
        !self.may_be_found && is_full(&self.error)
    }

    fn certain(error: io::Error) -> Self {
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

/// What becomes of a segment for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WhenFull {
    Refuse,
    UseReserve,
}

/// A segment that has its place.
struct Placed {
    segment: Box<dyn Segment>,
    /// Up to where it is filled with zeros.
    len: u64,
    in_reserve: bool,
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
        when_full: WhenFull,
    ) -> Result<Placed, WriteFailure> {
        let (len, in_reserve, segment) = match volume.draft(&self.bytes) {
            Ok(segment) => (self.bytes.len() as u64, false, segment),
            Err(full) if is_full(&full) && when_full == WhenFull::UseReserve => {
                let drafted = volume.draft_in_reserve(&self.bytes);
                let (segment, len) = drafted.map_err(|error| match error.kind() {
                    // Nothing is kept.
                    ErrorKind::NotFound => WriteFailure::certain(full),
                    _ => WriteFailure::certain(error),
                })?;
                (len, true, segment)
            }
            Err(error) => return Err(WriteFailure::certain(error)),
        };
        volume
            .put_in_place(generation)
            .map_err(WriteFailure::uncertain)?;
        Ok(Placed {
            segment,
            len,
            in_reserve,
        })
    }
}
