//! Reads a file that a setting names, if the file is regular and not longer than a limit.

use std::{
    fs::{File, FileType, Metadata, OpenOptions},
    io::{self, Read},
    path::Path,
};

/// Why a file cannot be read. The error shows none of the file's content; its text is meant to follow the file's
/// name.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be opened or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file is not a regular file: it may have no end, may block until another program writes to it, or can be read
    /// only once.
    #[error(
        "it is {0}, not a regular file: only such a file can be read again when it has changed"
    )]
    NotRegular(&'static str),
    /// The file is too long for its purpose, so the setting probably names the wrong file.
    #[error("it is longer than {0} bytes, the most that is read here")]
    TooLong(u64),
    /// The file is not UTF-8 text.
    #[error("it is not UTF-8")]
    NotUtf8,
}

/// Reads a whole file of at most `most` bytes. Does not wait for another program, such as the writer of a pipe, and
/// does not read a file without an end.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, FileError> {
    // The kind is checked before the file is opened, because opening a device may have an effect or block.
    regular(&std::fs::metadata(path)?)?;
    let file = open(path)?;
    // The kind is checked again, because another file may be at the path since the first check.
    let size = regular(&file.metadata()?)?;
    if size > most {
        return Err(FileError::TooLong(most));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    // The size in the metadata may be wrong: the file may grow, and in /proc the size is 0.
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(FileError::TooLong(most));
    }
    Ok(bytes)
}

/// Reads a whole file of at most `most` bytes as text.
pub fn read_text(path: &Path, most: u64) -> Result<String, FileError> {
    // The error of the conversion is dropped, because it contains the content of the file.
    String::from_utf8(read(path, most)?).map_err(|_text| FileError::NotUtf8)
}

/// The length of a file. Fails if the file is not a regular file.
fn regular(data: &Metadata) -> Result<u64, FileError> {
    if data.is_file() {
        Ok(data.len())
    } else {
        Err(FileError::NotRegular(kind(data.file_type())))
    }
}

#[cfg(unix)]
fn kind(file: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;

    if file.is_dir() {
        "a directory"
    } else if file.is_fifo() {
        "a pipe (as /dev/stdin and <(..) may be)"
    } else if file.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(not(unix))]
fn kind(file: FileType) -> &'static str {
    if file.is_dir() {
        "a directory"
    } else {
        "a device"
    }
}

/// Opens a file for reading, without blocking. Without the flag `NONBLOCK`, opening a pipe would block until another
/// program opens the pipe to write.
#[cfg(unix)]
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::OFlags;

    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).expect("the flags of open fit into an int");
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

#[cfg(not(unix))]
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(path)
}

#[cfg(all(test, unix))]
mod tests {
    use std::{fs, os::unix::net::UnixListener};

    use rustix::fs::{CWD, FileType as Kind, Mode, mknodat};

    use super::*;

    const MAX_BYTES: u64 = 16;

    fn refusal(path: &Path) -> String {
        read(path, MAX_BYTES)
            .expect_err("it is refused")
            .to_string()
    }

    #[test]
    fn what_has_no_end_is_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        mknodat(CWD, &pipe, Kind::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let socket = directory.path().join("socket");
        let _listening = UnixListener::bind(&socket).unwrap();
        for (path, kind) in [
            (Path::new("/dev/zero"), "it is a device, not a regular file"),
            (Path::new("/dev/null"), "it is a device, not a regular file"),
            (directory.path(), "it is a directory, not a regular file"),
            (
                pipe.as_path(),
                "it is a pipe (as /dev/stdin and <(..) may be), not",
            ),
            (socket.as_path(), "it is a socket, not a regular file"),
        ] {
            let said = refusal(path);
            assert!(said.starts_with(kind), "{}: {said}", path.display());
        }
        // Opening a pipe that replaced the file after the first check must not block either.
        let opened = open(&pipe).unwrap().metadata().unwrap();
        assert!(regular(&opened).is_err());
    }

    #[test]
    fn what_is_longer_than_allowed_is_another_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for length in [0, 15, 16] {
            fs::write(&path, vec![b'x'; length]).unwrap();
            assert_eq!(read(&path, MAX_BYTES).unwrap().len(), length);
        }
        fs::write(&path, [b'x'; 17]).unwrap();
        assert_eq!(
            refusal(&path),
            "it is longer than 16 bytes, the most that is read here"
        );
        // Files in /proc report a size of 0.
        assert!(
            !read(Path::new("/proc/self/stat"), 4_096)
                .unwrap()
                .is_empty()
        );
        assert!(refusal(Path::new("/proc/self/environ")).contains("longer than 16"));
    }

    #[test]
    fn links_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&path, "text").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(read_text(&link, MAX_BYTES).unwrap(), "text");
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        assert!(refusal(&link).starts_with("it is a device"));
    }

    #[test]
    fn what_is_no_text_is_not_repeated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, b"s3cret\xff").unwrap();
        let error = read_text(&path, MAX_BYTES).unwrap_err();
        assert_eq!(format!("{error} {error:?}"), "it is not UTF-8 NotUtf8");
    }
}
