//! Packs made from the demo pack, each with one fault, and what becomes of them. The engine that looks is the real one.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test panics, and sets up fixtures")]

mod checks;
mod fixes;
mod support;
