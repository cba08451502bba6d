//! Everything that stands between a model pack and a valid run, checked from headers alone.

mod check;

pub use check::{Check, Group, Status};
