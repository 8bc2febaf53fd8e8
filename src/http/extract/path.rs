//! The variable part of a path.

use std::borrow::Cow;

use axum::extract::FromRequestParts;
use http::request::Parts;
use percent_encoding::percent_decode_str;

use crate::{
    http::{edge::RequestContext, problem::Problem},
    lock::LockName,
};

use super::field::{Form, declare_fields};

/// A path parameter that is valid, percent-decoded once.
pub(in crate::http) struct ApiPath<T>(pub(in crate::http) T);

/// What can be read from a path.
pub(in crate::http) trait PathParameter: Sized {
    /// The name of the parameter in the route.
    const NAME: &str;

    /// Reads the decoded text.
    fn read(text: &str) -> Result<Self, Problem>;
}

/// The text of a name.
pub(in crate::http) const NAME: Form = Form::text(
    1,
    LockName::MAX_LEN,
    r"^(\.*[A-Za-z0-9_:@~-][A-Za-z0-9._:@~-]*|\.{3,})$",
);

declare_fields! {
    /// The lock: ASCII letters, digits and `. _ : @ ~ -`. Use `:` for hierarchy.
    Path ApiPath<LockName>: LockName::NAME => NAME.required().example("deploy:prod");
}

// === impl ApiPath ===

impl<T: PathParameter, S: Sync> FromRequestParts<S> for ApiPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let text = RequestContext::of(parts).parameter(parts.uri.path());
        let text = text.expect("a handler is routed at a path with its parameter");
        T::read(&decoded::<T>(text)?).map(Self)
    }
}

/// The lock that the path names, if it names one.
pub(super) fn lock(parts: &Parts) -> Result<Option<LockName>, Problem> {
    let text = RequestContext::of(parts).lock(parts.uri.path());
    let name = |text| LockName::read(&decoded::<LockName>(text)?);
    text.map(name).transpose()
}

fn decoded<T: PathParameter>(text: &str) -> Result<Cow<'_, str>, Problem> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map_err(|_| Problem::invalid_field(T::NAME, "is not UTF-8 after percent-decoding"))
}

// === impl LockName ===

impl PathParameter for LockName {
    const NAME: &str = "name";

    fn read(text: &str) -> Result<Self, Problem> {
        Self::new(text).map_err(|error| Problem::invalid_field(Self::NAME, error.to_string()))
    }
}
