//! Detects whether a file has changed.

use std::{os::unix::fs::MetadataExt, path::Path};

/// Properties that change when a file changes; the default if the file does not exist or cannot be read. Links are
/// followed, because Kubernetes replaces a file by changing a link.
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
    /// The current stamp of a file.
    pub fn read(path: &Path) -> Self {
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
