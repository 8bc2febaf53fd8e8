//! `latchgate backup`.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use clap::Args;

use crate::store::embedded::check_backup;

use super::{
    caller::{connection::ConnectionArgs, environment::Environment},
    error::CliError,
    new_version::NewVersion,
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
    let unwritten = |source| CliError::BackupNotWritten {
        file: args.file.clone(),
        source,
    };
    let file = if args.force {
        replaced(&args.file).map_err(unwritten)?
    } else if args.file.try_exists().map_err(unwritten)? {
        return Err(CliError::argument("FILE", EXISTS));
    } else {
        args.file.clone()
    };
    let bytes = client.backup().await?;
    let leases = check_backup(&bytes).map_err(CliError::Backup)?;
    write(&file, &bytes, args.force).map_err(unwritten)?;
    let text = format!("{} bytes, leases: {leases}\n", bytes.len());
    output::answer(&text).map_err(CliError::Output)
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
    let mut new = NewVersion::beside(file)?;
    new.write(bytes)?;
    if force {
        return new.replace(file);
    }
    new.take_free_place(file)
        .map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => io::Error::new(error.kind(), EXISTS),
            _ => error,
        })
}
