//! JSON bodies of requests: received within their limits, and read into valid types.

use std::{borrow::Cow, pin::pin, sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody},
    extract::{FromRequest, Request},
};
use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT},
};
use http_body_util::BodyExt;
use tokio::time::{sleep, timeout};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, schema::AdditionalProperties},
};

use crate::{
    auth::Access,
    config::{LimitsConfig, Millis},
    http::{
        edge::RequestContext,
        problem::{Problem, ProblemCode},
        state::AppState,
    },
};

use super::{field::Field, fields::Fields};

/// A valid JSON body. An empty body has all its defaults, whatever its content type.
pub(in crate::http) struct ApiJson<T>(pub(in crate::http) T);

/// A type that can be read from the fields of a body.
pub(in crate::http) trait RequestBody: Sized {
    /// The name of the body's schema, its text for callers and an example.
    const ABOUT: Field;

    /// Takes every field of the body, even if an earlier field is wrong: the fields taken are the properties
    /// of the schema. A wrong field is reported through `fields`, and the returned value is then never used.
    fn read(fields: &mut Fields<'_>) -> Self;
}

// === impl ApiJson ===

impl<T: RequestBody> FromRequest<Arc<AppState>> for ApiJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, gateway: &Arc<AppState>) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let waits = parts.headers.contains_key(EXPECT) && !body.is_end_stream();
        if waits {
            // Checked before the gateway sends `100 Continue`, so that the client need not send a body that
            // is refused.
            must_be_json(&parts.headers)?;
        }
        let context = RequestContext::from_parts(&parts);
        // The request holds no permit while its body is received: otherwise slow senders would keep out
        // requests that have arrived.
        let receiving = pin!(receive(body, waits, gateway));
        let bytes = context.wait_for(receiving).await??;
        if !bytes.is_empty() {
            must_be_json(&parts.headers)?;
        }
        let mut limits = Cow::Borrowed(&gateway.config.limits);
        // The default TTL must not exceed the longest TTL of the API key either.
        if let Some(cap) = context.caller().and_then(Access::max_ttl) {
            let default = &mut limits.to_mut().default_ttl_ms;
            *default = (*default).min(Millis(cap.as_millis()));
        }
        let mut fields = Fields::parse(&bytes, &limits)?;
        let body = T::read(&mut fields);
        fields.finish()?;
        Ok(Self(body))
    }
}

impl<T: RequestBody> ToSchema for ApiJson<T> {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed(T::ABOUT.name)
    }
}

impl<T: RequestBody> PartialSchema for ApiJson<T> {
    fn schema() -> RefOr<Schema> {
        body_schema::<T>(&LimitsConfig::default())
    }
}

/// The schema of a body at a gateway with these limits: its properties are the fields that the reader of the
/// body takes.
pub(in crate::http) fn body_schema<T: RequestBody>(limits: &LimitsConfig) -> RefOr<Schema> {
    let mut fields = Fields::none(limits);
    T::read(&mut fields);
    let mut object = ObjectBuilder::new()
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)));
    for field in fields.known() {
        object = object.property(field.name, field.property(limits));
        if field.form.is_required {
            object = object.required(field.name);
        }
    }
    let mut object = object.build();
    T::ABOUT.describe(&mut object, limits);
    RefOr::T(object.into())
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
            "The Content-Type of the body is not application/json. With curl, type --json '{..}', or before \
             7.82: -H 'Content-Type: application/json' -d '{..}'.",
        ),
    }
}

/// Whether the media type is `application/json`, without a charset or with UTF-8, the charset of JSON.
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

// === Receive ===
//
// Reads a body within its limits of size and time.

/// Bytes of a too large body that the gateway still reads, and for how long, so that the sender receives the
/// reason for the refusal: closing a connection with unread bytes resets it, and the answer is lost.
const DISCARDED: (usize, Duration) = (1 << 20, Duration::from_secs(1));

/// Time left for a body once the gateway drains, or from the start of the body if that is later. Without this
/// bound, a slow sender or a client that has gone would keep the gateway running.
const DRAINING: Duration = Duration::from_secs(3);

/// Reads the whole body. `waits` says that the client waits for `100 Continue` before it sends anything.
async fn receive(mut body: Body, waits: bool, gateway: &AppState) -> Result<Bytes, Problem> {
    let http = &gateway.config.http;
    let most = http.max_body_bytes;
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    if body.size_hint().lower() > u64::try_from(most).unwrap_or(u64::MAX) {
        if !waits {
            discard(&mut body).await;
        }
        return Err(too_large(most));
    }
    let late = |detail| Err(Problem::new(ProblemCode::RequestTimeout, detail));
    let stopping = async {
        // The drain signal is polled only when the body is late: otherwise all requests would contend for its
        // lock.
        gateway.engine.drained().await;
        sleep(DRAINING).await;
    };
    tokio::select! {
        biased;
        received = collect(&mut body, most) => received,
        () = sleep(http.body_timeout_ms.duration()) => late(format!(
            "The body had not arrived after {} ms.",
            http.body_timeout_ms.0
        )),
        () = stopping => late("The gateway stops, and the body had not arrived.".to_owned()),
    }
}

async fn collect(body: &mut Body, most: usize) -> Result<Bytes, Problem> {
    // Nearly every body arrives in one frame, which then is not copied.
    let mut whole = Bytes::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Problem::invalid_field("body", "ended before it was complete")
                .caused_by(error.to_string())
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if whole.len() + data.len() > most {
            discard(body).await;
            return Err(too_large(most));
        }
        if whole.is_empty() {
            whole = data;
        } else {
            let mut joined = BytesMut::from(whole);
            joined.extend_from_slice(&data);
            whole = joined.freeze();
        }
    }
    Ok(whole)
}

async fn discard(body: &mut Body) {
    let (most, time) = DISCARDED;
    let reading = async {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await
            && read < most
        {
            read += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    // The body is read only to be discarded, so it does not matter whether the whole body came in time.
    let _ = timeout(time, reading).await;
}

fn too_large(most: usize) -> Problem {
    let detail = format!("The body is longer than {most} bytes.");
    Problem::new(ProblemCode::TooLarge, detail)
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
