//! The models and the restoration: Gemma 4 verifier, drafter, f_θ, arms and decode loops, behind one [`serve`] loop.

mod serve;

pub use serve::{Identity, ServeError, serve};
