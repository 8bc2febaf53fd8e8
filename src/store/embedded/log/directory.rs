//! The data directory: who may use it, and where its files are.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read},
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, unlinkat},
    io::Errno,
};

use super::{
    append::{DiskFile, Unreadable, Volume},
    layout::{LAYOUT, LogError},
};

/// A data directory that is ours until this is dropped.
///
/// Locked are the directory itself and a file of its own in it: where a directory cannot be locked (NFS), the
/// file is left, and where somebody removes the file, the directory.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    handle: File,
    lock: File,
}

const LOCK: &str = "latchgate.lock";

// === impl Directory ===

impl Directory {
    /// Takes a directory, and makes it if need be.
    pub(crate) fn take(path: &Path) -> Result<Self, OpenError> {
        create(path).map_err(|source| match source.kind() {
            // Itself, or something above it.
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => OpenError::NotADirectory {
                path: path.to_owned(),
            },
            _ => OpenError::CreateDirectory {
                path: path.to_owned(),
                source,
            },
        })?;
        let lock_path = path.join(LOCK);
        let lock = open_private(&lock_path).map_err(|source| OpenError::of(&lock_path, source))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(path.to_owned())),
            Err(TryLockError::Error(source)) => return Err(OpenError::of(&lock_path, source)),
        }
        let handle = File::open(path).map_err(|source| OpenError::of(path, source))?;
        if let Err(TryLockError::WouldBlock) = handle.try_lock() {
            return Err(OpenError::InUse(path.to_owned()));
        }
        Ok(Self {
            path: path.to_owned(),
            handle,
            lock,
        })
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The files of the log.
    pub(crate) fn files(&self) -> io::Result<LogFiles> {
        Ok(LogFiles {
            directory: self.handle.try_clone()?,
            growth: 256 * 1024,
            shortest_log: 16 * 1024 * 1024,
        })
    }

    /// Where the log file with this number is.
    pub(crate) fn log_file(&self, generation: u64) -> PathBuf {
        self.path.join(file_name(generation))
    }

    /// What is in the directory now: the lock, and this log file.
    pub(crate) fn open_files(&self, generation: u64) -> io::Result<OpenFiles> {
        let lock = (self.path.join(LOCK), file_id(&self.lock.metadata()?), 0);
        let mut open_files = OpenFiles { files: vec![lock] };
        open_files.set_log(self.log_file(generation));
        Ok(open_files)
    }
}

// === Files of the log ===

/// The files of the log in a data directory, whatever is put in its place.
#[derive(Debug)]
pub(crate) struct LogFiles {
    directory: File,
    growth: usize,
    shortest_log: u64,
}

/// Where a log file is made. A log file in its place that cannot be read is damaged, and never merely unfinished. What
/// a crash has left here is ignored.
const DRAFT: &str = "latchgate.log.new";
const PREFIX: &str = "latchgate.";
/// Space for a log file when the disk is full.
pub(crate) const RESERVE: &str = "latchgate.reserve";
/// How much of it is written at once.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

// === impl LogFiles ===

impl LogFiles {
    /// The same with files of another size, so that a test comes to the next one.
    #[cfg(test)]
    pub(crate) fn with_sizes(self, growth: usize, shortest_log: u64) -> Self {
        Self {
            growth,
            shortest_log,
            ..self
        }
    }

