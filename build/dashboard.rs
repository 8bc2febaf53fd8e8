//! Packs the files of the dashboard into the program: each with its media type, a hash that names its version, and a
//! compressed copy. All modules become one script, and all style sheets become one style sheet.

mod modules;
mod sheets;

use std::{
    env,
    ffi::OsStr,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};

use self::{
    modules::{CLIENT, SCRIPT},
    sheets::{INDEX, SHEET},
};

/// The source directory of the dashboard.
const DIRECTORY: &str = "dashboard";
/// The media types of the dashboard's files by file extension. A file with another extension fails the build.
const TYPES: &[(&str, &str)] = &[
    ("css", "text/css; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    // Text files are the licences of libraries.
    ("txt", "text/plain; charset=utf-8"),
    ("woff2", "font/woff2"),
];

/// Writes `dashboard.rs`: a list of all packed files (`Packed`), sorted by path.
pub(super) fn pack() {
    println!("cargo:rerun-if-changed={DIRECTORY}");
    println!("cargo:rerun-if-changed={CLIENT}");
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("Cargo names the package"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("Cargo names a place for what is built"));
    let directory = root.join(DIRECTORY);
    let mut paths = Vec::new();
    collect(&directory, &directory, &mut paths);
    let packed = out.join("dashboard");
    fs::create_dir_all(&packed).expect("the place for what is built takes directories");
    let (page, sheet, sheets) = sheets::join(&directory);
    let (script, modules) = modules::join(&directory);
    let made = [(INDEX, page), (SHEET, sheet), (SCRIPT, script)];
    paths.retain(|path| !sheets.contains(path) && !modules.contains(path));
    for (path, text) in &made {
        fs::write(packed.join(path), text).expect("the place for what is built takes files");
        paths.push((*path).to_owned());
    }
    paths.sort();
    // The path of the page occurs twice, because the page is a source file and is also generated.
    paths.dedup();
    let mut list = String::from("&[\n");
    for (number, path) in paths.iter().enumerate() {
        let is_made = made.iter().any(|(made, _)| made == path);
        let file = if is_made { &packed } else { &directory }.join(path);
        let bytes = fs::read(&file).expect("a file that was just found can be read");
        let smaller = compressed(&bytes).map(|small| {
            let place = packed.join(format!("{number}.gz"));
            fs::write(&place, small).expect("the place for what is built takes files");
            place
        });
        let entry = entry(path, &file, &bytes, smaller.as_deref());
        writeln!(list, "    {entry},").expect("a String takes every text");
    }
    list.push_str("]\n");
    fs::write(out.join("dashboard.rs"), list).expect("the place for what is built takes files");
}

fn entry(path: &str, file: &Path, bytes: &[u8], smaller: Option<&Path>) -> String {
    let media = media(path);
    let mark = mark(bytes);
    let included = |file: &Path| {
        let file = file.to_str().expect("the path of the package is UTF-8");
        format!("include_bytes!({file:?})")
    };
    let plain = included(file);
    let gzip = match smaller {
        Some(place) => format!("Some({})", included(place)),
        None => "None".to_owned(),
    };
    format!(
        "Packed {{ path: {path:?}, media: {media:?}, mark: {mark:?}, plain: {plain}, gzip: {gzip} }}"
    )
}

/// Collects the paths of the files below `directory` that the dashboard serves, relative to `top`.
fn collect(top: &Path, directory: &Path, paths: &mut Vec<String>) {
    let entries = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", directory.display()));
    for entry in entries {
        let path = entry.expect("a directory can be read to its end").path();
        let is_hidden = path
            .file_name()
            .is_none_or(|name| name.to_string_lossy().starts_with('.'));
        if is_hidden || path.extension() == Some(OsStr::new("md")) {
            // Not served: files of editors, and documents for developers of the dashboard.
            continue;
        }
        if path.is_dir() {
            collect(top, &path, paths);
            continue;
        }
        let below = path.strip_prefix(top).expect("it was found below");
        let below = below
            .to_str()
            .expect("the names of the page's files are ASCII");
        paths.push(below.replace('\\', "/"));
    }
}

fn media(path: &str) -> &'static str {
    let end = path.rsplit('.').next().unwrap_or_default();
    let known = TYPES.iter().find(|(known, _)| *known == end);
    known.map_or_else(
        || {
            panic!(
                "{DIRECTORY}/{path} would be served without a type: build/dashboard.rs lists them"
            )
        },
        |(_, media)| media,
    )
}

/// 64 bits of the hash of a file, which distinguish the versions of the file.
fn mark(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let first: [u8; 8] = std::array::from_fn(|at| hash[at]);
    format!("{:016x}", u64::from_be_bytes(first))
}

/// The compressed copy of a file, unless it would not be smaller, as for images. The copy has no time stamp, so that
/// the same files always give the same program.
fn compressed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut writer = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::best());
    writer.write_all(bytes).expect("a Vec takes all bytes");
    let small = writer.finish().expect("a Vec takes all bytes");
    (small.len() < bytes.len()).then_some(small)
}
