//! `latchgate backup`, and how a command replaces a file.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use tempfile::NamedTempFile;

use crate::store::embedded::check_backup;

use super::{
    caller::{connection::ConnectionArgs, environment::Environment},
    error::CliError,
    terminal::output,
};

/// Write what a gateway's embedded store holds to a file, while it is running
///
/// The file is a whole data directory: to restore it, put it into an empty one as latchgate.00000001.log, and start a
/// gateway on that. It brings back what was held then, so wait for the longest TTL in use first. It needs an API key
/// with view and break on every lock.
#[derive(Args)]
pub(super) struct BackupArgs {
    /// The file
    file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

const EXISTS: &str = "exists; --force replaces it";

pub(super) async fn backup(args: &BackupArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    let path = args.file.display();
    let unwritten =
        |error: io::Error| CliError::unexpected(format!("cannot write \"{path}\": {error}"));
    let file = if args.force {
        replaced(&args.file).map_err(unwritten)?
    } else if args.file.try_exists().map_err(unwritten)? {
        return Err(CliError::argument("FILE", EXISTS));
    } else {
        args.file.clone()
    };
    let bytes = client.backup().await?;
    let leases = check_backup(&bytes)
        .map_err(|error| CliError::unexpected(format!("{error}; nothing was written")))?;
    write(&file, &bytes, args.force).map_err(unwritten)?;
    let text = format!("{} bytes, leases: {leases}\n", bytes.len());
    output::answer(&text)
}

/// The file that --force replaces: what a link leads to, and nothing but a file.
fn replaced(file: &Path) -> io::Result<PathBuf> {
    let found = fs::symlink_metadata(file);
    if found.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Ok(file.to_owned());
    }
    let path = fs::canonicalize(file)?;
    if fs::metadata(&path)?.is_file() {
        Ok(path)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

/// Writes the whole file, durably, or leaves what is there as it is.
fn write(file: &Path, bytes: &[u8], force: bool) -> io::Result<()> {
    let new = new_version(file, bytes)?;
    if force {
        return replace(file, new);
    }
    match new.persist_noclobber(file) {
        Ok(_) => sync(file),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {
            Err(io::Error::new(ErrorKind::AlreadyExists, EXISTS))
        }
        Err(error) => Err(error.error),
    }
}

// === New version ===
//
// A new version of a file, which replaces the old one in one step.

/// Writes a new version of a file to the disk, beside the old one, with mode 0600. It is removed when it is dropped.
pub(super) fn new_version(file: &Path, bytes: &[u8]) -> io::Result<NamedTempFile> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".{name}.");
    let mut draft = tempfile::Builder::new();
    let mut new = draft.prefix(&prefix).tempfile_in(directory(file))?;
    new.write_all(bytes)?;
    new.as_file().sync_all()?;
    Ok(new)
}

/// Puts the new version of a file in the place of the old one.
pub(super) fn replace(file: &Path, new: NamedTempFile) -> io::Result<()> {
    new.persist(file)?;
    sync(file)
}

/// The directory that a file is in.
pub(super) fn directory(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn sync(file: &Path) -> io::Result<()> {
    File::open(directory(file))?.sync_all()
}
