//! The scripts of a quorum under every order of messages that chance comes by.
//!
//! The model in `tests/it/model/fence` knows the protocol, and not the scripts. Here the scripts themselves run,
//! at nodes that are databases of one server, and attempts ask them as a gateway does: with messages that come
//! late, again, in any order or never, and answers that are lost. The counters begin far beyond the time, so
//! that nothing but they keeps the fences apart. Fences must be unique and rise whatever ends at a node at
//! whatever instant; leases that nothing ends but their release must not overlap. Each guard is taken out in
//! turn, and then something wrong must be found.

mod cases;
mod learner;
mod node;
mod variant;
mod walk;
