//! The clock of a server, which a test sets.

use std::{
    ffi::OsString,
    io::Write,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use tempfile::{NamedTempFile, TempDir};

use super::spawn;

/// The clock of a server, so many seconds ahead of this machine's.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    ahead: Arc<NamedTempFile>,
}

/// What comes between a server and the kernel.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/clock.c");

// === impl Clock ===

impl Clock {
    /// A clock that is so many seconds ahead.
    pub(crate) fn ahead(seconds: i64) -> Self {
        let ahead = NamedTempFile::new().expect("a temporary file can be made");
        let clock = Self {
            ahead: Arc::new(ahead),
        };
        clock.set(seconds);
        clock
    }

    /// Sets it to so many seconds ahead, while the server runs.
    pub(crate) fn set(&self, seconds: i64) {
        let mut file = std::fs::File::options()
            .write(true)
            .open(self.ahead.path())
            .expect("the file is there");
        file.write_all(&seconds.to_ne_bytes())
            .expect("it can be written");
    }

    /// What a server must find in its environment.
    pub(super) fn environment(&self) -> [(&'static str, OsString); 2] {
        [
            ("LD_PRELOAD", library().into()),
            ("CLOCK_AHEAD", self.ahead.path().into()),
        ]
    }
}

/// The library, compiled once.
fn library() -> PathBuf {
    static COMPILED: OnceLock<TempDir> = OnceLock::new();
    let compiled = COMPILED.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let status = spawn::command("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .arg(directory.path().join("clock.so"))
            .arg(SOURCE)
            .status();
        let status = status.expect("the tests of clocks need a C compiler: apt-get install gcc");
        assert!(status.success(), "{SOURCE} cannot be compiled");
        directory
    });
    compiled.path().join("clock.so")
}
