//! The log: one file that begins with a snapshot of all rows, to which every transaction is appended as a
//! record.
//!
//! The file is filled with zeros before it is used, so that a record overwrites what is there: its sync is one
//! write of data and no change of the file's metadata. A record is written only when the record before it is
//! durable, so at most the last record can be torn. When the file has become long, the next file is made beside
//! it ([`Snapshot`]), with the same transactions, and replaces it when it is complete: at any time, the file
//! with the highest number holds everything. Nothing is written behind a record that failed, or that another
//! process has written: a new file with all rows is begun instead.
//!
//! **A full disk.** A reserve file is kept in which a log can begin; [`Log::space_needed`] says how long it is.
//! When no file can grow, the log continues in the reserve, with all rows, and the file before it becomes the
//! next reserve: no block is freed in between, so no other program can take it. This can be repeated as long as
//! the rows fit, for at least a quarter of a megabyte of records each time. The rows must therefore not grow
//! meanwhile ([`Log::shortage`]): holders can renew and release their leases, and no lock is acquired.

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

/// The next log file is made when the current log file is this many times as long as its snapshot.
const GARBAGE: u64 = 2;
/// How many growth steps of a file are filled with zeros at once, at most. Renewals wait meanwhile.
const PIECE: u64 = 4;

/// The place where the files of the log are: a directory, or a simulated disk in a test.
pub(crate) trait Volume: fmt::Debug + Send {
    /// The numbers of the existing log files, in any order.
    fn generations(&self) -> io::Result<Vec<u64>>;
    /// The whole content of a log file.
    fn read(&self, generation: u64) -> io::Result<Vec<u8>>;
    /// Creates a draft, a durable new file with these bytes that is not a log file yet.
    fn draft(&self, bytes: &[u8]) -> io::Result<Box<dyn DiskFile>>;
    /// Turns the draft into the log file with this number, durably.
    fn put_in_place(&self, generation: u64) -> io::Result<()>;
    /// Removes the draft of a log file.
    fn discard_draft(&self) -> io::Result<()>;
    /// The length of the reserve, which is kept for a full disk, in bytes.
    fn reserved(&self) -> io::Result<u64>;
    /// Makes the reserve exactly this many bytes long. If the disk has no room, the reserve stays as long as before.
    fn keep_reserve(&self, len: u64) -> io::Result<()>;
    /// As [`Volume::draft`], but turns the reserve into the draft, which keeps its length. Returns the length.
    fn draft_in_reserve(&self, bytes: &[u8]) -> io::Result<(Box<dyn DiskFile>, u64)>;
    /// Turns a log file into the reserve, durably. Returns its length.
    fn recycle(&self, generation: u64) -> io::Result<u64>;
    /// Removes a log file, after the remaining files are durably in place. The removed file may come back after
    /// a loss of power.
    fn remove(&self, generation: u64) -> io::Result<()>;
    /// How many bytes of zeros a log file grows by in one step, and how many bytes of rows are copied into the next log
    /// file at once.
    fn growth(&self) -> usize;
    /// The length of a log file below which no next log file is made.
    fn shortest_log(&self) -> u64;
}

/// A file of the volume that is open for writing.
pub(crate) trait DiskFile: fmt::Debug + Send {
    /// Writes bytes at this offset: overwrites existing bytes, or appends to the file.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes everything that was written to the file durable.
    fn sync(&self) -> io::Result<()>;
}

/// The log of a data directory, open for writing.
#[derive(Debug)]
pub(crate) struct Log {
    volume: Box<dyn Volume>,
    file: LogFile,
    generation: u64,
    /// The length of the log file at which the next log file is made.
    full_at: u64,
    /// The next log file, while it is being made.
    next: Option<NextFile>,
    /// Whether part of a record may follow the last durable record of the log file.
    is_torn: bool,
    /// The length of the reserve, which is kept for a full disk, in bytes.
    reserved: u64,
    /// Whether the log keeps space for a full disk. False after keeping space has failed for another reason than a full
    /// disk.
    keeps_space: bool,
    /// The error with which the disk reported that it is full; `None` if it has room.
    shortage: Option<ErrorKind>,
    /// Buffer for encoding a record, kept so that its memory is reused.
    record: Vec<u8>,
}

/// A log file that is open for writing.
#[derive(Debug)]
struct LogFile {
    disk: Box<dyn DiskFile>,
    salt: u32,
    /// Offset of the next record in the log file.
    end: u64,
    /// Length up to which the log file is filled with zeros, durably.
    allocated: u64,
}

/// The next log file, while it is being made.
#[derive(Debug)]
struct NextFile {
    file: LogFile,
    snapshot: Snapshot,
}

