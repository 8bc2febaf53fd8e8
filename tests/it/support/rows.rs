//! Tables of test cases, written as text.

/// The rows of a table: the texts before and after `=>`. A line that begins with `=>` or `..` continues the line
/// before. A row without a text before `=>` begins with `-`.
pub(crate) fn rows(table: &str) -> impl Iterator<Item = (String, String)> {
    let mut rows: Vec<String> = Vec::new();
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match (rows.last_mut(), line.strip_prefix("..")) {
            (Some(row), Some(more)) => *row += more,
            (Some(row), None) if line.starts_with("=>") => *row = format!("{row} {line}"),
            _ => rows.push(line.to_owned()),
        }
    }
    rows.into_iter().map(|row| {
        let (left, right) = row.split_once(" => ").unwrap_or_else(|| panic!("{row}"));
        let left = if left == "-" { "" } else { left.trim_end() };
        (left.to_owned(), right.trim().to_owned())
    })
}

/// The words of a text.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_ascii_whitespace()
}
