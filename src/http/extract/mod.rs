//! Extractors: the inputs of handlers, parsed and checked, or refused with a problem.

mod accept;
mod body;
mod caller;
mod cookies;
mod field;
mod fields;
mod headers;
mod target;

pub(super) use accept::{AcceptsHtml, AcceptsJson, accepts, items, must_accept_events};
pub(super) use body::{ApiJson, RequestBody, body_schema};
pub(super) use caller::{Caller, OptionalCaller, SessionHolder, UnrefusedCaller, bearer};
pub(super) use cookies::{CookieJar, SESSION_COOKIE, cookie_value, cookies};
pub(super) use field::{Field, Form, declare_fields};
pub(super) use fields::Fields;
pub(super) use headers::{
    AdoptedToken, FencingTokenHeader, IdempotencyKeyHeader, LOCK_TOKEN, LastEventId, LockToken,
    OnlyToken, PreferredWait, Provenance, TOKEN, TokenOrBody, single,
};
pub(super) use target::{
    ApiPath, ApiQuery, NAME, NAMES_PATTERN, NoQuery, PathParameter, Query, prefix,
};
