//! The log: one file that begins with a snapshot of everything that lived, to which every transaction is appended as
//! a record.
//!
//! The file is filled with zeros before it is used, so that a record overwrites what is there: its sync is one write
//! of data and no change of the file's own entries. A record goes out only when the one before it is durable, so at
//! most one can be torn, the last. When the file has become long, the next one is made beside it ([`Snapshot`]), with
//! the same transactions, and takes its place when it is complete: at any time, the file with the highest number holds
//! everything. Nothing is written behind a record that failed, or that another process has written: a new file begins
//! with everything instead.
//!
//! **A full disk.** A reserve file is kept in which a log can begin, as long as [`Log::space_needed`] says. When no file
//! can become longer, the log goes on in the reserve, with everything that lives, and the file before becomes the next
//! reserve: no block is given up in between, so nobody else can take it. That repeats for as long as what lives fits,
//! at least a quarter of a megabyte of records each time. What lives must therefore not grow meanwhile
//! ([`Log::shortage`]): who holds a lock can renew and release it, and nobody acquires one.

use std::{
    fmt,
    io::{self, ErrorKind},
};

use tracing::warn;

use crate::store::embedded::{
    records::{Meta, Rows},
    state::State,
};

use super::{
    layout::{ALIGNMENT, BLOCK, LogError, ParsedLog, REACHED, append_record, reached},
    replay::Contents,
    snapshot::Snapshot,
};

/// How many times as long as its snapshot a file becomes before the next one is made.
const GARBAGE: u64 = 2;
/// How many times what a file grows by is filled with zeros at once. All who renew a lease meanwhile wait for that.
const PIECE: u64 = 4;

/// Where the files of the log are: a directory, or a disk in a test.
pub(crate) trait Volume: fmt::Debug + Send {
    /// The numbers of the log files that there are, in any order.
    fn generations(&self) -> io::Result<Vec<u64>>;
    /// All of a log file.
    fn read(&self, generation: u64) -> io::Result<Vec<u8>>;
    /// A new file with these bytes, durable, that has no number yet.
    fn draft(&self, bytes: &[u8]) -> io::Result<Box<dyn DiskFile>>;
    /// Makes the draft the log file with this number, durably.
    fn put_in_place(&self, generation: u64) -> io::Result<()>;
    /// Removes the draft.
    fn discard_draft(&self) -> io::Result<()>;
    /// How many bytes are kept for when the disk is full.
    fn reserved(&self) -> io::Result<u64>;
    /// Makes sure that it is so many, and no more. If there is no room for them, it is as many as before.
    fn keep_reserve(&self, len: u64) -> io::Result<()>;
    /// As [`Volume::draft`], in the reserve, and as long as that is. Answers how long.
    fn draft_in_reserve(&self, bytes: &[u8]) -> io::Result<(Box<dyn DiskFile>, u64)>;
    /// Makes a log file the reserve, durably. Answers how long it is.
    fn recycle(&self, generation: u64) -> io::Result<u64>;
    /// Removes a log file, when those that are there have their place durably. It may come back after a loss of power.
    fn remove(&self, generation: u64) -> io::Result<()>;
    /// How many bytes of zeros a file grows by, and of rows are copied into the next one at once.
    fn growth(&self) -> usize;
    /// How long a file becomes at least before the next one is made.
    fn shortest_log(&self) -> u64;
}

/// A file that is open.
pub(crate) trait DiskFile: fmt::Debug + Send {
    /// Overwrites what is there, or appends.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes all of it durable.
    fn sync(&self) -> io::Result<()>;
}

