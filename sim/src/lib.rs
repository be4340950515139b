//! Simulates whole deployments of Tenure, with the machines that ship, from one source of choice.
//!
//! A [`World`](world::World) is servers that compete for partitions on a shared store, workers, clients and the outside,
//! every process with its own clocks, on a network that loses, repeats and delays. [`swarm::Config`] draws what is in it
//! from a seed; [`choice::Choice`] decides everything that could go one way or another; [`oracle::Oracles`] hold all that
//! happens against the guarantees.

#![forbid(unsafe_code)]

pub mod bugs;
pub mod campaign;
pub mod choice;
pub mod client;
pub mod clock;
pub mod codec;
pub mod definitions;
pub mod digest;
pub mod hunt;
pub mod model;
pub mod network;
pub mod oracle;
pub mod outside;
pub mod packet;
pub mod planted_switch;
pub mod rogue;
pub mod server;
pub mod shrink;
pub mod site;
pub mod situation;
pub mod store;
pub mod swarm;
pub mod tables;
pub mod tape;
pub mod trial;
pub mod worker;
pub mod world;

mod faults;
mod line;
mod sightings;
