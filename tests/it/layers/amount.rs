//! The amount of code: a table has a row for each room, and a room that grows beyond its row fails the test.
//!
//! A line of code is not blank, not a comment and not part of a test. A test is an item under `#[cfg(test)]`, a file
//! that such an item names, a file `tests.rs`, and each file of a folder `tests`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use super::lua_offsets;

/// The table. To raise a row, edit it and write the reason behind it; `BLESS=1` only lowers rows.
const TABLE: &str = "tests/it/layers/amount.txt";
/// A row that is higher than its count by more than this is out of date.
const SLACK: usize = 20;
/// Folders whose sub-folders are rooms of their own.
const ROOMS_OF_ROOMS: [&str; 2] = ["src/store", "src/store/redis"];

/// Files, lines of code and characters without blanks. A script and its wrapper of the same name are one file.
#[derive(Default)]
struct Amount {
    files: BTreeSet<PathBuf>,
    lines: usize,
    characters: usize,
}

/// The code of a Rust file, and its test modules.
#[derive(Default)]
struct RustLines {
    code: Vec<String>,
    /// Names of modules under `#[cfg(test)]` that are separate files.
    test_modules: Vec<String>,
}

// === impl Amount ===

impl Amount {
    fn add<'a>(&mut self, path: &Path, lines: impl Iterator<Item = &'a str>) {
        for line in lines {
            self.files.insert(path.with_extension(""));
            self.lines += 1;
            self.characters += line.chars().filter(|c| !c.is_whitespace()).count();
        }
    }
}

// === impl RustLines ===

impl RustLines {
    fn read(text: &str) -> Self {
        let mut found = Self::default();
        let (mut depth, mut in_comment) = (0_i32, false);
        // The depth at which the item under `#[cfg(test)]` began.
        let mut test_item = None;
        let mut test_begins = false;
        for line in text.lines() {
            let mut line = line.trim();
            if in_comment {
                in_comment = !line.contains("*/");
                continue;
            }
            if line.is_empty() || line.starts_with("//") {
                continue;
            }
            if line.starts_with("/*") && !line.contains("*/") {
                in_comment = true;
                continue;
            }
            let (opens, closes) = braces(line);
            if let Some(outside) = test_item {
                depth += opens - closes;
                if depth <= outside {
                    test_item = None;
                }
                continue;
            }
            if let Some(rest) = line.strip_prefix("#[cfg(test)]") {
                test_begins = true;
                line = rest.trim();
                if line.is_empty() {
                    continue;
                }
            }
            if test_begins {
                if line.starts_with("#[") {
                    continue;
                }
                test_begins = false;
                if let Some(module) = module_of(line) {
                    found.test_modules.push(module.to_owned());
                } else if opens > closes {
                    test_item = Some(depth);
                    depth += opens - closes;
                } else if !line.ends_with([';', '}', ',']) {
                    // The signature goes on in the next line.
                    test_begins = true;
                }
                continue;
            }
            depth += opens - closes;
            found.code.push(line.to_owned());
        }
        found
    }
}

/// The module name in `mod NAME;`.
fn module_of(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    line.strip_prefix("mod ")?.strip_suffix(';')
}

/// How many braces a line opens and closes, outside of literals and comments.
fn braces(line: &str) -> (i32, i32) {
    let (mut opens, mut closes) = (0, 0);
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("//") {
            break;
        }
        let literal = match c {
            '\'' => character_literal(rest),
            '"' => string_literal(rest),
            _ => None,
        };
        opens += i32::from(c == '{');
        closes += i32::from(c == '}');
        rest = &rest[literal.unwrap_or(c.len_utf8())..];
    }
    (opens, closes)
}

/// The length of the character literal at the beginning of a text.
fn character_literal(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\'' {
        return None;
    }
    if first == '\\' {
        chars.next()?;
    }
    let (at, end) = chars.next()?;
    (end == '\'').then_some(at + 1)
}

/// The length of the string literal at the beginning of a text, if it ends in the same line.
fn string_literal(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some(at + 1),
            '\\' => _ = chars.next()?,
            _ => {}
        }
    }
    None
}

/// Every file of a folder with this name ending, with its path from the root of the repository.
fn files(folder: &str, end: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut paths, mut found) = (vec![root.join(folder)], Vec::new());
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(
                fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else if path.extension().is_some_and(|extension| extension == end) {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path.strip_prefix(root).unwrap().to_owned(), text));
        }
    }
    found.sort();
    found
}

/// The room of a file: its folder in `src`, deeper in the store. The crates of the client and of the vocabulary are one
/// room each, and the build script is another.
fn room_of(path: &Path) -> String {
    for (folder, room) in [
        ("clients/rust", "clients/rust"),
        ("crates/vocabulary", "crates/vocabulary"),
        ("build", "build"),
        ("build.rs", "build"),
    ] {
        if path.starts_with(folder) {
            return room.to_owned();
        }
    }
    let mut room = "src".to_owned();
    for part in path.parent().unwrap().iter().skip(1) {
        if room != "src" && !ROOMS_OF_ROOMS.contains(&room.as_str()) {
            break;
        }
        room = format!("{room}/{}", part.to_str().unwrap());
    }
    room
}

