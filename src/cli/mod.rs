//! The command line: one file per command.

mod acquire;
mod args;
mod break_lock;
mod completions;
mod config;
mod connection;
mod duration;
mod environment;
mod error;
mod events;
mod exit;
mod healthcheck;
mod inspect;
mod key;
mod lease;
mod list;
mod openapi;
mod output;
mod program;
mod release;
mod renew;
mod request;
mod run;
mod secret;
mod serve;
mod signals;
mod sources;
mod visible;
mod waiting;

pub use args::Args;
pub use exit::Exit;
pub use program::main;
pub use serve::serve_over;
