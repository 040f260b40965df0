//! Rates of counters between two reports.

/// The rate of a counter per second; 0 without an earlier report.
pub fn rate<T>(now: &T, before: Option<&T>, seconds: f64, read: fn(&T) -> u64) -> f64 {
    before.map_or(0.0, |before| read(now).saturating_sub(read(before)) as f64 / seconds)
}
