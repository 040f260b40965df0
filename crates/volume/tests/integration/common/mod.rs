//! Modules that several tests share.

pub mod faulty_metadata_store;
pub mod faulty_object_store;
pub mod seed_loop;
