//! What surrounds every request: who may ask and for which host, its limits, its id, its line in the
//! log, its problem.

mod access_log;
mod caller_name;
mod copied;
mod hosts;
mod layer;
mod load;
mod origins;
mod refused;
mod request_id;
mod sender;
mod shown;
mod traced;

pub(super) use caller_name::CallerName;
pub(super) use layer::{EdgeLayer, is_private};
pub(super) use load::{Turn, is_probe};
pub(super) use request_id::RequestId;
pub(super) use sender::Sender;
