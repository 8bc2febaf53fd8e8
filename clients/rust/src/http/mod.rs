//! One request, its copies and its answer.

mod call;
mod call_response;
mod retry;

pub(crate) use call::{Call, millis};
pub(crate) use call_response::{CallResponse, cause};
pub(crate) use retry::{Retry, RetryableFailure, pause};
