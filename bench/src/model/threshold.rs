//! A threshold that a row must reach, and its verdict.

use serde::Serialize;

/// A threshold and the row's result against it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Threshold {
    /// The threshold in words, such as `>= 0.80 native`.
    pub text: String,
    /// The measured value; none when a peer is missing.
    pub value: Option<f64>,
    /// The verdict; none when a peer is missing.
    pub pass: Option<bool>,
    /// The ratio of native itself to the same peer: no daemon can do better.
    pub native: Option<f64>,
    /// The peer's seconds as a multiple of its floor, for thresholds that accept that.
    pub times_floor: Option<f64>,
}

impl Threshold {
    /// The measured value, as text.
    pub fn measured(&self) -> String {
        let value = self.value.map_or("-".into(), |value| format!("{value:.2}"));
        let native = self.native.map_or(String::new(), |native| format!(" (native: {native:.2})"));
        let floor = self.times_floor.map_or(String::new(), |times| format!(", {times:.2} times its floor"));
        format!("{value}{native}{floor}")
    }
}
