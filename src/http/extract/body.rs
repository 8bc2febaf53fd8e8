//! A JSON body.

use std::{borrow::Cow, pin::pin, sync::Arc};

use axum::extract::{FromRequest, Request};
use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT},
};

use crate::{
    config::{LimitsConfig, Millis},
    http::{
        edge::RequestContext,
        problem::{Problem, ProblemCode},
        state::AppState,
    },
};

use super::{Fields, receive::receive};

/// A body that is valid. An empty one has all its defaults, whatever its content type.
pub(in crate::http) struct ApiJson<T>(pub(in crate::http) T);

/// What can be read from the fields of a body.
pub(in crate::http) trait RequestBody: Sized {
    /// Takes all fields. A field that is wrong is reported through `fields`, and what is returned
    /// then is never used.
    fn read(fields: &mut Fields<'_>, limits: &LimitsConfig) -> Self;
}

// === impl ApiJson ===

impl<T: RequestBody> FromRequest<Arc<AppState>> for ApiJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, gateway: &Arc<AppState>) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let waits = parts.headers.contains_key(EXPECT);
        if waits {
            // Before the body is asked for: a client that waits for `100 Continue` is spared it.
            must_be_json(&parts.headers)?;
        }
        let context = RequestContext::of(&parts);
        // A slow sender takes no room from those whose requests have come.
        let receiving = pin!(receive(body, waits, &gateway.config.http));
        let bytes = context.wait_for(receiving).await??;
        if !bytes.is_empty() {
            must_be_json(&parts.headers)?;
        }
        let mut fields = Fields::parse(&bytes)?;
        let mut limits = Cow::Borrowed(&gateway.config.limits);
        if let Some(cap) = context.ttl_cap_ms() {
            let default = &mut limits.to_mut().default_ttl_ms;
            *default = (*default).min(Millis(cap));
        }
        let body = T::read(&mut fields, &limits);
        fields.finish()?;
        Ok(Self(body))
    }
}

fn must_be_json(headers: &HeaderMap) -> Result<(), Problem> {
    let refuse = |detail| Err(Problem::new(ProblemCode::UnsupportedMediaType, detail));
    if headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return refuse("The body has a Content-Encoding. Send it as it is.");
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    match (types.next(), types.next()) {
        (Some(media), None) if is_json(media.as_bytes()) => Ok(()),
        (None, _) => {
            refuse("The body has no Content-Type. Send application/json; with curl, use --json.")
        }
        _ => refuse(
            "The Content-Type of the body is not application/json. With curl, use --json instead \
             of -d.",
        ),
    }
}

/// `application/json`, with no other charset than the one that JSON has.
fn is_json(media: &[u8]) -> bool {
    let mut parts = media.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    let json = parts
        .next()
        .is_some_and(|media| media.eq_ignore_ascii_case(b"application/json"));
    json && parts.all(|parameter| {
        let lower = parameter.to_ascii_lowercase();
        lower
            .strip_prefix(b"charset=")
            .is_none_or(|charset| matches!(charset, b"utf-8" | b"\"utf-8\"" | b"utf8"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_json_in_utf_8_only() {
        for media in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json;charset=\"UTF-8\"",
            "application/json; profile=x",
        ] {
            assert!(is_json(media.as_bytes()), "{media}");
        }
        for media in [
            "",
            "text/json",
            "application/jsonl",
            "application/x-www-form-urlencoded",
            "application/problem+json",
            "application/json; charset=latin1",
        ] {
            assert!(!is_json(media.as_bytes()), "{media}");
        }
    }
}
