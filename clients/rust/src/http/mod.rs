//! One request, its copies and its answer.

mod backoff;
mod call;
mod call_response;
mod retry;
mod retryable_failure;

pub(crate) use backoff::pause;
pub(crate) use call::Call;
pub(crate) use call_response::{CallResponse, NoAnswer, cause};
pub(crate) use retry::Retry;
pub(crate) use retryable_failure::RetryableFailure;
