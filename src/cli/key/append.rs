//! Adds the table of a new key to a keys file.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use crate::{
    auth::{KeysFile, KeysFileError},
    bounded_file::{self, FileError},
    file_stamp::FileStamp,
};

/// Why a key was not added. The file is as it was.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum AppendError {
    /// The file, as it is or with the key, is none that a gateway would take.
    #[error(transparent)]
    Keys(#[from] KeysFileError),
    /// The file that is there cannot be read.
    #[error("cannot read the keys file {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: FileError,
    },
    /// The new version of it cannot be put in its place.
    #[error("cannot write the keys file {}: {error}; it is as it was", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Somebody else has written it.
    #[error("somebody else has changed the keys file {} meanwhile; it is as they left it", .0.display())]
    Changed(PathBuf),
}

/// Who may read a keys file that did not exist: hashes are no secrets, but nobody else needs them.
const NEW_MODE: u32 = 0o600;

/// Adds the table of a key to a keys file, in one step: whoever reads the file sees it without the key or with
/// it. A file that is not there is made. One that is there keeps its mode and its owner.
pub(super) fn append(path: &Path, table: &str) -> Result<(), AppendError> {
    // A link stays one: what it leads to is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_missing| path.to_owned());
    let unwritable = |error| AppendError::Unwritable {
        path: path.clone(),
        error,
    };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory_file = File::open(directory).map_err(unwritable)?;
    // Two keys that are made at the same time are both in the file then.
    flock(&directory_file, FlockOperation::LockExclusive)
        .map_err(|error| unwritable(error.into()))?;
    let before = FileStamp::of(&path);
    let old = match bounded_file::read_text(&path, KeysFile::MAX_LEN) {
        Ok(text) => Some(text),
        Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            return Err(AppendError::Unreadable {
                path: path.clone(),
                error,
            });
        }
    };
    let text = with_table(old.as_deref().unwrap_or_default(), table);
    // Also that no other key has its name, or its id.
    KeysFile::new(&path).parse(&text)?;
    let new = NewVersion::write(directory, &path, &text).map_err(unwritable)?;
    if FileStamp::of(&path) != before {
        return Err(AppendError::Changed(path.clone()));
    }
    new.put_in_place(&path).map_err(unwritable)?;
    directory_file.sync_all().map_err(unwritable)
}

/// The text of a file with one more table.
fn with_table(old: &str, table: &str) -> String {
    let between = match old {
        "" => "",
        old if old.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    format!("{old}{between}{table}")
}

/// A new version of a file, beside it. Dropped, it is removed.
struct NewVersion(Option<PathBuf>);

// === impl NewVersion ===

impl NewVersion {
    /// Writes it to the disk, with the mode and the owner of the old one.
    fn write(directory: &Path, path: &Path, text: &str) -> io::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = getrandom::u64().map_err(io::Error::other)?;
        let temporary = directory.join(format!(".{name}.{number:016x}"));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(NEW_MODE)
            .open(&temporary)?;
        let this = Self(Some(temporary));
        match fs::metadata(path) {
            Ok(old) => {
                let own = file.metadata()?;
                if (old.uid(), old.gid()) != (own.uid(), own.gid()) {
                    fchown(&file, Some(old.uid()), Some(old.gid()))?;
                }
                let mode = old.permissions().mode() & 0o7777;
                file.set_permissions(fs::Permissions::from_mode(mode))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        Ok(this)
    }

    fn put_in_place(mut self, path: &Path) -> io::Result<()> {
        if let Some(temporary) = &self.0 {
            fs::rename(temporary, path)?;
            self.0 = None;
        }
        Ok(())
    }
}

impl Drop for NewVersion {
    fn drop(&mut self) {
        if let Some(temporary) = &self.0 {
            // What cannot be removed is in nobody's way.
            drop(fs::remove_file(temporary));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::auth::ApiKey;

    use super::*;

    fn table(name: &str) -> String {
        let key = ApiKey::random();
        let secret = format!("{}:sha256:{}", key.id(), key.hash());
        format!("[[key]]\nname = {name:?}\nsecrets = [{secret:?}]\nview = [\"*\"]\n")
    }

    fn names(path: &Path) -> Vec<String> {
        let ring = KeysFile::new(path).read().unwrap();
        ring.keys().iter().map(|key| key.name.to_string()).collect()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_file_that_is_not_there_is_made_and_one_that_is_keeps_what_it_has() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.toml");
        append(&path, &table("one")).unwrap();
        assert_eq!(mode(&path), 0o600);
        // Whatever an editor has left at its end.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("# Keys.\n{}", text.trim_end())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let link = directory.path().join("link.toml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        append(&link, &table("two")).unwrap();
        assert_eq!(names(&path), ["one", "two"]);
        assert_eq!(mode(&path), 0o640);
        assert!(fs::read_to_string(&path).unwrap().starts_with("# Keys.\n"));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_a_gateway_would_refuse_leaves_the_file_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.toml");
        let one = table("one");
        append(&path, &one).unwrap();
        let again = append(&path, &table("one")).unwrap_err().to_string();
        assert!(again.contains("a name that no other key has"), "{again}");
        let same_id = one.replace("\"one\"", "\"two\"");
        let same_id = append(&path, &same_id).unwrap_err().to_string();
        assert!(same_id.contains("ids that stand nowhere else"), "{same_id}");
        assert_eq!(fs::read_to_string(&path).unwrap(), one);
        fs::write(&path, "not TOML").unwrap();
        let broken = append(&path, &table("two")).unwrap_err().to_string();
        assert!(broken.contains("is not TOML"), "{broken}");
        let refused = append(Path::new("/dev/null"), &one)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("/dev/null: it is a device"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "not TOML");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn keys_that_are_made_at_the_same_time_are_all_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.toml");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let path = &path;
                scope.spawn(move || append(path, &table(&number.to_string())).unwrap());
            }
        });
        assert_eq!(names(&path).len(), 8);
    }
}
