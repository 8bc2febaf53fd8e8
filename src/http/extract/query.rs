//! The parameters behind the question mark of a target.

use std::{borrow::Cow, fmt::Display};

use axum::extract::FromRequestParts;
use http::{Method, request::Parts};
use percent_encoding::percent_decode;

use crate::{
    http::problem::{FieldError, Problem},
    lock::NamePrefix,
};

/// A query that is valid.
pub(in crate::http) struct ApiQuery<T>(pub(in crate::http) T);

/// What can be read from the parameters of a query.
pub(in crate::http) trait Query: Sized {
    /// Takes all parameters. One that is wrong is reported through `parameters`, and what is
    /// returned then is never used.
    fn read(parameters: &mut Parameters<'_>) -> Self;
}

/// The parameters that have not been taken yet, and what was wrong with those that have. A parameter that no
/// reader takes is unknown, and is refused; so is one that is given twice.
pub(in crate::http) struct Parameters<'a> {
    left: Vec<(Cow<'a, str>, &'a str)>,
    known: Vec<&'static str>,
    errors: Vec<FieldError>,
}

/// How many errors an answer names: a person reads no more.
const NAMED: usize = 16;

// === impl ApiQuery ===

impl<T: Query, S: Sync> FromRequestParts<S> for ApiQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut parameters = Parameters::of(parts.uri.query().unwrap_or_default());
        let query = T::read(&mut parameters);
        parameters.finish(&parts.method)?;
        Ok(Self(query))
    }
}

// === impl Parameters ===

impl<'a> Parameters<'a> {
    pub(super) fn of(query: &'a str) -> Self {
        let given = query.split('&').filter(|parameter| !parameter.is_empty());
        let left = given.map(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            // A name that is not text is unknown in any case.
            (decoded(name).unwrap_or(Cow::Borrowed(name)), value)
        });
        Self {
            left: left.collect(),
            known: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// A text, decoded once. As in a form, `+` is a space.
    pub(in crate::http) fn text(&mut self, name: &'static str) -> Option<Cow<'a, str>> {
        self.known.push(name);
        let at = self.left.iter().position(|(key, _)| key == name)?;
        let (_, value) = self.left.remove(at);
        let text = decoded(value);
        if text.is_none() {
            self.refuse(name, "is not UTF-8 after percent-decoding");
        }
        text
    }

    /// How names begin; every name does if it is left out.
    pub(in crate::http) fn prefix(&mut self) -> Option<NamePrefix> {
        let text = self.text("prefix").unwrap_or_default();
        self.check("prefix", NamePrefix::new(&text))
    }

    /// A whole number.
    pub(in crate::http) fn whole(&mut self, name: &'static str) -> Option<u64> {
        let text = self.text(name)?;
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = is_number.then(|| text.parse().ok()).flatten();
        if number.is_none() {
            self.refuse(name, "is not a whole number");
        }
        number
    }

    /// Keeps a value that is right, or why it is not.
    pub(in crate::http) fn check<T>(
        &mut self,
        name: &'static str,
        value: Result<T, impl Display>,
    ) -> Option<T> {
        value
            .map_err(|error| self.refuse(name, error.to_string()))
            .ok()
    }

    /// Says that a parameter is wrong.
    pub(in crate::http) fn refuse(&mut self, name: &str, reason: impl Into<String>) {
        let field = format!("query.{name}");
        self.errors.push(FieldError::new(field, reason));
    }

    /// All errors, including the parameters that no reader took.
    pub(super) fn finish(mut self, method: &Method) -> Result<(), Problem> {
        if self.left.is_empty() && self.errors.is_empty() {
            return Ok(());
        }
        let taken = match self.known.as_slice() {
            // What only looks has no body.
            [] if method.is_safe() => "this call takes no query parameters".to_owned(),
            [] => "this call takes no query parameters, only fields of the JSON body".to_owned(),
            [one] => format!("the only parameter of this call is {one}"),
            known => format!("the parameters of this call are {}", known.join(", ")),
        };
        for (name, _) in std::mem::take(&mut self.left) {
            // The name only: the value may be a token that somebody put in the wrong place.
            let reason = if self.known.contains(&name.as_ref()) {
                "is given more than once".to_owned()
            } else {
                format!("is not known; {taken}")
            };
            self.refuse(&name, reason);
        }
        self.errors.truncate(NAMED);
        Err(Problem::invalid(self.errors))
    }
}

fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode(spaced.as_bytes()).decode_utf8().ok()?;
    Some(Cow::Owned(decoded.into_owned()))
}

// === No query ===
//
// Routes that take no query.

/// The request has no query. A parameter that is ignored (`?ttl_ms=1000`) would be an outage later.
pub(in crate::http) struct NoQuery;

// === impl NoQuery ===

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let parameters = Parameters::of(parts.uri.query().unwrap_or_default());
        parameters.finish(&parts.method)?;
        Ok(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_decoded_once() {
        let mut parameters = Parameters::of("a=x%2Fy+z%252F&b=&c&d=%ff&&");
        assert_eq!(parameters.text("a").as_deref(), Some("x/y z%2F"));
        assert_eq!(parameters.text("b").as_deref(), Some(""));
        assert_eq!(parameters.text("c").as_deref(), Some(""));
        assert_eq!(parameters.text("d"), None);
        assert_eq!(parameters.text("e"), None);
        assert_eq!(parameters.errors.len(), 1);
        assert_eq!(parameters.errors[0].field, "query.d");
    }

    #[test]
    fn a_number_is_digits() {
        for (text, number) in [("7", Some(7)), ("007", Some(7)), ("", None), ("+7", None)] {
            let query = format!("n={text}");
            assert_eq!(Parameters::of(&query).whole("n"), number, "{text:?}");
        }
        for text in ["-1", "1.0", "1e3", "0x1", "18446744073709551616"] {
            let query = format!("n={text}");
            let mut parameters = Parameters::of(&query);
            assert_eq!(parameters.whole("n"), None);
            assert_eq!(parameters.errors[0].reason, "is not a whole number");
        }
    }
}
