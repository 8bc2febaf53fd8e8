//! The source files of the repository.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A source file.
pub(crate) struct Source {
    /// The path of the file, relative to the root of the crate.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Every Rust file under some directories of the crate.
pub(crate) fn sources(directories: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for directory in directories {
        walk(&root.join(directory), &mut found);
    }
    found.sort();
    let source = |path: PathBuf| Source {
        text: fs::read_to_string(&path).unwrap(),
        path: path.strip_prefix(root).unwrap().display().to_string(),
    };
    found.into_iter().map(source).collect()
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}