    fn open(&self, name: &str, flags: OFlags) -> io::Result<File> {
        // To open a pipe would wait for whoever writes to it, and a link would have another file cut and overwritten.
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file = match openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::LOOP) => return Err(io::Error::other(format!("{name} is a symbolic link"))),
            opened => opened?,
        };
        let file = File::from(file);
        if !file.metadata()?.is_file() {
            let why = format!("{name} is not a regular file");
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        Ok(file)
    }

    fn remove_file(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.directory, name, AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn write_zeros(file: &File, from: u64, to: u64) -> io::Result<()> {
    let mut end = from;
    while end < to {
        let left = usize::try_from(to - end).unwrap_or(usize::MAX);
        let part = &ZEROS[..left.min(ZEROS.len())];
        file.write_all_at(part, end)?;
        end += part.len() as u64;
    }
    Ok(())
}

fn file_name(generation: u64) -> String {
    format!("{PREFIX}{generation:08}.log")
}

/// The number of the log file that is called so. No other spelling of its number is ours.
fn generation(name: &str) -> Option<u64> {
    let number = name.strip_prefix(PREFIX)?.strip_suffix(".log")?;
    let generation = number.parse().ok()?;
    (file_name(generation) == name).then_some(generation)
}

impl Volume for LogFiles {
    fn generations(&self) -> io::Result<Vec<u64>> {
        let mut generations = Vec::new();
        for entry in Dir::read_from(&self.directory)? {
            generations.extend(entry?.file_name().to_str().ok().and_then(generation));
        }
        Ok(generations)
    }

    fn read(&self, generation: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut file = self.open(&file_name(generation), OFlags::RDONLY)?;
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn draft(&self, bytes: &[u8]) -> io::Result<Box<dyn DiskFile>> {
        self.remove_file(DRAFT)?;
        let file = self.open(DRAFT, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        let written = file.write_all_at(bytes, 0).and_then(|()| file.sync_all());
        if let Err(error) = written {
            // On a full disk its space is needed by others.
            self.remove_file(DRAFT).ok();
            return Err(error);
        }
        Ok(Box::new(file))
    }

    fn put_in_place(&self, generation: u64) -> io::Result<()> {
        let name = file_name(generation);
        renameat(&self.directory, DRAFT, &self.directory, name)?;
        self.directory.sync_all()
    }

    fn discard_draft(&self) -> io::Result<()> {
        self.remove_file(DRAFT)
    }

    fn reserved(&self) -> io::Result<u64> {
        match self.open(RESERVE, OFlags::RDONLY) {
            Ok(file) => Ok(file.metadata()?.len()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn keep_reserve(&self, len: u64) -> io::Result<()> {
        let file = self.open(RESERVE, OFlags::WRONLY | OFlags::CREATE)?;
        let end = file.metadata()?.len();
        if end > len {
            return file.set_len(len);
        }
        // Zeros that are written have their space; a length that is merely set has none.
        write_zeros(&file, end, len).inspect_err(|_full| {
            // Others on this disk need what is too little for us.
            file.set_len(end).ok();
        })
    }

    fn draft_in_reserve(&self, bytes: &[u8]) -> io::Result<(Box<dyn DiskFile>, u64)> {
        let file = self.open(RESERVE, OFlags::RDWR)?;
        let len = file.metadata()?.len().max(bytes.len() as u64);
        file.write_all_at(bytes, 0)?;
        // What was there before may be another log file.
        write_zeros(&file, bytes.len() as u64, len)?;
        file.sync_all()?;
        renameat(&self.directory, RESERVE, &self.directory, DRAFT)?;
        Ok((Box::new(file), len))
    }

    fn recycle(&self, generation: u64) -> io::Result<u64> {
        let name = file_name(generation);
        // The reserve is written to: a file of another user is none.
        let len = self.open(&name, OFlags::WRONLY)?.metadata()?.len();
        // What replaces it has its place first: a process that was killed may not have come to that.
        self.directory.sync_all()?;
        renameat(&self.directory, name, &self.directory, RESERVE)?;
        // Before anything is written to it: with the next loss of power it must not be a log file again.
        if let Err(error) = self.directory.sync_all() {
            self.remove_file(RESERVE)?;
            return Err(error);
        }
        Ok(len)
    }

    fn remove(&self, generation: u64) -> io::Result<()> {
        self.directory.sync_all()?;
        self.remove_file(&file_name(generation))
    }

    fn growth(&self) -> usize {
        self.growth
    }

    fn shortest_log(&self) -> u64 {
        self.shortest_log
    }
}

impl DiskFile for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Opens or makes a file that only this user may read and write.
fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options.open(path)
}

fn create(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(path)?;
    // The new entry itself must survive a loss of power, in whatever directory it was made.
    let absolute = std::path::absolute(path)?;
    let parent = absolute.parent().map(File::open).transpose()?;
    parent.map_or(Ok(()), |parent| parent.sync_all())
}

// === Open files ===
//
// Whether the files that are open are still the ones in the data directory.

/// What the data directory held when it was taken.
///
/// A file that was removed can be written for as long as it is open, and is gone afterwards: whoever
/// was answered meanwhile would have been promised what no start remembers.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    /// The first is the lock. With the length that each has at least.
    files: Vec<(PathBuf, FileId, u64)>,
}

/// Tells files apart, whatever they are called.
type FileId = (u64, u64);

const REMOVED: &str = "was removed while the gateway was running; if it was moved, move it back; if \
    it was deleted, start the gateway again once the longest TTL in use is over: it then begins empty \
    and does not know who holds a lock";
const REPLACED: &str = "was replaced while the gateway was running; put the old one back, or start the \
    gateway again once the longest TTL in use is over: it then knows only what the new one holds";

// === impl OpenFiles ===

impl OpenFiles {
    /// The log file at this path belongs to it, too, in the place of the one before.
    pub(crate) fn set_log(&mut self, path: PathBuf) {
        self.files.truncate(1);
        if let Ok(metadata) = fs::metadata(&path) {
            self.files.push((path, file_id(&metadata), metadata.len()));
        }
    }

    /// Says what to do if something is not in its place any more. A directory that cannot be looked
    /// into for another reason is none: what is open may be in order.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (path, expected, _len) in &self.files {
            let what = match fs::metadata(path) {
                Ok(metadata) if file_id(&metadata) == *expected => continue,
                Ok(_) => REPLACED,
                Err(error) if error.kind() == ErrorKind::NotFound => REMOVED,
                Err(_) => continue,
            };
            return Err(format!("{} {what}", path.display()));
        }
        Ok(())
    }

    /// Says so if somebody has cut one off: what was in it is in memory only.
    pub(crate) fn check_lengths(&self) -> Result<(), String> {
        for (path, _id, len) in &self.files {
            if fs::metadata(path).is_ok_and(|metadata| metadata.len() < *len) {
                let path = path.display();
                return Err(format!(
                    "{path} was truncated while the gateway was running"
                ));
            }
        }
        Ok(())
    }
}

fn file_id(metadata: &fs::Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

// === Open error ===
//
// Why the embedded store could not be opened, and what to do about it.

/// Why the embedded store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory does not exist and could not be made.
    #[error(
        "cannot create the data directory {path:?}: {source}; create it, or choose another with --store embedded:DIR"
    )]
    CreateDirectory {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// There is a file where the data directory should be.
    #[error(
        "the data directory {path:?} is a file, or below one; choose a directory with --store embedded:DIR"
    )]
    NotADirectory {
        /// What was to be the directory.
        path: PathBuf,
    },
    /// The data directory or a file in it may not be written.
    #[error(
        "cannot write {path:?}: {source}; give this user the right to write there, mount it read-write, or choose another directory with --store embedded:DIR"
    )]
    NotWritable {
        /// The directory or file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Another process has the directory open.
    #[error(
        "the data directory {0:?} is in use by another process; stop that one, or choose another directory with --store embedded:DIR"
    )]
    InUse(PathBuf),
    /// The file is not one of ours, or is damaged.
    #[error(
        "the file {path:?} is damaged or was not written by latchgate: {what}; restore a backup in its place, or move all files latchgate.*.log away to begin with no locks held"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// The file was written by a newer version of this program.
    #[error(
        "the file {path:?} has the layout version {found}, this program knows {known}; start the version of latchgate that wrote it, or a newer one"
    )]
    NewerLayout {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: u32,
        /// The version that this program reads and writes.
        known: u32,
    },
    /// The clock says that a backup was made in the future.
    #[error(
        "the wall clock of this machine is wrong or behind that of the machine on which the backup in {0:?} was made: fencing tokens that were granted after it would be granted again; set the clock, then start again"
    )]
    ClockBehindBackup(PathBuf),
    /// There is no space left for the file.
    #[error("no space is left to write {path:?}: {source}; free some, then start again")]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The disk failed in another way.
    #[error("cannot use {path:?}: {source}; look at the disk and at the log of the system")]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// No thread could be started for the writer.
    #[error("cannot start the thread that writes: {0}; look at the limits of this process")]
    Thread(io::Error),
}

// === impl OpenError ===

impl OpenError {
    /// Sorts what the operating system said about a file or directory.
    pub(crate) fn of(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Self::NotWritable { path, source }
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::DiskFull { path, source },
            _ => Self::Io { path, source },
        }
    }

    /// Sorts what was found while the log was read.
    pub(crate) fn of_log(directory: &Directory, unreadable: Unreadable) -> Self {
        let path = directory.log_file(unreadable.generation);
        match unreadable.error {
            LogError::Io(error) => Self::of(&path, error),
            LogError::Layout(found) if found > LAYOUT => Self::NewerLayout {
                path,
                found,
                known: LAYOUT,
            },
            damaged @ (LogError::NoLog
            | LogError::Layout(_)
            | LogError::CutShort
            | LogError::Gap(_)
            | LogError::Damaged(_)
            | LogError::Row { .. }
            | LogError::Count { .. }) => Self::Corrupt {
                path,
                what: damaged.to_string(),
            },
        }
    }
}
