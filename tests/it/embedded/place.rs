//! Opens the store, and short helpers for its commands.

use std::{
    fs,
    path::{Path, PathBuf},
};

use latchgate::store::embedded::{EmbeddedStore, OpenError};
use tempfile::TempDir;

use crate::support::prelude::*;

/// Opens the store with the clock of this machine.
pub(crate) fn open(directory: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(
        directory,
        Arc::new(SystemClock),
        latchgate::config::OrderLimits::default(),
    )
}

/// Opens a directory on which a store was open before. A process that another test starts at this moment inherits the
/// lock of the directory until its program begins, so this waits.
pub(crate) async fn open_again(directory: &Path) -> Result<EmbeddedStore, OpenError> {
    eventually("the directory is let go of", async || {
        let opened = open(directory);
        (!matches!(opened, Err(OpenError::InUse(_)))).then_some(opened)
    })
    .await
}

/// The only log file in a directory with little data.
pub(crate) fn data_file(directory: &Path) -> PathBuf {
    let entries = fs::read_dir(directory).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let log = paths.find(|path| path.extension().is_some_and(|it| it == "log"));
    log.expect("there is a log")
}

/// A directory whose log has these bytes.
pub(crate) fn with_log(bytes: &[u8]) -> TempDir {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("latchgate.00000001.log");
    fs::write(path, bytes).unwrap();
    directory
}

/// An attempt for a lease of an hour.
pub(crate) fn attempt(lock: &str) -> Attempt {
    new_attempt(lock, Ttl::from_millis(3_600_000).unwrap())
}

/// Acquires this many locks, named `lock:0` and so on.
pub(crate) async fn take(store: &EmbeddedStore, locks: usize) -> Vec<Attempt> {
    let attempts = (0..locks).map(|lock| attempt(&format!("lock:{lock}")));
    let attempts: Vec<_> = attempts.collect();
    for attempt in &attempts {
        let outcome = store.acquire(attempt).await.unwrap();
        assert!(matches!(outcome, Acquisition::Granted(_)), "{outcome:?}");
    }
    attempts
}

/// The environment variable of a test that has started itself again: its directory.
pub(crate) const CHILD: &str = "LG_EMBEDDED_CHILD";

#[expect(
    clippy::disallowed_methods,
    reason = "this is not the program but a test that starts itself"
)]
pub(crate) fn child_directory() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}
