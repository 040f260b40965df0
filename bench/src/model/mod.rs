//! The data of a report: rows of a workload with one series per peer, and the thresholds that judge them.
//!
//! Plain values without I/O. Workloads fill rows in, the report prints them, and serde writes them to `results.json`.

mod judge;
mod round_trip;
mod row;
mod series;
mod statistics;
mod threshold;
mod unit;

pub use round_trip::{RoundTrip, RoundTrips};
pub use row::Row;
pub use series::{Sample, Series};
pub use statistics::median;
pub use unit::Unit;
