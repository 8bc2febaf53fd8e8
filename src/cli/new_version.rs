//! A new version of a file, put in its place in one step.

use std::{
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

/// A new version of a file, beside it under a name of its own. Dropped, it is removed.
pub(super) struct NewVersion {
    draft: PathBuf,
    file: File,
}

/// Who may read it, unless it is given the mode of the old one: nobody else.
const PRIVATE: u32 = 0o600;

// === impl NewVersion ===

impl NewVersion {
    /// Makes an empty one.
    pub(super) fn beside(path: &Path) -> io::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = getrandom::u64().map_err(io::Error::other)?;
        let draft = directory(path).join(format!(".{name}.{number:016x}"));
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(PRIVATE);
        let file = options.open(&draft)?;
        Ok(Self { draft, file })
    }

    /// Gives it the mode and the owner of the old one.
    pub(super) fn take_after(&self, old: &Metadata) -> io::Result<()> {
        let own = self.file.metadata()?;
        if (old.uid(), old.gid()) != (own.uid(), own.gid()) {
            fchown(&self.file, Some(old.uid()), Some(old.gid()))?;
        }
        let mode = old.permissions().mode() & 0o7777;
        self.file.set_permissions(Permissions::from_mode(mode))
    }

    /// Writes it to the disk.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_all()
    }

    /// Replaces the old one.
    pub(super) fn replace(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.draft, path)?;
        sync(path)
    }

    /// Takes its place if there is no old one.
    pub(super) fn take_free_place(self, path: &Path) -> io::Result<()> {
        match renameat_with(CWD, &self.draft, CWD, path, RenameFlags::NOREPLACE) {
            // NFS has no such rename. FAT has no links.
            Err(Errno::INVAL | Errno::NOSYS) => fs::hard_link(&self.draft, path)?,
            renamed => renamed?,
        }
        sync(path)
    }
}

impl Drop for NewVersion {
    fn drop(&mut self) {
        // It has its place and is not there any more; or it cannot be removed, and is in nobody's way.
        drop(fs::remove_file(&self.draft));
    }
}

/// The directory that a file is in.
pub(super) fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(directory(path))?.sync_all()
}
