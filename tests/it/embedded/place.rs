//! Opening the store, and short words for what is done with it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use latchgate::store::embedded::{EmbeddedStore, OpenError};
use tempfile::TempDir;

use crate::support::prelude::*;

/// Opens the store with the clock of this machine.
pub(crate) fn open(directory: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(directory, Arc::new(SystemClock))
}

/// The same of a directory on which a store was open before. Whatever process another test starts in that
/// instant has the lock of the directory, too, until its program begins.
pub(crate) async fn open_again(directory: &Path) -> Result<EmbeddedStore, OpenError> {
    eventually("the directory is let go of", async || {
        let opened = open(directory);
        (!matches!(opened, Err(OpenError::InUse(_)))).then_some(opened)
    })
    .await
}

/// The one file of the log in a directory, as long as little was written.
pub(crate) fn data_file(directory: &Path) -> PathBuf {
    let entries = fs::read_dir(directory).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let log = paths.find(|path| path.extension().is_some_and(|it| it == "log"));
    log.expect("there is a log")
}

/// A directory with this as its log.
pub(crate) fn with_log(bytes: &[u8]) -> TempDir {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("latchgate.00000001.log");
    fs::write(path, bytes).unwrap();
    directory
}

/// An attempt for a lease of an hour.
pub(crate) fn attempt(lock: &str) -> Attempt {
    Attempt {
        name: LockName::new(lock).unwrap(),
        token: Token::random().hash(),
        ttl: Ttl::from_millis(3_600_000).unwrap(),
        hold_limit: None,
        sharing: None,
        owner: None,
        metadata: Metadata::default(),
        idempotency: None,
        wait: None,
    }
}

/// Takes so many locks, `lock:0` and on.
pub(crate) async fn take(store: &EmbeddedStore, locks: usize) -> Vec<Attempt> {
    let attempts = (0..locks).map(|lock| attempt(&format!("lock:{lock}")));
    let attempts: Vec<_> = attempts.collect();
    for attempt in &attempts {
        let outcome = store.acquire(attempt).await.unwrap();
        assert!(matches!(outcome, Acquisition::Granted(_)), "{outcome:?}");
    }
    attempts
}

/// Set in a test that has started itself again: the directory it works in.
pub(crate) const CHILD: &str = "LG_EMBEDDED_CHILD";

#[expect(
    clippy::disallowed_methods,
    reason = "this is not the program but a test that starts itself"
)]
pub(crate) fn child_directory() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}
