//! A reference model of the rules, written from the design alone.
