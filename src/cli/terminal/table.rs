//! Columns of text.

use std::fmt::Write;

/// Rows as lines whose columns are aligned.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or_default() + 2
    });
    let line = |row: &[String; N]| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            write!(line, "{cell:<width$}").expect("writing to a String never fails");
        }
        line.trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
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
