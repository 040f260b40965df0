//! Policies and the redaction of pictures, through the public interface.

mod hostile;
mod overlaps;
mod pictures;
mod policies;
