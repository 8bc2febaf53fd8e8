//! Joins the style sheets of the dashboard's page into one, because each separate sheet delays the first drawing of the
//! page.

use std::{fmt::Write as _, fs, path::Path};

/// The name of the dashboard's page.
pub(super) const INDEX: &str = "index.html";
/// The name of the joined style sheet.
pub(super) const SHEET: &str = "style.css";
/// The beginning and the end of the line with which the page includes a style sheet.
const LINK: (&str, &str) = ("<link rel=\"stylesheet\" href=\"", "\" />");

/// Returns the page, which includes only the joined style sheet; the joined style sheet, whose parts are in the order
/// of the page; and the paths of the parts.
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
