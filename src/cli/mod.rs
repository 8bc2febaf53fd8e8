//! The command line: one file per command.

mod acquire;
mod args;
mod backup;
mod break_lock;
mod caller;
mod completions;
mod config;
mod error;
mod events;
mod exit;
mod healthcheck;
mod inspect;
mod key;
mod list;
mod new_version;
mod openapi;
mod program;
mod release;
mod renew;
mod run;
mod serve;
mod sources;
mod terminal;

pub use args::Args;
pub use exit::Exit;
pub use program::main;
pub use serve::serve_over;
