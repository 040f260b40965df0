//! `shunt top`: what the mounts of this machine do now.
//!
//! A [reading] has the reports of all daemons, as `shunt metrics` has them. A [view] is the difference of two readings, with
//! the names of the calling processes from `/proc`. It is printed once, as text or JSON, or shown on a terminal that is renewed at an
//! interval. Readings are taken on a thread of their own, with deadlines, so that no daemon can delay the display.

mod app;
mod callers;
mod display;
mod format;
mod kinds;
mod latency;
pub mod once;
mod processes;
mod rate;
mod reading;
mod sampler;
mod sort;
mod terminal;
mod ui;
mod view;

pub use app::{App, MAX_INTERVAL, MIN_INTERVAL};
pub use display::run;
pub use sort::SortKey;
