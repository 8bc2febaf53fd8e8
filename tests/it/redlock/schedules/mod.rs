//! The scripts of a quorum under random orders of messages.
//!
//! The model in `tests/it/model/fence` covers the protocol, but not the scripts. Here the real scripts run at nodes
//! that are databases of one server. Attempts ask them as a gateway does: messages come late, twice, in any order or
//! never, and replies are lost. The counters begin far beyond the time, so that only the counters keep the fencing
//! tokens apart. Fencing tokens must be unique and rise, whatever ends at a node at any instant; leases that end only
//! by their release must not overlap. In turn, each guard is removed, and then a violation must be found.

mod cases;
mod learner;
mod node;
mod variant;
mod walk;