/// What a start found at the end of the log.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LogEnd {
    generation: u64,
    /// Whether part of a record follows the last whole record of the log file.
    pub(crate) is_torn: bool,
    /// Whether the log file is a backup.
    pub(crate) is_backup: bool,
}

/// A write to the log that failed.
#[derive(Debug)]
pub(crate) struct WriteFailure {
    pub(crate) error: io::Error,
    /// Whether a start may find the record in the log although its write failed.
    pub(crate) may_be_found: bool,
}

/// An error that prevented reading the log.
#[derive(Debug)]
pub(crate) struct Unreadable {
    /// The number of the log file that could not be read.
    pub(crate) generation: u64,
    pub(crate) error: LogError,
}

// === impl Log ===

impl Log {
    /// Reads the log file with the highest number; `None` if there is no log file.
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

    /// Begins a log file with every row, to continue a log that was read.
    ///
    /// The log file that was read may be in the page cache only, whichever process wrote it, so nothing is appended to
    /// it.
    pub(crate) fn begin(
        volume: Box<dyn Volume>,
        end: LogEnd,
        meta: &Meta,
        state: &State,
    ) -> Result<Self, WriteFailure> {
        let mut reserved = volume.reserved().map_err(WriteFailure::certain)?;
        // Old log files are removed before a new file is made: otherwise each start that is killed would leave
        // one more file. After a crash on a full disk, the reserve may have become the log while no file is the
        // reserve yet.
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

    /// The error with which the disk reported that it is full, if it is full: the rows must not grow while it is.
    pub(crate) fn shortage(&self) -> Option<ErrorKind> {
        self.shortage
    }

    /// Whether the log file or the reserve is too short to continue on a full disk, with this many bytes of rows or
    /// less.
    pub(crate) fn lacks_space(&self, live: u64) -> bool {
        let needed = self.space_needed(live);
        let is_enough =
            self.file.allocated >= needed && (needed..=4 * needed).contains(&self.reserved);
        self.keeps_space && !is_enough
    }

    /// Makes the log file and the reserve longer by a piece each, if they are too short. On a full disk, this checks
    /// whether the disk has more room than the two files need. Returns whether to continue at once.
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
                // The reserve failed for another reason than a full disk. Until the disk is full, the log works without
                // a reserve.
                warn!(%error, "cannot keep space for when the disk is full");
                self.shortage = None;
                self.keeps_space = false;
                false
            }
        }
    }

    fn look_for_room(&mut self, needed: u64) -> io::Result<()> {
        if self.reserved > needed {
            // A reserve that is longer than needed takes space from other programs.
            self.keep_reserve(needed)?;
        }
        if self.file.allocated.min(self.reserved) < needed {
            return self.keep_piece(needed);
        }
        // The disk has room if the reserve and the log file could grow once more each.
        let reserved = self.reserved;
        self.keep_reserve(reserved + 2 * self.growth())?;
        self.keep_reserve(reserved)?;
        self.shortage = None;
        Ok(())
    }

    fn keep_piece(&mut self, needed: u64) -> io::Result<()> {
        let growth = self.growth();
        let piece_from = |len: u64| (len + PIECE * growth).min(needed + growth);
        // If a whole piece does not fit on the disk, the reserve takes the last free space in smaller pieces.
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

    /// How many bytes of rows fit into a new log file on a full disk, and into the log file after it.
    pub(crate) fn room(&self) -> u64 {
        // A file has a header, and ends with a whole block whose last bytes are zeros. Each part of the rows is
        // a record with its own header, which takes less than one byte in 2,048.
        let kept = self.file.allocated.min(self.reserved);
        kept.saturating_sub(2 * BLOCK as u64) / 2_049 * 2_048
    }

    /// Whether much of the log file is obsolete, given this many bytes of rows.
    pub(crate) fn is_wasteful(&self, live: u64) -> bool {
        let needed = self.space_needed(live);
        self.file.end > needed || self.file.allocated > 2 * needed
    }

    /// The most bytes that have to become free on a full disk before locks are acquired again.
    pub(crate) fn space_lacking(&self, live: u64) -> u64 {
        let needed = self.space_needed(live);
        let lacking = |kept: u64| needed.saturating_sub(kept) + self.growth();
        lacking(self.file.allocated) + lacking(self.reserved)
    }

    /// The least length of the log file and of the reserve, given this many bytes of rows: twice these bytes, and more
    /// than one growth step for the records that follow.
    fn space_needed(&self, live: u64) -> u64 {
        (2 * live / self.growth() + 2) * self.growth()
    }

    fn growth(&self) -> u64 {
        self.volume.growth() as u64
    }

    /// Allocates room for the next transaction, as far as its length can be known in advance.
    pub(crate) fn reserve(&mut self) -> io::Result<()> {
        let needed = self.file.end + self.growth();
        if needed > self.file.allocated {
            self.file
                .fill_up_to(needed.next_multiple_of(self.growth()))?;
        }
        Ok(())
    }

    /// Forbids appending to the log file, because another process has changed it.
    pub(crate) fn distrust(&mut self) {
        self.is_torn = true;
    }

    /// Whether nothing may be appended to the log file, because part of a record may follow the last durable record.
    pub(crate) fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// The number of the current log file, which is the highest.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Appends a transaction to the log, durably.
    pub(crate) fn append(&mut self, meta: &Meta, rows: &Rows) -> Result<(), WriteFailure> {
        self.record.clear();
        append_record(&mut self.record, self.file.salt, meta, rows);
        // Zeros must remain behind the last record: they show a reader that no record follows.
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

    /// Whether the next log file is due, or being made.
    pub(crate) fn needs_next(&self) -> bool {
        self.file.end >= self.full_at
    }

    /// Copies the next part of the state, which must be durable, into the next log file. Returns whether the next log
    /// file was complete and has replaced the current log file.
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
                // The next file could not be made, but the current file may still have room for records.
                self.full_at = self.file.end + self.volume.shortest_log();
                if !is_full(&error) {
                    return Ok(false);
                }
                // The log file cannot grow. All rows are written into a shorter file, or into the reserve.
                match self.rewrite(meta, state) {
                    Err(failure) if failure.is_of_space() => Ok(false),
                    rewritten => rewritten.map(|()| true),
                }
            }
        }
    }

    /// Begins a new log file with all rows at once. On a full disk the reserve becomes this log file.
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

    /// Marks the length of the log in the file's header: from now on the loss of a record at the end is detected.
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
        // A whole growth step does not fit on the disk, so the file takes the last free space.
        self.file.fill_up_to(needed.next_multiple_of(BLOCK as u64))
    }

    fn discard_draft(&self) {
        if let Err(error) = self.volume.discard_draft() {
            warn!(%error, "cannot remove an unfinished file of the data directory");
        }
    }

    /// Makes the draft the current log file, and removes the log file before it.
    fn put_in_place(&mut self) -> Result<(), WriteFailure> {
        // If the renaming fails, the new file may be in place nevertheless, and a start would not read what is appended
        // to the file before it. So nothing is appended until the next attempt has replaced the new file.
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

/// Removes the log files before this generation. If there is no reserve, the first of these files becomes the
/// reserve.
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

/// Makes a draft with all rows of the snapshot; on a full disk, in the reserve. Returns whether the reserve was
/// used.
fn draft(volume: &dyn Volume, snapshot: Snapshot) -> Result<(LogFile, bool), WriteFailure> {
    let salt = snapshot.salt;
    let (bytes, end) = snapshot.finish();
    let (disk, allocated, in_reserve) = match volume.draft(&bytes) {
        Ok(disk) => (disk, bytes.len() as u64, false),
        Err(full) if is_full(&full) => {
            let drafted = volume.draft_in_reserve(&bytes);
            let (disk, allocated) = drafted.map_err(|error| match error.kind() {
                // There is no reserve that could become the log file.
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
    /// Writes records behind the last record of the log file, without a sync.
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

    /// Copies the next part of the state into the next log file, then fills the file with zeros up to the needed
    /// length, a piece at a time. Returns whether the file is complete.
    fn go_on(&mut self, meta: &Meta, state: &State, needed: u64, growth: u64) -> io::Result<bool> {
        let more = self.snapshot.copy_part(state, meta);
        let file = &mut self.file;
        file.write(&std::mem::take(&mut self.snapshot.bytes))?;
        // This file may replace a longer log file, and must still be long enough to continue on a full disk.
        let needed = needed.max(file.end + growth);
        if more || file.allocated >= needed {
            file.disk.sync()?;
            return Ok(!more);
        }
        file.fill_up_to(needed.min(file.allocated + PIECE * growth))?;
        // The length is checked in this pass, not in the next: each batch adds records, and if a batch adds more than
        // the file grows by, the file would never be complete.
        Ok(file.allocated >= needed)
    }
}

// === impl WriteFailure ===

impl WriteFailure {
    /// Whether the write failed because the disk is full, and nothing was written.
    pub(crate) fn is_of_space(&self) -> bool {
        !self.may_be_found && is_full(&self.error)
    }

    fn certain(error: io::Error) -> Self {
        Self {
            error,
            may_be_found: false,
        }
    }

    /// Classifies an error of a write. A full or read-only disk is reported before anything is written. After any other
    /// error the whole record may have been written.
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
