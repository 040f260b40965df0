//! File data past the daemon: in the lab, and what the lab recorded.

mod cuts;
mod lab;
