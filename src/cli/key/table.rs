//! A table for people.

/// Rows in columns that are as wide as they must be.
pub(super) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let lengths = rows.iter().map(|row| row[column].len());
        lengths.max().unwrap_or_default()
    });
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        let line = cells.join("  ");
        line.trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let rows = [["a", "bbb", "c"], ["aaaa", "b", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), "a     bbb  c\naaaa  b\n");
    }
}
