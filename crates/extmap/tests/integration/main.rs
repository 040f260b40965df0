//! Tests of file data past the daemon: in the lab, and on the lab's recordings.

mod lab;
mod power_cuts;
