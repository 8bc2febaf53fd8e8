//! The command line: one file per command, on the client in Rust.

mod acquire;
mod backup;
mod break_lock;
mod caller;
mod config;
mod error;
mod events;
mod healthcheck;
mod inspect;
mod key;
mod program;
mod renew;
mod run;
mod serve;
mod terminal;

pub use error::Exit;
pub use program::{Args, main};
pub use serve::serve_over;
