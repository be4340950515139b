//! What spans crates: scenario scripts and their runner.

pub mod scenario;
