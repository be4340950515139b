//! Simulates whole deployments of Tenure, with the machines that ship, from one source of choice.

#![forbid(unsafe_code)]

pub mod model;