/// The code of every file of the programs, without tests.
fn rust_code() -> Vec<(PathBuf, Vec<String>)> {
    let folders = ["src", "clients/rust/src", "crates", "build", "build.rs"];
    let files: Vec<_> = folders
        .into_iter()
        .flat_map(|folder| files(folder, "rs"))
        .map(|(path, text)| (path, RustLines::read(&text)))
        .collect();
    let mut tests = BTreeSet::new();
    for (path, lines) in &files {
        let is_root = ["mod.rs", "lib.rs", "main.rs"]
            .iter()
            .any(|name| path.ends_with(name));
        let base = if is_root {
            path.parent().unwrap().to_owned()
        } else {
            path.with_extension("")
        };
        for module in &lines.test_modules {
            tests.insert(base.join(format!("{module}.rs")));
            tests.insert(base.join(module));
        }
    }
    let is_test = |path: &Path| {
        let names_it = path.ancestors().any(|path| tests.contains(path));
        names_it || path.iter().any(|part| part == "tests") || path.ends_with("tests.rs")
    };
    let code = files.into_iter().map(|(path, lines)| {
        let code = if is_test(&path) {
            Vec::new()
        } else {
            lines.code
        };
        (path, code)
    });
    code.collect()
}

/// Each count, by the name of its row.
fn counts() -> BTreeMap<String, usize> {
    let mut rooms = BTreeMap::<_, Amount>::new();
    for (path, code) in rust_code() {
        rooms
            .entry(room_of(&path))
            .or_default()
            .add(&path, code.iter().map(String::as_str));
    }
    let mut offsets = 0;
    for (path, text) in files("src", "lua") {
        let lines = text.lines().map(str::trim);
        let code = lines.filter(|line| !line.is_empty() && !line.starts_with("--"));
        rooms.entry(room_of(&path)).or_default().add(&path, code);
        offsets += lua_offsets::count(&text);
    }
    let mut rows = BTreeMap::new();
    let mut all = Amount::default();
    for (room, amount) in rooms.into_iter().filter(|(_, amount)| amount.lines > 0) {
        if room.starts_with("src") {
            all.lines += amount.lines;
            all.characters += amount.characters;
        }
        rows.insert(format!("lines {room}"), amount.lines);
        rows.insert(format!("files {room}"), amount.files.len());
    }
    let map = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md"));
    rows.insert("all lines of src".to_owned(), all.lines);
    rows.insert("all characters of src".to_owned(), all.characters);
    rows.insert("all offsets in Lua".to_owned(), offsets);
    rows.insert(
        "all lines of ARCHITECTURE.md".to_owned(),
        map.unwrap().lines().count(),
    );
    rows
}

/// A row of the table: `NUMBER NAME`, with `# REASON` behind it if it was raised.
fn row_of(line: &str) -> Option<(String, usize)> {
    let line = line.split('#').next().unwrap().trim();
    let (number, name) = line.split_once(' ')?;
    Some((
        name.trim().to_owned(),
        number.parse().expect("a row begins with a number"),
    ))
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the switch of the person who runs the tests"
)]
fn no_room_grows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    let table = fs::read_to_string(&path).unwrap();
    let held: BTreeMap<_, _> = table.lines().filter_map(row_of).collect();
    let counts = counts();
    let may_bless = std::env::var("BLESS").is_ok_and(|bless| bless == "1");
    let mut wrong = Vec::new();
    for (name, count) in &counts {
        match held.get(name) {
            None => wrong.push(format!("{name}: {count}, and the table has no row for it")),
            Some(held) if count > held => {
                wrong.push(format!("{name}: {count} instead of at most {held}"));
            }
            Some(held) if held - count > SLACK && !may_bless => {
                wrong.push(format!(
                    "{name}: {count}; lower the row, which says {held} (BLESS=1 does)"
                ));
            }
            Some(_) => {}
        }
    }
    let gone = held.keys().filter(|name| !counts.contains_key(*name));
    if !may_bless {
        wrong.extend(gone.map(|name| format!("{name}: there is no such room, remove its row")));
    }
    assert!(
        wrong.is_empty(),
        "The amount of code ({TABLE}):\n{}",
        wrong.join("\n")
    );
    if may_bless {
        let lowered = table.lines().filter_map(|line| {
            let Some((name, held)) = row_of(line) else {
                return Some(line.to_owned());
            };
            let count = *counts.get(&name)?;
            Some(if count < held {
                format!("{count:8} {name}")
            } else {
                line.to_owned()
            })
        });
        let text: Vec<_> = lowered.collect();
        fs::write(&path, text.join("\n") + "\n").unwrap();
    }
}

#[test]
fn code_is_neither_blank_nor_comment_nor_test() {
    let text = "//! Doc.\n\nuse a::B; // b\n/* one\ntwo */\nfn f() {\n    let s = \"{\"; let c = '{';\n}\n\
                #[cfg(test)]\n#[path = \"x.rs\"]\nmod tests;\n#[cfg(test)]\nfn g()\nwhere\n    A: B\n{\n    h();\n}\n\
                fn k<'a>() {}\n#[cfg(test)]\npub(crate) mod more;\n";
    let lines = RustLines::read(text);
    let code = [
        "use a::B; // b",
        "fn f() {",
        "let s = \"{\"; let c = '{';",
        "}",
        "fn k<'a>() {}",
    ];
    assert_eq!(lines.code, code);
    assert_eq!(lines.test_modules, ["tests", "more"]);
}

#[test]
fn each_folder_of_the_store_is_a_room() {
    for (path, room) in [
        ("src/lib.rs", "src"),
        ("src/http/locks/acquire.rs", "src/http"),
        ("src/store/contract.rs", "src/store"),
        ("src/store/embedded/log/mod.rs", "src/store/embedded"),
        ("src/store/redis/keys.rs", "src/store/redis"),
        (
            "src/store/redis/client/cluster/watch.rs",
            "src/store/redis/client",
        ),
        ("clients/rust/src/lease.rs", "clients/rust"),
        ("crates/vocabulary/src/ttl.rs", "crates/vocabulary"),
    ] {
        assert_eq!(room_of(Path::new(path)), room);
    }
}
