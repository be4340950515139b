//! Scenario scripts.
