//! Keys and keys files of the program.

use std::{fs, path::PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Duration, Instant};

use crate::support::{
    gateway::{Gateway, Setup},
    program::{Ran, latchgate},
};

/// A keys file that goes away.
pub(super) struct File {
    directory: TempDir,
    pub(super) path: PathBuf,
}

/// A key as `key new --json` prints it.
pub(super) struct Made {
    pub(super) key: String,
    pub(super) secret: String,
    pub(super) toml: String,
}

// === impl File ===

impl File {
    pub(super) fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.toml");
        let file = Self { directory, path };
        file.write(text);
        file
    }

    /// In one go, as a careful program does it.
    pub(super) fn write(&self, text: &str) {
        let new = self.directory.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, &self.path).unwrap();
    }

    pub(super) fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    pub(super) fn gateway(&self) -> Gateway {
        let setup = Setup::default().with("LATCHGATE_AUTH_KEYS_FILE", self.path());
        Gateway::start_with(setup.with("LATCHGATE_LOG_LEVEL", "trace"))
    }
}

// === impl Made ===

impl Made {
    pub(super) fn new(name: &str, flags: &[&str]) -> Self {
        let ran = latchgate(&[&["key", "new", "--json", "--name", name], flags].concat()).read();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let made: Value = serde_json::from_str(&ran.out).unwrap();
        let text = |field: &str| made[field].as_str().unwrap().to_owned();
        assert!(!text("toml").contains(&text("key")[15..58]));
        Self {
            key: text("key"),
            secret: text("secret"),
            toml: text("toml"),
        }
    }
}

pub(super) fn inspect(gateway: &Gateway, lock: &str, key: &str) -> Ran {
    let ran = latchgate(&["inspect", lock, "--url", &gateway.url()]);
    ran.env("LATCHGATE_KEY", key).read()
}

/// Waits until something is so.
pub(super) fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
