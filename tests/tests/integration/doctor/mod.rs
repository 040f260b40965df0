//! `shunt doctor` finds injected faults and says how to fix them.

mod limits;
mod mounts;
mod report;
