//! Tells whether a file has changed.

use std::{os::unix::fs::MetadataExt, path::Path};

/// What changes when a file does; the default if there is no such file, or it cannot be looked at.
/// Links are followed: Kubernetes exchanges them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

// === impl FileStamp ===

impl FileStamp {
    /// That of a file as it is now.
    pub fn of(path: &Path) -> Self {
        let Ok(data) = std::fs::metadata(path) else {
            return Self::default();
        };
        Self {
            device: data.dev(),
            inode: data.ino(),
            size: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        }
    }
}
