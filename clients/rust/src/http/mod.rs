//! Sends one request, repeats it where that is safe, and reads its answer.

mod call;
mod retry;

pub(crate) use call::{Call, millis};
pub(crate) use retry::{CallResponse, Retry, RetryableFailure, cause, pause};
