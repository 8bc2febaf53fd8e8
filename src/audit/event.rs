//! What is told to the audit log.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::OFlags;

use crate::lock::{FencingToken, LockName};

/// Who asked, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub struct Requester<'a> {
    /// The name of the API key. Never the key.
    pub key: Option<&'a str>,
    /// The name of the request in the log of the gateway.
    pub request_id: &'a str,
    /// The other end of the connection: the caller, or the last proxy on its way.
    pub remote: Option<IpAddr>,
}

/// A permission that was refused.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'a> {
    /// The caller that asked for the operation.
    pub requester: Requester<'a>,
    /// How they asked: the method of the request.
    pub method: &'a str,
    /// For what they asked: the route, such as `/locks/{name}`.
    pub route: &'a str,
    /// Which lock they meant.
    pub name: Option<&'a LockName>,
    /// The code of the problem that was answered.
    pub outcome: &'a str,
    /// Why.
    pub reason: &'a str,
}

/// Keys that were read again, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReloadedKeys {
    /// How many count now.
    pub count: usize,
    /// Those that are new.
    pub added: Vec<Arc<str>>,
    /// Those that are gone.
    pub removed: Vec<Arc<str>>,
    /// Those that have other secrets, permissions, limits, or another end.
    pub changed: Vec<Arc<str>>,
}

/// A lock that was to be broken.
#[derive(Debug, Clone, Copy)]
pub struct BreakAttempt<'a> {
    /// The caller that asked for the operation.
    pub requester: Requester<'a>,
    /// Which lock.
    pub name: &'a LockName,
    /// Of each lease that was broken or asked for, or that was to be, its fencing token if it has one. There is at least one.
    pub fencing_tokens: &'a [Option<FencingToken>],
    /// The reason that they gave.
    pub reason: &'a str,
    /// What became of it: `broken`, `requested` if the holder was asked first, or the code of the problem that was
    /// answered.
    pub outcome: &'a str,
}

// === Output ===
//
// Where the lines go.

/// A file that is appended to, or the standard output.
pub(super) enum Output {
    Stdout,
    File(Appended),
}

/// A file that is appended to.
pub(super) struct Appended {
    path: PathBuf,
    file: File,
    /// Whether a line broke off half-way. The next one must not stick to it.
    torn: bool,
}

/// Who may read a new file.
const MODE: u32 = 0o600;

// === impl Output ===

impl Output {
    pub(super) fn open(path: &str) -> io::Result<Self> {
        if path == "-" {
            return Ok(Self::Stdout);
        }
        let path = PathBuf::from(path);
        let file = append(&path)?;
        let torn = is_torn(&path, &file);
        Ok(Self::File(Appended { path, file, torn }))
    }

    /// Opens the file anew, because it may have been moved away. If that fails, the old one is kept.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if let Self::File(appended) = self {
            appended.file = append(&appended.path)?;
            // It may be the same file.
            appended.torn = is_torn(&appended.path, &appended.file);
        }
        Ok(())
    }

    /// Writes whole lines.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines)?;
                stdout.flush()
            }
            Self::File(appended) => appended.write(lines),
        }
    }

    /// Makes what was written outlast the machine, where that is possible.
    pub(super) fn sync(&self) -> io::Result<()> {
        match self {
            Self::Stdout => Ok(()),
            Self::File(appended) => match appended.file.sync_data() {
                // A pipe or a terminal, which keeps nothing.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
                synced => synced,
            },
        }
    }
}

// === impl Appended ===

impl Appended {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.torn {
            self.file.write_all(b"\n")?;
            self.torn = false;
        }
        let mut left = lines;
        while !left.is_empty() {
            match self.file.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.torn = left[written - 1] != b'\n';
                    left = &left[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether a file ends half-way through a line, because the disk was full or the machine went down.
fn is_torn(path: &Path, file: &File) -> bool {
    match file.metadata() {
        Ok(data) if data.is_file() && data.len() > 0 => {
            let mut last = [0];
            let read = File::open(path).and_then(|it| it.read_exact_at(&mut last, data.len() - 1));
            // An empty line does less harm than two lines that are one.
            read.is_err() || last != [b'\n']
        }
        _ => false,
    }
}

fn append(path: &Path) -> io::Result<File> {
    // Not blocking, for a path that is a pipe: one that nobody reads is an error, not a stop.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(MODE)
        .custom_flags(nonblocking)
        .open(path)
}
