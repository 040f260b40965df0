//! Tests of the module itself, and of ext4 over it. They need the module: `lab/extmap` runs them in the lab, where it is
//! loaded.

mod aligned;
mod boundary_calls;
mod connection_abort;
mod disk;
mod ext4;
mod fuzz;
mod io_completion;
mod malicious_calls;
mod mapped_reads;
mod memory_pressure;
mod power_cut_workload;
pub mod race;
mod random_writes;
mod raw_calls;
pub mod rng;
mod speed;
pub mod tagged_content;
pub mod workload_plan;
mod writable_files;
mod write_failures;
mod writes;