/// The log of a data directory, open for writing.
#[derive(Debug)]
pub(crate) struct Log {
    volume: Box<dyn Volume>,
    file: LogFile,
    generation: u64,
    /// At which length of the file the next one is made.
    full_at: u64,
    /// The next file, while it is made.
    next: Option<NextFile>,
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

/// A log file that is open for writing.
#[derive(Debug)]
struct LogFile {
    disk: Box<dyn DiskFile>,
    salt: u32,
    /// Where the next record goes.
    end: u64,
    /// Up to where the file is filled with zeros, durably.
    allocated: u64,
}

/// A log file that is being made.
#[derive(Debug)]
struct NextFile {
    file: LogFile,
    snapshot: Snapshot,
}

/// Where a log ends that was read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LogEnd {
    generation: u64,
    /// Whether part of one more record is there.
    pub(crate) is_torn: bool,
    /// Whether it was written for a backup.
    pub(crate) is_backup: bool,
}

/// A write that failed.
#[derive(Debug)]
pub(crate) struct WriteFailure {
    pub(crate) error: io::Error,
    /// Whether the record may be found when the log is read.
    pub(crate) may_be_found: bool,
}

/// Why a log could not be opened.
#[derive(Debug)]
pub(crate) struct Unreadable {
    /// The number of the file that is to blame.
    pub(crate) generation: u64,
    pub(crate) error: LogError,
}

// === impl Log ===

impl Log {
    /// Reads the log of a volume: the file with the highest number. None if there is none.
    pub(crate) fn read(volume: &dyn Volume) -> Result<Option<(Contents, LogEnd)>, Unreadable> {
        let generations = volume.generations().map_err(|error| Unreadable {
            generation: 1,
            error: error.into(),
        })?;
        let Some(&generation) = generations.iter().max() else {
            return Ok(None);
        };
        if generations.len() > 1 {
            warn!(
                generation,
                "there are several log files; the one with the highest number is used, and the others are removed"
            );
        }
        let read = || -> Result<_, LogError> {
            let bytes = volume.read(generation)?;
            let log = ParsedLog::parse(&bytes)?;
            let end = LogEnd {
                generation,
                is_torn: !log.is_clean,
                is_backup: log.is_backup,
            };
            Ok((Contents::replay(&log)?, end))
        };
        read()
            .map(Some)
            .map_err(|error| Unreadable { generation, error })
    }

    /// Goes on where a log ended, with a file that begins with every row.
    ///
    /// What was read may be in the page cache only, whoever wrote it: nothing is appended to it.
    pub(crate) fn begin(
        volume: Box<dyn Volume>,
        end: LogEnd,
        meta: &Meta,
        state: &State,
    ) -> Result<Self, WriteFailure> {
        let mut reserved = volume.reserved().map_err(WriteFailure::certain)?;
        // Before there is another file: each start that is killed would leave one more. On a full disk, the reserve may
        // have become the log, and nothing the reserve yet.
        remove_before(&*volume, end.generation, &mut reserved).map_err(WriteFailure::certain)?;
        let (file, in_reserve) = draft(&*volume, Snapshot::whole(state, meta))?;
        let mut log = Self {
            file,
            generation: end.generation,
            full_at: 0,
            next: None,
            is_torn: false,
            reserved: if in_reserve { 0 } else { reserved },
            keeps_space: true,
            shortage: in_reserve.then_some(ErrorKind::StorageFull),
            record: Vec::new(),
            volume,
        };
        log.put_in_place()?;
        Ok(log)
    }

    /// How the disk has said that it is full, if it is: nothing may be added to what lives.
    pub(crate) fn shortage(&self) -> Option<ErrorKind> {
        self.shortage
    }

    /// Whether more space is needed to go on when the disk is full, while so many bytes of rows live, or less.
    pub(crate) fn lacks_space(&self, live: u64) -> bool {
        let needed = self.space_needed(live);
        let is_enough =
            self.file.allocated >= needed && (needed..=4 * needed).contains(&self.reserved);
        self.keeps_space && !is_enough
    }

