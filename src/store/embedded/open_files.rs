//! Whether the files that are open are still the ones in the data directory.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::PathBuf,
};

/// What the data directory held when it was taken.
///
/// A file that was removed can be written for as long as it is open, and is gone afterwards: whoever
/// was answered meanwhile would have been promised what no start remembers.
#[derive(Debug)]
pub(super) struct OpenFiles {
    files: Vec<(PathBuf, FileId)>,
}

/// Tells files apart, whatever they are called.
type FileId = (u64, u64);

const REMOVED: &str = "was removed while the gateway was running; if it was moved, move it back; if \
    it was deleted, start the gateway again once the longest TTL in use is over: it then begins empty \
    and does not know who holds a lock";
const REPLACED: &str = "was replaced while the gateway was running; put the old one back, or start the \
    gateway again once the longest TTL in use is over: it then knows only what the new one holds";

// === impl OpenFiles ===

impl OpenFiles {
    /// The open file, which is at this path.
    pub(super) fn of(path: PathBuf, file: &File) -> io::Result<Self> {
        let files = vec![(path, file_id(&file.metadata()?))];
        Ok(Self { files })
    }

    /// The file at this path belongs to it, too. One that is not there does not.
    pub(super) fn and(&mut self, path: PathBuf) {
        if let Ok(metadata) = fs::metadata(&path) {
            self.files.push((path, file_id(&metadata)));
        }
    }

    /// Says what to do if something is not in its place any more. A directory that cannot be looked
    /// into for another reason is none: what is open may be in order.
    pub(super) fn check(&self) -> Result<(), String> {
        for (path, expected) in &self.files {
            let what = match fs::metadata(path) {
                Ok(metadata) if file_id(&metadata) == *expected => continue,
                Ok(_) => REPLACED,
                Err(error) if error.kind() == io::ErrorKind::NotFound => REMOVED,
                Err(_) => continue,
            };
            return Err(format!("{} {what}", path.display()));
        }
        Ok(())
    }
}

fn file_id(metadata: &fs::Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}
