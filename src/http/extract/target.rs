//! Extractors of the target of a request: the variable part of the path, and the query.

use std::{borrow::Cow, sync::Arc};

use axum::extract::FromRequestParts;
use http::request::Parts;
use percent_encoding::{percent_decode, percent_decode_str};
use utoipa::{
    IntoParams,
    openapi::path::{Parameter, ParameterIn},
};

use crate::{
    config::LimitsConfig,
    http::{edge::RequestContext, problem::Problem, state::AppState},
    lock::{LockName, NamePrefix},
};

use super::{
    field::{Form, declare_fields},
    fields::{Fields, JsonValue, Object, Place},
};

/// A valid path parameter, percent-decoded once.
pub(in crate::http) struct ApiPath<T>(pub(in crate::http) T);

/// A type that can be read from a path parameter.
pub(in crate::http) trait PathParameter: Sized {
    /// The name of the parameter in the route.
    const NAME: &str;

    /// Reads the value from the decoded text.
    fn read(text: &str) -> Result<Self, Problem>;
}

/// Pattern of a segment of a lock name.
macro_rules! segment {
    () => {
        r"(\.*[A-Za-z0-9_:@~-][A-Za-z0-9._:@~-]*|\.{3,})"
    };
}

/// Pattern of a lock name. Patterns of JSON Schema cannot exclude the last segments that are operations in a way that
/// every generator of clients understands.
macro_rules! name {
    () => {
        concat!(segment!(), "(/", segment!(), ")*")
    };
}

/// Form of a lock name: its length, and the characters that it may have.
pub(in crate::http) const NAME: Form = Form::text(1, LockName::MAX_LEN, concat!("^", name!(), "$"));

/// Pattern of several lock names with commas between.
pub(in crate::http) const NAMES_PATTERN: &str = concat!("^", name!(), "(,", name!(), "){1,15}$");

declare_fields! {
    /// The name of the lock: ASCII letters, digits and `. _ : @ ~ - /`. Use `:` or `/` for hierarchy. In the path, `/`
    /// is written `%2F`. No part between slashes is empty, `.` or `..`. The last part after a slash is not the word of
    /// an operation: `break`, `check`, `granted-order`, `history`, `hold`, `release` or `renew`.
    Path ApiPath<LockName>: LockName::NAME => NAME.required().example("deploy:prod");
}

// === impl ApiPath ===

impl<T: PathParameter, S: Sync> FromRequestParts<S> for ApiPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let text = RequestContext::from_parts(parts).parameter(parts.uri.path());
        let text = text.expect("a handler is routed at a path with its parameter");
        T::read(&decoded::<T>(text)?).map(Self)
    }
}

/// The lock that the request's path names, if the route has a lock name in its path.
pub(super) fn lock(parts: &Parts) -> Result<Option<LockName>, Problem> {
    let text = RequestContext::from_parts(parts).lock(parts.uri.path());
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

/// The parameters of a request's query, read into a valid value.
pub(in crate::http) struct ApiQuery<T>(pub(in crate::http) T);

/// A type that can be read from the parameters of a query.
pub(in crate::http) trait Query: Sized {
    /// Takes all parameters. A wrong parameter is reported through `fields`, and the returned value is then
    /// never used.
    fn read(fields: &mut Fields<'_>) -> Self;
}

declare_fields! {
    /// The prefix of the lock names. Empty, or left out: all names.
    const PREFIX: "prefix" =>
        Form::text(0, LockName::MAX_LEN, concat!("^(", segment!(), "/)*[A-Za-z0-9._:@~-]*$"))
            .example("deploy:");
}

// === impl ApiQuery ===

impl<T: Query> FromRequestParts<Arc<AppState>> for ApiQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<AppState>,
    ) -> Result<Self, Problem> {
        let mut fields = parameters(parts, &gateway.config.limits);
        let query = T::read(&mut fields);
        fields.finish()?;
        Ok(Self(query))
    }
}

