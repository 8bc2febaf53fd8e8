//! `latchgate backup`.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use clap::Args;

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

/// Only this user may read it: it has names of locks, owners and metadata in it.
const PRIVATE: u32 = 0o600;

const EXISTS: &str = "exists; --force replaces it";

pub(super) async fn backup(args: &BackupArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    let unwritten = |source| CliError::BackupNotWritten {
        file: args.file.clone(),
        source,
    };
    if !args.force && args.file.try_exists().map_err(unwritten)? {
        return Err(CliError::Argument {
            flag: "FILE",
            error: EXISTS.to_owned(),
        });
    }
    let bytes = client.backup().await?;
    let leases = check_backup(&bytes).map_err(CliError::Backup)?;
    write(&args.file, &bytes, args.force).map_err(unwritten)?;
    let text = format!("{} bytes, leases: {leases}\n", bytes.len());
    output::answer(&text).map_err(CliError::Output)
}

/// Writes the whole file, durably, or leaves what is there as it is.
fn write(file: &Path, bytes: &[u8], force: bool) -> io::Result<()> {
    let mut draft = OsString::from(file);
    draft.push(".new");
    let draft = PathBuf::from(draft);
    // What somebody else left there may be open, or readable by others.
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = write_draft(&draft, bytes).and_then(|()| {
        if force {
            fs::rename(&draft, file)
        } else {
            // Unlike a rename it replaces nothing.
            fs::hard_link(&draft, file)
        }
    });
    let removed = fs::remove_file(&draft);
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => io::Error::new(error.kind(), EXISTS),
        _ => error,
    })?;
    if !force {
        removed?;
    }
    let directory = file.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

fn write_draft(draft: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(PRIVATE)
        .open(draft)?;
    file.write_all(bytes)?;
    file.sync_all()
}
