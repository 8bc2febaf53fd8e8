//! The clock of a server process, which a test can set.

use std::{
    ffi::OsString,
    io::Write,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use tempfile::{NamedTempFile, TempDir};

use super::spawn;

/// The clock of a server process: this machine's clock plus a number of seconds, or a clock that a test moves.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    ahead: Arc<NamedTempFile>,
}

/// Source of the library that replaces the clock functions in the server process.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/clock.c");

// === impl Clock ===

impl Clock {
    /// A clock that is some seconds ahead of this machine's.
    pub(crate) fn ahead(seconds: i64) -> Self {
        let ahead = NamedTempFile::new().expect("a temporary file can be made");
        let clock = Self {
            ahead: Arc::new(ahead),
        };
        clock.write([seconds, 0]);
        clock
    }

    /// Sets by how many seconds the clock is ahead, also while the server runs.
    pub(crate) fn set(&self, seconds: i64) {
        self.write([seconds, 0]);
    }

    /// Lets the clock stand still at this time, in microseconds since 1970.
    pub(crate) fn stop_at(&self, micros: i64) {
        self.write([0, micros]);
    }

    fn write(&self, numbers: [i64; 2]) {
        let mut file = std::fs::File::options()
            .write(true)
            .open(self.ahead.path())
            .expect("the file is there");
        let bytes = numbers.map(i64::to_ne_bytes);
        file.write_all(bytes.as_flattened())
            .expect("it can be written");
    }

    /// Environment variables that make a server process use this clock.
    pub(super) fn environment(&self) -> [(&'static str, OsString); 2] {
        [
            ("LD_PRELOAD", library().into()),
            ("CLOCK_AHEAD", self.ahead.path().into()),
        ]
    }
}

/// The path of the library, which is compiled once.
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
