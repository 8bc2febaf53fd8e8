//! The files of the dashboard, as the build has packed them.

use bytes::Bytes;

use crate::http::file::{File, Keep};

/// A file as the build writes it down.
struct Packed {
    /// The path below `dashboard/`.
    path: &'static str,
    media: &'static str,
    mark: &'static str,
    plain: &'static [u8],
    gzip: Option<&'static [u8]>,
}

/// In the order of their paths.
const FILES: &[Packed] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

/// Where the libraries are.
const VENDORED: &str = "vendor/";

/// The file at a path below `/dashboard/`.
pub(super) fn file(path: &str) -> Option<File> {
    let at = FILES
        .binary_search_by(|packed| packed.path.cmp(path))
        .ok()?;
    let packed = &FILES[at];
    Some(File {
        media: packed.media,
        mark: packed.mark.to_owned(),
        plain: Bytes::from_static(packed.plain),
        gzip: packed.gzip.map(Bytes::from_static),
        keep: if names_a_version(packed.path) {
            Keep::ForEver
        } else {
            Keep::WhileItIsTheSame
        },
    })
}

/// Whether another version of a library would be at another path: it says `@` and a number.
fn names_a_version(path: &str) -> bool {
    path.starts_with(VENDORED)
        && path
            .split('@')
            .skip(1)
            .any(|behind| behind.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_found_at_its_path_and_no_other() {
        for packed in FILES {
            let found = file(packed.path).unwrap();
            assert_eq!(found.plain, packed.plain, "{}", packed.path);
            assert!(!packed.mark.is_empty() && !packed.media.is_empty());
        }
        for path in [
            "",
            "/",
            "nope.js",
            "../Cargo.toml",
            "INDEX.HTML",
            "README.md",
        ] {
            assert!(file(path).is_none(), "{path}");
        }
        assert!(file("index.html").is_some());
    }

    #[test]
    fn only_a_library_with_its_version_in_its_path_never_changes() {
        for path in ["vendor/preact@10.27.2/preact.js", "vendor/uplot@1.6.32.js"] {
            assert!(names_a_version(path), "{path}");
        }
        for path in ["vendor/preact.js", "vendor/@preact/signals.js", "a@1.js"] {
            assert!(!names_a_version(path), "{path}");
        }
    }
}
