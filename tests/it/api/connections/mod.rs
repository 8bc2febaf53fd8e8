//! Connections, and callers that leave them.

mod bounds;
mod delivery;
mod hang_ups;
