//! Columns of text.

use std::fmt::Write;

/// Rows as lines whose columns are aligned.
pub(crate) fn aligned(rows: &[impl AsRef<[String]>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.as_ref().get(column));
        cells.map(|cell| cell.chars().count() + 2).max()
    };
    let widths: Vec<usize> = (0..).map_while(width).collect();
    let line = |row: &[String]| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            write!(line, "{cell:<width$}").expect("writing to a String never fails");
        }
        line.trim_end().to_owned() + "\n"
    };
    rows.iter().map(|row| line(row.as_ref())).collect()
}

/// A cell, and a dash where there is nothing to say.
pub(crate) fn or_dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_is_as_wide_as_its_widest_cell_and_no_line_ends_with_spaces() {
        let rows = [["LOCK", "OWNER"], ["ä", ""], ["deploy", "ci"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows), "LOCK    OWNER\n\u{e4}\ndeploy  ci\n");
    }
}
