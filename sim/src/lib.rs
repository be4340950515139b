//! Simulates whole deployments of Tenure, with the machines that ship, from one source of choice.

#![forbid(unsafe_code)]

pub mod bugs;
pub mod model;
pub mod planted_switch;
