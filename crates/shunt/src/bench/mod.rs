//! `shunt bench`: compares a directory of a mount with the directory below it.
//!
//! Both sides run the same cases in turn, several rounds, in an order that alternates, so that a noisy moment and a drift of the
//! machine affect both. Each round yields one ratio per case; the median of the ratios is the result, and its confidence interval
//! comes from their order statistics, without an assumption about their distribution. Everything happens in a fresh subdirectory of
//! each side, which is removed in any case.

mod case;
mod escape;
mod html;
mod interrupt;
mod measure;
mod results;
mod scratch;
mod sides;
mod space;
mod statistics;
mod svg;
mod table;
mod workload;

pub use case::Plan;
pub use html::page;
pub use interrupt::Interrupt;
pub use measure::measure;
pub use sides::Sides;
pub use space::check as check_space;
pub use table::render;
