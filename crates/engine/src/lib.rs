//! The models and the restoration: Gemma 4 verifier, drafter, f_θ, arms and decode loops, behind one [`serve()`] loop.

pub mod backend;
pub mod candle;
mod columns;
mod config;
pub mod decode;
mod demo;
pub mod drafter;
mod error;
pub mod f_theta;
pub mod fidelity;
mod footprint;
pub mod gemma;
mod gguf;
mod headers;
mod inspect;
mod library;
#[cfg(any(feature = "mlx", target_os = "macos"))]
pub mod mlx;
pub mod noise;
mod numeric;
pub mod pack;
mod quantisation;
pub mod restoration;
pub mod selftest;
mod serve;
pub mod threads;
pub mod tokenizer;
mod weights;
mod worker;

pub use error::Error;
pub use headers::Headers;
pub use library::{inspect, self_test};
pub use serve::{Durable, Identity, ServeError, serve};
