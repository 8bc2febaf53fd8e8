//! The query of `/events`.

use std::borrow::Cow;

use axum::extract::FromRequestParts;
use http::request::Parts;
use percent_encoding::percent_decode_str;
use utoipa::IntoParams;

use crate::{
    engine::events::Prefix,
    http::problem::{FieldError, Problem},
};

/// Which locks are listened to.
pub(in crate::http) struct EventsQuery {
    pub(super) prefix: Prefix,
}

/// The same for the OpenAPI document.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes what `EventsQuery` reads")]
pub(super) struct EventsParams {
    /// Only locks whose names begin so. All if it is left out.
    #[param(
        nullable = false,
        max_length = 200,
        example = "deploy:",
        pattern = "^[A-Za-z0-9._:@~-]*$"
    )]
    prefix: Option<String>,
}

/// How many errors an answer names.
const NAMED: usize = 16;

// === impl EventsQuery ===

impl EventsQuery {
    fn parse(query: &str) -> Result<Self, Problem> {
        let mut prefix = None;
        let mut errors = Vec::new();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            if errors.len() == NAMED {
                break;
            }
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let read = match (name, &prefix) {
                ("prefix", None) => read(value).map(|read| prefix = Some(read)),
                ("prefix", Some(_)) => Err("is given more than once".to_owned()),
                _ => Err("is not known; the only parameter of this call is prefix".to_owned()),
            };
            if let Err(reason) = read {
                errors.push(FieldError::new(format!("query.{name}"), reason));
            }
        }
        if errors.is_empty() {
            let prefix = prefix.unwrap_or_default();
            Ok(Self { prefix })
        } else {
            Err(Problem::invalid(errors))
        }
    }
}

fn read(value: &str) -> Result<Prefix, String> {
    let decoded = percent_decode_str(value).decode_utf8();
    let text: Cow<'_, str> = decoded.map_err(|_| "is not UTF-8 after percent-decoding")?;
    Prefix::new(&text).map_err(|error| error.to_string())
}

impl<S: Sync> FromRequestParts<S> for EventsQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::parse(parts.uri.query().unwrap_or_default())
    }
}
