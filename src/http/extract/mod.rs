//! What handlers take: parsed, checked, and refused with a problem.

mod accept;
mod body;
mod caller;
mod field;
mod fields;
mod if_none_match;
mod lock_token;
mod path;
mod prefer;
mod provenance;
mod query;

pub(super) use accept::{AcceptsHtml, AcceptsJson, EventStream, ProblemPage};
pub(super) use body::{ApiJson, RequestBody, body_schema};
pub(super) use caller::{Caller, OptionalCaller, ReleaseCaller, SignOutCaller};
pub(super) use field::{Field, Form, declare_fields};
pub(super) use fields::Fields;
pub(super) use if_none_match::IfNoneMatch;
pub(super) use lock_token::{
    AdoptedToken, IdempotencyKeyHeader, LockToken, OnlyToken, TOKEN, TokenOrBody,
};
pub(super) use path::{ApiPath, NAME, PathParameter};
pub(super) use prefer::{AppliedWait, PreferredWait};
pub(super) use provenance::Provenance;
pub(super) use query::{ApiQuery, NoQuery, Query, prefix};
