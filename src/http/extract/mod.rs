//! What handlers take: parsed, checked, and refused with a problem.

mod accept;
mod body;
mod caller;
mod event_stream;
mod fields;
mod idempotency_key;
mod json_value;
mod lock_token;
mod no_query;
mod optional_caller;
mod path;
mod provenance;
mod query;
mod receive;
mod release_caller;
mod session;
mod sign_out_caller;

pub(super) use accept::{AcceptsHtml, AcceptsJson, ProblemPage};
pub(super) use body::{ApiJson, RequestBody};
pub(super) use caller::Caller;
pub(super) use event_stream::EventStream;
pub(super) use fields::Fields;
pub(super) use idempotency_key::IdempotencyKeyHeader;
pub(super) use lock_token::LockToken;
pub(super) use no_query::NoQuery;
pub(super) use optional_caller::OptionalCaller;
pub(super) use path::{ApiPath, PathParameter};
pub(super) use provenance::Provenance;
pub(super) use query::{ApiQuery, Parameters, Query};
pub(super) use release_caller::ReleaseCaller;
pub(super) use sign_out_caller::SignOutCaller;
