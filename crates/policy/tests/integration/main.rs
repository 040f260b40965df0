//! Policies and the redaction of pictures, through the public interface.

mod location_redaction;
mod malicious_files;
mod new_names;
mod overlapping_redactions;
mod policies;
