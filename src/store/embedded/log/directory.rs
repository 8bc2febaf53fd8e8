//! The data directory: its lock, the files of the log in it, and the errors of opening it.

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

/// A data directory that this process has locked, until this value is dropped.
///
/// Both the directory itself and a lock file in it are locked: on a file system that cannot lock a directory
/// (NFS), the lock file protects it; if the lock file is removed, the lock on the directory does.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    handle: File,
    lock: File,
}

const LOCK: &str = "latchgate.lock";

// === impl Directory ===

impl Directory {
    /// Locks a data directory for this process, and creates the directory if it does not exist.
    pub(crate) fn take(path: &Path) -> Result<Self, OpenError> {
        create(path).map_err(|source| match source.kind() {
            // The path of the data directory, or a directory above it, is a file.
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => OpenError::NotADirectory {
                path: path.to_owned(),
            },
            _ => OpenError::CreateDirectory {
                path: path.to_owned(),
                source,
            },
        })?;
        let lock_path = path.join(LOCK);
        let lock =
            open_private(&lock_path).map_err(|source| OpenError::from_io(&lock_path, source))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(path.to_owned())),
            Err(TryLockError::Error(source)) => return Err(OpenError::from_io(&lock_path, source)),
        }
        let handle = File::open(path).map_err(|source| OpenError::from_io(path, source))?;
        if let Err(TryLockError::WouldBlock) = handle.try_lock() {
            return Err(OpenError::InUse(path.to_owned()));
        }
        Ok(Self {
            path: path.to_owned(),
            handle,
            lock,
        })
    }

    /// The path of the data directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The files of the log in the data directory.
    pub(crate) fn files(&self) -> io::Result<LogFiles> {
        // A clone of the handle would share the lock of the directory, and keep it longer than this value.
        let directory = openat(&self.handle, ".", OFlags::CLOEXEC, Mode::empty())?;
        Ok(LogFiles {
            directory: directory.into(),
            growth: 256 * 1024,
            shortest_log: 16 * 1024 * 1024,
        })
    }

    /// The path of the log file with this number.
    pub(crate) fn log_file(&self, generation: u64) -> PathBuf {
        self.path.join(file_name(generation))
    }

    /// The files that must stay in the data directory: the lock file, and this log file.
    pub(crate) fn open_files(&self, generation: u64) -> io::Result<OpenFiles> {
        let lock = (self.path.join(LOCK), file_id(&self.lock.metadata()?), 0);
        let mut open_files = OpenFiles { files: vec![lock] };
        open_files.set_log(self.log_file(generation));
        Ok(open_files)
    }
}

// === Files of the log ===

/// The files of the log in a data directory. The directory is addressed by its open handle, so a directory that
/// replaces it at the same path is never written.
#[derive(Debug)]
pub(crate) struct LogFiles {
    directory: File,
    growth: usize,
    shortest_log: u64,
}

/// Name of a log file that is being made. Because of this name, a log file with a number that cannot be read is
/// damaged, and never merely unfinished. A draft that a crash has left is ignored.
const DRAFT: &str = "latchgate.log.new";
const PREFIX: &str = "latchgate.";
/// Name of the reserve, the file into which the log is written when the disk is full.
pub(crate) const RESERVE: &str = "latchgate.reserve";
/// Zeros for filling a file: at most this many are written at once.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

// === impl LogFiles ===

impl LogFiles {
    /// Returns the same files with other size limits, so that a test soon reaches the next log file.
    #[cfg(test)]
    pub(crate) fn with_sizes(self, growth: usize, shortest_log: u64) -> Self {
        Self {
            growth,
            shortest_log,
            ..self
        }
    }

