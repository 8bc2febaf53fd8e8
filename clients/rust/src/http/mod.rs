//! Sends one request, repeats it where that is safe, and reads its answer.

mod call;
mod retry;

pub(crate) use call::{Call, millis, without_nulls};
pub(crate) use retry::{CallResponse, Retry, RetryableFailure, SendError, cause, pause};
