//! Connections: their limits, delivery of grants, and callers that hang up.

mod bounds;
mod delivery;
mod hang_ups;
