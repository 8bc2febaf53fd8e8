//! `latchgate run`: what must hold whatever becomes of the command, the lease, the gateway and
//! `latchgate run` itself.

mod commands;
mod containers;
mod fixture;
mod loss;
mod signals;
mod terminal;

pub(super) use fixture::{
    begun, held, inspect, is_alive, run_sh, start, until, until_dead, until_free, waiters,
};
