//! `latchgate run`: what must hold if the command ends, the lease is lost, the gateway disappears, or `latchgate run`
//! itself is killed.

mod commands;
mod containers;
mod fixture;
mod loss;
mod signals;
mod terminal;

pub(super) use fixture::{
    Running, begun, held, inspect, is_alive, run_sh, start, until, until_dead, until_free, waiters,
};
