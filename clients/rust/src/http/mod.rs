//! One request, its copies and its answer.

mod call;
mod retry;

pub(crate) use call::{Call, CallResponse, cause, millis};
pub(crate) use retry::{Retry, RetryableFailure, pause};
