//! What commands show to people, and the signals that people send them.

pub(super) mod duration;
pub(super) mod output;
pub(super) mod release_request;
pub(super) mod signals;
pub(super) mod table;
pub(super) mod visible;
pub(super) mod waiting;