/// The parameters are the fields that the reader of the query takes.
impl<T: Query> IntoParams for ApiQuery<T> {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let limits = LimitsConfig::default();
        let mut fields = Fields::none(&limits);
        T::read(&mut fields);
        let known = fields.known();
        known
            .map(|field| field.parameter(ParameterIn::Query))
            .collect()
    }
}

/// The parameters of a query. Names and values are decoded once; as in a form, `+` is a space.
fn parameters<'a>(parts: &'a Parts, limits: &'a LimitsConfig) -> Fields<'a> {
    let query = parts.uri.query().unwrap_or_default();
    let given = query.split('&').filter(|parameter| !parameter.is_empty());
    let (mut left, mut undecodable) = (Object::new(), Vec::new());
    for parameter in given {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        // A parameter name that cannot be decoded is the name of no parameter, so it is refused as unknown.
        let name = decode_form(name).unwrap_or(Cow::Borrowed(name));
        match decode_form(value) {
            Some(text) => left.push((name, JsonValue::Text(text))),
            None => undecodable.push(name.into_owned()),
        }
    }
    let mut fields = Fields::new(Place::Query(&parts.method), left, limits);
    for name in undecodable {
        fields.refuse_at(name, "is not UTF-8 after percent-decoding");
    }
    fields
}

/// Takes the prefix of the lock names. If it is left out, the empty prefix, which every name has.
pub(in crate::http) fn prefix(fields: &mut Fields<'_>) -> NamePrefix {
    let prefix = fields.parsed(&PREFIX, NamePrefix::new);
    prefix.unwrap_or_default()
}

fn decode_form(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode(spaced.as_bytes()).decode_utf8().ok()?;
    Some(Cow::Owned(decoded.into_owned()))
}

/// Extractor that refuses every query. If a parameter such as `?ttl_ms=1000` were ignored, its caller would
/// find out in an outage.
pub(in crate::http) type NoQuery = ApiQuery<()>;

impl<A: Query, B: Query> Query for (A, B) {
    fn read(fields: &mut Fields<'_>) -> Self {
        (A::read(fields), B::read(fields))
    }
}

impl Query for () {
    fn read(_: &mut Fields<'_>) {}
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    declare_fields! {
        /// A text.
        const A: "a" => Form::TEXT;
        /// A text.
        const B: "b" => Form::TEXT;
        /// A text.
        const C: "c" => Form::TEXT;
        /// A number.
        const N: "n" => Form::whole(|_| (0, u64::MAX));
    }

    /// Reads a query. Returns the value and the problem, if any.
    fn read<T>(query: &str, read: impl FnOnce(&mut Fields<'_>) -> T) -> (T, Option<Problem>) {
        let request = Request::get(format!("/?{query}")).body(()).unwrap();
        let (parts, ()) = request.into_parts();
        let limits = LimitsConfig::default();
        let mut fields = parameters(&parts, &limits);
        let value = read(&mut fields);
        (value, fields.finish().err())
    }

    #[test]
    fn a_text_is_decoded_once() {
        let (texts, problem) = read("a=x%2Fy+z%252F&b=&c&d=%ff&&", |fields| {
            [&A, &B, &C].map(|field| fields.text(field).unwrap().into_owned())
        });
        assert_eq!(texts, ["x/y z%2F", "", ""]);
        let refused = format!("{:?}", problem.unwrap());
        assert!(refused.contains("query.d"), "{refused}");
    }

    #[test]
    fn a_number_is_digits() {
        for (text, number) in [("7", Some(7)), ("007", Some(7))] {
            let (read, problem) = read(&format!("n={text}"), |fields| fields.whole(&N));
            assert_eq!((read, problem.is_none()), (number, true), "{text:?}");
        }
        for text in ["", "+7", "-1", "1.0", "1e3", "0x1", "18446744073709551616"] {
            let (read, problem) = read(&format!("n={text}"), |fields| fields.whole(&N));
            let refused = format!("{:?}", problem.unwrap());
            assert_eq!(read, None);
            assert!(refused.contains("is not a whole number"), "{refused}");
        }
    }
}
