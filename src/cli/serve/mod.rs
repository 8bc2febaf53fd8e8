//! `latchgate serve`: runs a gateway, from reading the configuration to the last answer.

mod run;
mod service_manager;
mod stop;

pub use run::serve_over;
pub(super) use run::{Ready, ServeArgs, serve, start};
