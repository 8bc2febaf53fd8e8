//! Changes a keys file, for example by adding the table of a new key.

use std::{
    fs::{self, File, Metadata, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt, fchown},
    path::Path,
};

use rustix::fs::{FlockOperation, flock};

use crate::{
    auth::KeysFile,
    bounded_file::{self, FileError},
    cli::{
        backup::{directory, new_version, replace},
        error::CliError,
    },
    file_stamp::FileStamp,
};

/// The error if the new key cannot be printed. Its secret is then lost, so `remedy` says how to remove the key from the
/// keys file.
pub(super) fn key_not_written(error: &io::Error, remedy: &str) -> CliError {
    CliError::unexpected(format!(
        "cannot write the key: {error}; the key is lost: {remedy}"
    ))
}

/// Adds the table of a key to a keys file in one step: a reader sees the file either without the key or with it. A
/// missing file is created. An existing file keeps its mode and its owner.
pub(super) fn append(path: &Path, table: &str) -> Result<(), CliError> {
    change(path, |old| Ok(with_table(old, table)))
}

/// Replaces the text of a keys file with what `edit` makes of it, in one step. The text of a missing file is empty. An
/// error of `edit` says why the change does not apply to the file.
pub(super) fn change(
    path: &Path,
    edit: impl FnOnce(&str) -> Result<String, String>,
) -> Result<(), CliError> {
    // If the path is a symbolic link, the link stays and its target is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_missing| path.to_owned());
    let file = path.display();
    let unwritable = |error: io::Error| {
        let text = format!("cannot write the keys file {file}: {error}; the file is unchanged");
        CliError::unexpected(text)
    };
    let locked = File::open(directory(&path)).map_err(unwritable)?;
    // The file lock makes changes take turns: without it, one of two changes at the same time would be lost.
    flock(&locked, FlockOperation::LockExclusive).map_err(|error| unwritable(error.into()))?;
    let before = FileStamp::read(&path);
    let old = match bounded_file::read_text(&path, KeysFile::MAX_LEN) {
        Ok(text) => Some(text),
        Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            let text = format!("cannot read the keys file {file}: {error}");
            return Err(CliError::usage(text));
        }
    };
    let unfit = |reason| CliError::usage(format!("{file}: {reason}"));
    let text = edit(old.as_deref().unwrap_or_default()).map_err(unfit)?;
    // Refuses a text that a gateway would not accept, such as two keys with one name or two secrets with one id.
    KeysFile::new(&path).parse(&text)?;
    let new = new_version(&path, text.as_bytes()).map_err(unwritable)?;
    if old.is_some() {
        let taken = fs::metadata(&path).and_then(|old| {
            take_after(new.as_file(), &old)?;
            // Without the sync, a power failure might leave a keys file that the gateway cannot read.
            new.as_file().sync_all()
        });
        taken.map_err(unwritable)?;
    }
    if FileStamp::read(&path) != before {
        return Err(CliError::unexpected(format!(
            "another program has changed the keys file {file} meanwhile; this command changed \
             nothing"
        )));
    }
    replace(&path, new).map_err(unwritable)
}

/// Gives the new version of a file the mode and the owner of its old version.
fn take_after(new: &File, old: &Metadata) -> io::Result<()> {
    let own = new.metadata()?;
    if (old.uid(), old.gid()) != (own.uid(), own.gid()) {
        fchown(new, Some(old.uid()), Some(old.gid()))?;
    }
    let mode = old.permissions().mode() & 0o7777;
    new.set_permissions(Permissions::from_mode(mode))
}

/// The text of a keys file with one more `[[key]]` table at its end.
fn with_table(old: &str, table: &str) -> String {
    let between = match old {
        "" => "",
        old if old.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    format!("{old}{between}{table}")
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
        // The table must be added correctly after a file without a newline at its end.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("# Keys.\n{}", text.trim_end())).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
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
        assert!(
            same_id.contains("ids that no other secret has"),
            "{same_id}"
        );
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
