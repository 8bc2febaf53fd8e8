//! The command line: one file per command, using the Rust client.

mod backup;
mod break_lock;
mod caller;
mod config;
mod demo;
mod error;
mod events;
mod healthcheck;
mod history;
mod inspect;
mod key;
mod lease;
mod order;
mod program;
mod reserve;
mod run;
mod serve;
mod terminal;
mod where_is;

pub use error::Exit;
pub use program::{Args, main};
pub use serve::serve_over;
