//! A cluster of real servers: whom a gateway asks, and what becomes of locks whose slot moves.

mod down;
mod failover;
mod list;
mod motion;
pub(crate) mod pool;
mod redirects;
mod reshard;
pub(crate) mod servers;
mod sharing;
