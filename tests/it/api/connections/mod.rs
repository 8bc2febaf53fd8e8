//! Connections, and callers that leave them.

mod connections;
mod delivery;
mod hang_ups;
