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
pub(super) struct Place {
    files: Vec<(PathBuf, Identity)>,
}

/// Tells files apart, whatever they are called.
type Identity = (u64, u64);

// === impl Place ===

impl Place {
    /// The open file, which is at this path.
    pub(super) fn of(path: PathBuf, file: &File) -> io::Result<Self> {
        let files = vec![(path, identity(&file.metadata()?))];
        Ok(Self { files })
    }

    /// The file at this path belongs to it, too. One that is not there does not.
    pub(super) fn and(&mut self, path: PathBuf) {
        if let Ok(metadata) = fs::metadata(&path) {
            self.files.push((path, identity(&metadata)));
        }
    }

    /// Says what to do if something is not in its place any more. A directory that cannot be looked
    /// into for another reason is none: what is open may be in order.
    pub(super) fn check(&self) -> Result<(), String> {
        for (path, expected) in &self.files {
            let what = match fs::metadata(path) {
                Ok(metadata) if identity(&metadata) == *expected => continue,
                Ok(_) => "replaced",
                Err(error) if error.kind() == io::ErrorKind::NotFound => "removed",
                Err(_) => continue,
            };
            return Err(format!(
                "{} was {what} while the gateway was running; put it back as it was, or start the \
                 gateway again, which then holds what the directory holds",
                path.display()
            ));
        }
        Ok(())
    }
}

fn identity(metadata: &fs::Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}
