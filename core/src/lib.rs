//! Tenure's core: pure, deterministic state machines for durable work that exactly one holder does at a time and that
//! is never lost.
//!
//! A machine is a plain value. It never reads a clock, draws a random number, spawns, blocks, logs or makes ids. Time,
//! randomness and ids come in with the input, so the same inputs give the same outputs, byte for byte, everywhere.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod agent;
pub mod coordinator;
pub mod definition;
pub mod graph;
pub mod id;
pub mod invariants;
pub mod lifecycle;
pub mod limits;
pub mod shard;
pub mod steward;
pub mod time;
pub mod value;

mod mix;

/// The code in README.md is run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}

pub use agent::Agent;
pub use coordinator::Coordinator;
pub use shard::Shard;
pub use steward::Steward;
