//! Joins the style sheets that the page names into one: each of its own would hold up what is drawn first.

use std::{fmt::Write as _, fs, path::Path};

/// The page.
pub(super) const INDEX: &str = "index.html";
/// What its style sheets become.
pub(super) const SHEET: &str = "style.css";
/// How the page names one, on a line of its own.
const LINK: (&str, &str) = ("<link rel=\"stylesheet\" href=\"", "\" />");

/// The page with one style sheet, and that sheet, in the order in which the page names its parts; and their
/// paths.
pub(super) fn join(directory: &Path) -> (String, String, Vec<String>) {
    let read = |path: &str| {
        fs::read_to_string(directory.join(path))
            .unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
    };
    let (mut page, mut sheet, mut sheets) = (String::new(), String::new(), Vec::new());
    for line in read(INDEX).lines() {
        let named = line.trim().strip_prefix(LINK.0);
        let Some(path) = named.and_then(|rest| rest.strip_suffix(LINK.1)) else {
            writeln!(page, "{line}").expect("a String takes every text");
            continue;
        };
        if sheets.is_empty() {
            writeln!(page, "    {}{SHEET}{}", LINK.0, LINK.1).expect("a String takes every text");
        }
        let part = read(path);
        assert!(
            !part.contains("url(") && !part.contains("@import"),
            "{path} names a file, which would be looked for beside {SHEET}"
        );
        writeln!(sheet, "{part}").expect("a String takes every text");
        sheets.push(path.to_owned());
    }
    (page, sheet, sheets)
}
