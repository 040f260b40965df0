//! The results as a table on stdout.

use super::{Line, non_empty, verdict_text};
use crate::model::Row;

/// Prints the rows of one workload.
pub fn print(rows: &[Row]) {
    for row in rows {
        println!("\n{} / {}", row.workload, row.case);
        println!(
            "  {:<20} {:>18} {:>20} {:>9} {:>11}  floor (requests x empty round trip)",
            "", "median", "min..max", "x native", "requests"
        );
        for series in non_empty(row) {
            let line = Line::of(row, series);
            println!(
                "  {:<20} {:>18} {:>20} {:>9} {:>11}  {}",
                line.peer, line.value, line.range, line.ratio, line.requests, line.floor
            );
            if let Some(error) = &series.error {
                println!("  {:<20} {error}", "");
            }
        }
        for note in &row.notes {
            println!("  {note}");
        }
        for threshold in &row.thresholds {
            println!(
                "  threshold: {}: {} {}",
                threshold.text,
                threshold.measured(),
                verdict_text(threshold.pass)
            );
        }
    }
}
