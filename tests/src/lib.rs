//! What spans crates: scenario scripts and their runners.

pub mod scenario;
pub mod stewards;
