//! Rows of text, aligned: as they are printed, and as Markdown.

use std::fmt::Write as _;

/// A table with a head.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table of these columns.
    #[must_use]
    pub fn of(columns: &[&str]) -> Self {
        Self {
            rows: vec![columns.iter().map(ToString::to_string).collect()],
        }
    }

    /// One more row.
    pub fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// As Markdown whose columns are aligned, so that it reads as well in a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (at, row) in self.rows.iter().enumerate() {
            for (column, width) in widths.iter().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                // Writing to a string does not fail.
                let _ = write!(text, "| {cell:width$} ");
            }
            text.push_str("|\n");
            if at == 0 {
                for width in &widths {
                    let _ = write!(text, "| {} ", "-".repeat(*width));
                }
                text.push_str("|\n");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::of(&["a", "long"]);
        table.push(vec!["wäre".into(), "x".into()]);
        let text = table.text();
        assert_eq!(text, "| a    | long |\n| ---- | ---- |\n| wäre | x    |\n");
    }
}
