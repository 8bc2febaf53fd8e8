//! What handlers take: parsed, checked, and refused with a problem.

mod accept;
mod body;
mod caller;
mod fields;
mod if_none_match;
mod lock_token;
mod path;
mod prefer;
mod provenance;
mod query;

pub(super) use accept::{AcceptsHtml, AcceptsJson, EventStream, ProblemPage};
pub(super) use body::{ApiJson, RequestBody};
pub(super) use caller::{Caller, OptionalCaller, ReleaseCaller, SignOutCaller};
pub(super) use fields::Fields;
pub(super) use if_none_match::IfNoneMatch;
pub(super) use lock_token::{IdempotencyKeyHeader, LockToken};
pub(super) use path::{ApiPath, PathParameter};
pub(super) use prefer::{AppliedWait, PreferredWait};
pub(super) use provenance::Provenance;
pub(super) use query::{ApiQuery, NoQuery, Parameters, Query};