    /// Opens or creates a regular file of the data directory.
    pub(crate) fn open(&self, name: &str, flags: OFlags) -> io::Result<File> {
        // Opening a pipe would block until another process writes to it, and writing through a symbolic link
        // would overwrite another file.
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

    /// Creates a durable file and writes it, in the place of one that a crash has left.
    pub(crate) fn draft_by(
        &self,
        name: &str,
        write: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<File> {
        self.remove_file(name)?;
        let file = self.open(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        let written = write(&file).and_then(|()| file.sync_all());
        if let Err(error) = written {
            // On a full disk other files need the space of the failed draft.
            self.remove_file(name).ok();
            return Err(error);
        }
        Ok(file)
    }

    /// Gives a file another name, in the place of the file that has this name.
    pub(crate) fn rename(&self, name: &str, new: &str) -> io::Result<()> {
        Ok(renameat(&self.directory, name, &self.directory, new)?)
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

/// The number in the name of a log file. A name that spells the number differently is not a log file.
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
        let draft = self.draft_by(DRAFT, |file| file.write_all_at(bytes, 0));
        Ok(Box::new(draft?))
    }

    fn put_in_place(&self, generation: u64) -> io::Result<()> {
        self.rename(DRAFT, &file_name(generation))?;
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
        // Written zeros occupy space on the disk; a length that is only set does not.
        write_zeros(&file, end, len).inspect_err(|_full| {
            // A reserve that is too short cannot be used, and other programs need its space.
            file.set_len(end).ok();
        })
    }

    fn draft_in_reserve(&self, bytes: &[u8]) -> io::Result<(Box<dyn DiskFile>, u64)> {
        let file = self.open(RESERVE, OFlags::RDWR)?;
        let len = file.metadata()?.len().max(bytes.len() as u64);
        file.write_all_at(bytes, 0)?;
        // The rest of the reserve may hold records of an old log file.
        write_zeros(&file, bytes.len() as u64, len)?;
        file.sync_all()?;
        renameat(&self.directory, RESERVE, &self.directory, DRAFT)?;
        Ok((Box::new(file), len))
    }

    fn recycle(&self, generation: u64) -> io::Result<u64> {
        let name = file_name(generation);
        // The reserve must be writable. A file of another user cannot be opened for writing, so it does not
        // become the reserve.
        let len = self.open(&name, OFlags::WRONLY)?.metadata()?.len();
        // The log file that replaces this file must be durably in place first; a process that was killed may not have
        // synced the directory.
        self.directory.sync_all()?;
        renameat(&self.directory, name, &self.directory, RESERVE)?;
        // The directory is synced before the reserve is written: otherwise a loss of power could bring back the
        // file's old name, with overwritten content.
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

/// Opens or creates a file that only this user may read and write.
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
    // The parent directory is synced, so that a new data directory survives a loss of power.
    let absolute = std::path::absolute(path)?;
    let parent = absolute.parent().map(File::open).transpose()?;
    parent.map_or(Ok(()), |parent| parent.sync_all())
}

// === Open files ===
//
// Checks whether the open files are still the files in the data directory.

/// The lock file and the log file, which this process has open, for checking that they are still in the data directory.
///
/// A removed file can still be written while it is open, and is lost afterwards: the next start would not know
/// the leases that were granted meanwhile.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    /// Path, identity and least length of each open file. The first is the lock file.
    files: Vec<(PathBuf, FileId, u64)>,
}

/// Device and inode, which identify a file independently of its name.
type FileId = (u64, u64);

const REMOVED: &str = "was removed while the gateway was running; if it was moved, move it back; \
                       if it was deleted, start the gateway again once the longest TTL in use is \
                       over: the gateway then begins empty and knows no holder";
const REPLACED: &str = "was replaced while the gateway was running; put the old directory back, or \
                        start the gateway again once the longest TTL in use is over: the gateway \
                        then knows only the leases in the new directory";

// === impl OpenFiles ===

impl OpenFiles {
    /// Sets the log file to check, instead of the log file before it.
    pub(crate) fn set_log(&mut self, path: PathBuf) {
        self.files.truncate(1);
        if let Ok(metadata) = fs::metadata(&path) {
            self.files.push((path, file_id(&metadata), metadata.len()));
        }
    }

    /// Returns what the operator must do if one of the open files was removed or replaced. Any other error of looking
    /// at a file is ignored, because the open file may be intact.
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

    /// Fails if one of the open files was truncated: its content is then only in memory.
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
// Errors of opening the embedded store, with advice for the operator.

/// Why the embedded store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory does not exist and could not be created.
    #[error(
        "cannot create the data directory {path:?}: {source}; create it, or choose another with --store embedded:DIR"
    )]
    CreateDirectory {
        /// The path of the data directory.
        path: PathBuf,
        /// The error of the operating system at creating the data directory.
        source: io::Error,
    },
    /// The path of the data directory is a file, or below a file.
    #[error(
        "the data directory {path:?} is a file, or below one; choose a directory with --store embedded:DIR"
    )]
    NotADirectory {
        /// The path that should be a directory and is a file.
        path: PathBuf,
    },
    /// The data directory or a file in it is not writable.
    #[error(
        "cannot write {path:?}: {source}; give this user the right to write there, mount it read-write, or choose another directory with --store embedded:DIR"
    )]
    NotWritable {
        /// The path of the directory or file that is not writable.
        path: PathBuf,
        /// The error of the operating system at writing.
        source: io::Error,
    },
    /// Another process has the data directory open.
    #[error(
        "the data directory {0:?} is in use by another process; stop that process, or choose \
         another directory with --store embedded:DIR"
    )]
    InUse(PathBuf),
    /// A log file was not written by latchgate, or is damaged.
    #[error(
        "the file {path:?} is damaged or was not written by latchgate: {what}; restore a backup in its place, or move all files latchgate.*.log away to begin with no locks held"
    )]
    Corrupt {
        /// The path of the damaged file.
        path: PathBuf,
        /// Description of the damage to the file.
        what: String,
    },
    /// A log file was written by a newer version of this program.
    #[error(
        "the file {path:?} has the layout version {found}, this program knows {known}; start the \
         version of latchgate that wrote it, or a newer version"
    )]
    NewerLayout {
        /// The path of the newer file.
        path: PathBuf,
        /// The layout version of the file.
        found: u32,
        /// The layout version that this program reads and writes.
        known: u32,
    },
    /// The wall clock is behind the largest fencing token of a backup.
    #[error(
        "the wall clock of this machine is wrong or behind that of the machine on which the backup in {0:?} was made: fencing tokens that were granted after it would be granted again; set the clock, then start again"
    )]
    ClockBehindBackup(PathBuf),
    /// The disk has no space left for a file of the store.
    #[error("no space is left to write {path:?}: {source}; free some, then start again")]
    DiskFull {
        /// The path of the file that found no space.
        path: PathBuf,
        /// The error of the operating system at writing the file.
        source: io::Error,
    },
    /// The disk failed for another reason than a lack of space or of rights.
    #[error("cannot use {path:?}: {source}; look at the disk and at the log of the system")]
    Io {
        /// The path of the directory or file at which the disk failed.
        path: PathBuf,
        /// The error of the operating system at using this path.
        source: io::Error,
    },
    /// The writer thread could not be started.
    #[error("cannot start the thread that writes: {0}; look at the limits of this process")]
    Thread(io::Error),
}

// === impl OpenError ===

impl OpenError {
    /// Classifies an error of the operating system about a file or directory.
    pub(crate) fn from_io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Self::NotWritable { path, source }
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::DiskFull { path, source },
            _ => Self::Io { path, source },
        }
    }

    /// Classifies an error of reading the log.
    pub(crate) fn of_log(directory: &Directory, unreadable: Unreadable) -> Self {
        let path = directory.log_file(unreadable.generation);
        match unreadable.error {
            LogError::Io(error) => Self::from_io(&path, error),
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
