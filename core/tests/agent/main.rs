//! Agents against real Coordinators: faults of workers and of the network, one by one and at random.

#![allow(unreachable_pub, reason = "modules of one test")]

mod random;
mod story;
mod world;