    /// Makes the file and the reserve longer by a piece each, if they lack space. Once the disk is full, this looks
    /// whether it has room for more than what is kept anyway. Answers whether to go on at once.
    pub(crate) fn keep_space(&mut self, live: u64) -> bool {
        let needed = self.space_needed(live);
        let kept = match self.shortage {
            Some(_) => self.look_for_room(needed),
            None if self.lacks_space(live) => self.keep_piece(needed),
            None => return false,
        };
        match kept {
            Ok(()) => self.shortage.is_some() || self.lacks_space(live),
            Err(error) if is_full(&error) => {
                self.shortage = Some(error.kind());
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
        if self.file.allocated.min(self.reserved) < needed {
            return self.keep_piece(needed);
        }
        // The reserve and the file can grow once more each.
        let reserved = self.reserved;
        self.keep_reserve(reserved + 2 * self.growth())?;
        self.keep_reserve(reserved)?;
        self.shortage = None;
        Ok(())
    }

    fn keep_piece(&mut self, needed: u64) -> io::Result<()> {
        let growth = self.growth();
        let piece_from = |len: u64| (len + PIECE * growth).min(needed + growth);
        // The last space there is in smaller pieces.
        if !(needed..=4 * needed).contains(&self.reserved) {
            self.keep_reserve(piece_from(self.reserved))
                .or_else(|_full| self.keep_reserve(self.reserved + growth))?;
        }
        let file = &mut self.file;
        if file.allocated < needed {
            file.fill_up_to(piece_from(file.allocated))
                .or_else(|_full| file.fill_up_to(file.allocated + growth))?;
        }
        Ok(())
    }

    fn keep_reserve(&mut self, len: u64) -> io::Result<()> {
        self.volume.keep_reserve(len)?;
        self.reserved = len;
        Ok(())
    }

    /// How many bytes of rows fit into a new file on a full disk, and into the file that follows it.
    pub(crate) fn room(&self) -> u64 {
        // A file has a header, and ends with a whole block of which the last bytes are zeros.
        // Each part of it is a record with a head of its own: less than a part in 2,048.
        let kept = self.file.allocated.min(self.reserved);
        kept.saturating_sub(2 * BLOCK as u64) / 2_049 * 2_048
    }

    /// Whether much of the log is not needed any more, while so many bytes of rows live.
    pub(crate) fn is_wasteful(&self, live: u64) -> bool {
        let needed = self.space_needed(live);
        self.file.end > needed || self.file.allocated > 2 * needed
    }

    /// How many bytes have to become free before locks are acquired again on a full disk, at most.
    pub(crate) fn space_lacking(&self, live: u64) -> u64 {
        let needed = self.space_needed(live);
        let lacking = |kept: u64| needed.saturating_sub(kept) + self.growth();
        lacking(self.file.allocated) + lacking(self.reserved)
    }

    /// How long the file and the reserve are at least while so many bytes of rows live: for these, as much again and
    /// more than one growth for the records that follow.
    fn space_needed(&self, live: u64) -> u64 {
        (2 * live / self.growth() + 2) * self.growth()
    }

    fn growth(&self) -> u64 {
        self.volume.growth() as u64
    }

    /// Makes sure that there is room for a transaction, as far as one can know.
    pub(crate) fn reserve(&mut self) -> io::Result<()> {
        let needed = self.file.end + self.growth();
        if needed > self.file.allocated {
            self.file
                .fill_up_to(needed.next_multiple_of(self.growth()))?;
        }
        Ok(())
    }

    /// Another process has changed the file: nothing may be appended to it.
    pub(crate) fn distrust(&mut self) {
        self.is_torn = true;
    }

    /// Whether nothing may be appended, because part of a record may be there.
    pub(crate) fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// The number of the file that is in use.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Writes a transaction behind the last one; durable when this returns.
    pub(crate) fn append(&mut self, meta: &Meta, rows: &Rows) -> Result<(), WriteFailure> {
        self.record.clear();
        append_record(&mut self.record, self.file.salt, meta, rows);
        // A reader knows by what is behind the last record that there is no more.
        let needed = self.file.end + (self.record.len() + ALIGNMENT) as u64;
        if needed > self.file.allocated {
            self.grow(needed).map_err(WriteFailure::certain)?;
        }
        self.is_torn = true;
        self.file
            .write(&self.record)
            .map_err(WriteFailure::of_write)?;
        self.file.disk.sync().map_err(WriteFailure::uncertain)?;
        self.is_torn = false;
        if let Some(next) = &mut self.next {
            next.snapshot.add(meta, rows);
        }
        Ok(())
    }

    /// Whether the next file is due, or being made.
    pub(crate) fn needs_next(&self) -> bool {
        self.file.end >= self.full_at
    }

    /// Goes on with the next file by one part of what lives, all of which is durable. Answers whether the next file was
    /// complete and has taken the place of this one.
    pub(crate) fn go_on_with_next(
        &mut self,
        meta: &Meta,
        state: &State,
    ) -> Result<bool, WriteFailure> {
        let (needed, growth) = (self.space_needed(state.live_bytes()), self.growth());
        let next = match self.next.take() {
            Some(next) => Ok(next),
            None => NextFile::begin(&*self.volume),
        };
        let gone_on =
            next.and_then(|mut next| Ok((next.go_on(meta, state, needed, growth)?, next)));
        match gone_on {
            Ok((true, next)) => {
                self.file = next.file;
                self.put_in_place()?;
                Ok(true)
            }
            Ok((false, next)) => {
                self.next = Some(next);
                Ok(false)
            }
            Err(error) => {
                warn!(%error, "cannot make a new file of the log");
                self.discard_draft();
                // There may be room yet in the file that is there.
                self.full_at = self.file.end + self.volume.shortest_log();
                if !is_full(&error) {
                    return Ok(false);
                }
                // What lives goes on in a shorter file, or in the reserve.
                match self.rewrite(meta, state) {
                    Err(failure) if failure.is_of_space() => Ok(false),
                    rewritten => rewritten.map(|()| true),
                }
            }
        }
    }

    /// Begins a new file with every row at once. On a full disk it is made in the reserve.
    pub(crate) fn rewrite(&mut self, meta: &Meta, state: &State) -> Result<(), WriteFailure> {
        if self.next.take().is_some() {
            self.discard_draft();
        }
        let drafted = draft(&*self.volume, Snapshot::whole(state, meta));
        let (file, in_reserve) = drafted.inspect_err(|failure| {
            if failure.is_of_space() {
                self.shortage = Some(failure.error.kind());
            }
        })?;
        if in_reserve {
            self.reserved = 0;
            self.shortage = Some(ErrorKind::StorageFull);
        }
        self.file = file;
        self.put_in_place()
    }

    /// Ends in good order: from now on a record that is missing at the end is noticed.
    pub(crate) fn close(self) -> io::Result<()> {
        let LogFile {
            disk, salt, end, ..
        } = self.file;
        disk.write_at(&reached(salt, end), REACHED as u64)?;
        disk.sync()
    }

    fn grow(&mut self, needed: u64) -> io::Result<()> {
        let Err(error) = self.file.fill_up_to(needed.next_multiple_of(self.growth())) else {
            return Ok(());
        };
        if is_full(&error) {
            self.shortage = Some(error.kind());
        }
        // The last space there is.
        self.file.fill_up_to(needed.next_multiple_of(BLOCK as u64))
    }

    fn discard_draft(&self) {
        if let Err(error) = self.volume.discard_draft() {
            warn!(%error, "cannot remove an unfinished file of the data directory");
        }
    }

    /// Makes the draft the log. The file before is not needed any more.
    fn put_in_place(&mut self) -> Result<(), WriteFailure> {
        // If this fails, the new file may be in its place nevertheless, and hide what is appended to the one before. The
        // next attempt replaces it.
        self.is_torn = true;
        let generation = self.generation + 1;
        self.volume
            .put_in_place(generation)
            .map_err(WriteFailure::uncertain)?;
        self.is_torn = false;
        self.generation = generation;
        self.full_at = self.volume.shortest_log().max(GARBAGE * self.file.end);
        if let Err(error) = remove_before(&*self.volume, generation, &mut self.reserved) {
            warn!(%error, "cannot remove an old file of the data directory");
        }
        Ok(())
    }
}

/// Removes the log files before this one. If there is no reserve, the first of them becomes it.
fn remove_before(volume: &dyn Volume, generation: u64, reserved: &mut u64) -> io::Result<()> {
    let mut older = volume.generations()?;
    older.retain(|&it| it < generation);
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

/// Makes a draft of a whole snapshot; on a full disk in the reserve. Answers whether it was.
fn draft(volume: &dyn Volume, snapshot: Snapshot) -> Result<(LogFile, bool), WriteFailure> {
    let salt = snapshot.salt;
    let (bytes, end) = snapshot.finish();
    let (disk, allocated, in_reserve) = match volume.draft(&bytes) {
        Ok(disk) => (disk, bytes.len() as u64, false),
        Err(full) if is_full(&full) => {
            let drafted = volume.draft_in_reserve(&bytes);
            let (disk, allocated) = drafted.map_err(|error| match error.kind() {
                // Nothing is kept.
                ErrorKind::NotFound => WriteFailure::certain(full),
                _ => WriteFailure::certain(error),
            })?;
            (disk, allocated, true)
        }
        Err(error) => return Err(WriteFailure::certain(error)),
    };
    let file = LogFile {
        disk,
        salt,
        end,
        allocated,
    };
    Ok((file, in_reserve))
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

// === impl LogFile ===

impl LogFile {
    /// Writes records behind the last one. They are not synced yet.
    fn write(&mut self, records: &[u8]) -> io::Result<()> {
        self.disk.write_at(records, self.end)?;
        self.end += records.len() as u64;
        self.allocated = self.allocated.max(self.end);
        Ok(())
    }

    fn fill_up_to(&mut self, allocated: u64) -> io::Result<()> {
        let zeros = vec![0; usize::try_from(allocated - self.allocated).unwrap_or(usize::MAX)];
        self.disk.write_at(&zeros, self.allocated)?;
        self.disk.sync()?;
        self.allocated = allocated;
        Ok(())
    }
}

// === impl NextFile ===

impl NextFile {
    fn begin(volume: &dyn Volume) -> io::Result<Self> {
        let snapshot = Snapshot::begin(volume.growth());
        let file = LogFile {
            disk: volume.draft(&[])?,
            salt: snapshot.salt,
            end: 0,
            allocated: 0,
        };
        Ok(Self { file, snapshot })
    }

    /// Copies a part of what lives, then makes the file as long as is needed, a piece at a time. Answers whether it is
    /// complete.
    fn go_on(&mut self, meta: &Meta, state: &State, needed: u64, growth: u64) -> io::Result<bool> {
        let more = self.snapshot.copy_part(state, meta);
        let file = &mut self.file;
        file.write(&std::mem::take(&mut self.snapshot.bytes))?;
        // A file that takes the place of a longer one must not be too short to go on from on a full disk.
        let needed = needed.max(file.end + growth);
        if more || file.allocated >= needed {
            file.disk.sync()?;
            return Ok(!more);
        }
        file.fill_up_to(needed.min(file.allocated + PIECE * growth))?;
        // Not in the next pass: each batch adds something behind what was filled, and may add more than the file grows by.
        Ok(file.allocated >= needed)
    }
}

// === impl WriteFailure ===

impl WriteFailure {
    /// Whether nothing was written because the disk is full.
    pub(crate) fn is_of_space(&self) -> bool {
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
        if is_full(&error) || error.kind() == ErrorKind::ReadOnlyFilesystem {
            Self::certain(error)
        } else {
            Self::uncertain(error)
        }
    }

    fn uncertain(error: io::Error) -> Self {
        Self {
            error,
            may_be_found: true,
        }
    }
}
