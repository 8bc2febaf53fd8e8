//! `latchgate backup`, and the functions that replace a file in one step.

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

/// Write a backup of a gateway's embedded store to a file, while the gateway is running
///
/// The file is a complete data directory: to restore it, put it into an empty directory as latchgate.00000001.log,
/// and start a gateway on that directory. Leases of the time of the backup are held again, so wait for the longest
/// TTL in use before the start. The command needs an API key with view and break on every lock.
#[derive(Args)]
pub(super) struct BackupArgs {
    /// The file to write
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
        return Err(CliError::usage(format!("\"{path}\" {EXISTS}")));
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

/// The path of the file that `--force` replaces: the target of a symbolic link. The target must be a regular file.
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

/// Writes the whole file and syncs it. If that fails, an existing file stays as it is.
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
// Writing of a new version of a file, which replaces the old version in one step.

/// Writes the new version of a file to a temporary file next to the old version, with mode 0600. The temporary file is
/// removed when the returned value is dropped.
pub(super) fn new_version(file: &Path, bytes: &[u8]) -> io::Result<NamedTempFile> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".{name}.");
    let mut draft = tempfile::Builder::new();
    let mut new = draft.prefix(&prefix).tempfile_in(directory(file))?;
    new.write_all(bytes)?;
    new.as_file().sync_all()?;
    Ok(new)
}

/// Replaces the old version of a file by its new version, in one step.
pub(super) fn replace(file: &Path, new: NamedTempFile) -> io::Result<()> {
    new.persist(file)?;
    sync(file)
}

/// The directory that contains the file.
pub(super) fn directory(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn sync(file: &Path) -> io::Result<()> {
    File::open(directory(file))?.sync_all()
}
