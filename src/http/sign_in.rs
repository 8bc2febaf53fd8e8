//! `GET /sign-in` and `GET /sign-in/callback`: a person signs in to the page at an issuer, by a browser that goes there
//! and comes back.
//!
//! The browser keeps each attempt in a cookie of its own, which `SameSite=Lax` lets come back with it. The session cookie
//! is `SameSite=Strict`, so the way back ends at a page that goes on by itself, and not at a redirect.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{AppendHeaders, IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderValue, StatusCode, Uri,
    header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, SET_COOKIE},
};
use tracing::info;
use url::{Position, Url, form_urlencoded};

use crate::auth::{
    ATTEMPT_LIVES, ExchangeError, SignIn, SignInAnswer, SignInError, may_hold_secret,
};

use super::{
    edge::RequestContext,
    extract::{CookieJar, Provenance, cookie_value, cookies},
    state::{AppState, BasePath},
};

/// How the name of an attempt's cookie begins. The state follows, of which a browser has no second one.
const ATTEMPT: &str = "latchgate-sign-in-";
/// The same where the browser comes over HTTPS: no neighbouring host and no attacker on the way can set such a cookie.
const ATTEMPT_OF_HOST: &str = "__Host-latchgate-sign-in-";
/// How many attempts a browser keeps. Without a limit, links that somebody else has made would fill its headers.
const MAX_ATTEMPTS: usize = 5;
/// The longest path to which a browser returns, in bytes: all attempts together must fit into the headers of a request.
const MAX_RETURN: usize = 256;

/// Goes to the page of the issuer where people sign in, to come back to [`finish`] and afterwards to the page `return` of
/// the dashboard.
pub(in crate::http) async fn begin(
    State(gateway): State<Arc<AppState>>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    // A link on another site must not sign in again whoever has signed out here.
    if headers
        .get("sec-fetch-site")
        .is_some_and(|site| site == "cross-site")
    {
        return refusal(&gateway, &SignInError::NotAskedHere);
    }
    let asked = parameter(&uri, "return").unwrap_or_default();
    let begun = gateway
        .gate
        .begin_sign_in(return_path(&asked, &gateway.base_path));
    let (Some(sign_in), begun) = (gateway.gate.sign_in(), begun.await) else {
        return refusal(&gateway, &SignInError::NotOffered);
    };
    let begun = match begun {
        Ok(begun) => begun,
        Err(error) => return refusal(&gateway, &error),
    };
    let prefix = prefix(&sign_in);
    let kept: Vec<_> = cookies(&headers)
        .filter(|(name, _)| name.starts_with(prefix))
        .collect();
    // Browsers send older cookies first.
    let surplus = (kept.len() + 1).saturating_sub(MAX_ATTEMPTS);
    let forgotten = kept
        .iter()
        .take(surplus)
        .map(|(name, _)| attempt(name, "", 0));
    let begun_cookie = attempt(
        &format!("{prefix}{}", begun.state),
        &begun.sealed,
        ATTEMPT_LIVES.as_secs(),
    );
    let cookies: Vec<_> = forgotten
        .chain([begun_cookie])
        .map(|cookie| (SET_COOKIE, cookie))
        .collect();
    let headers = [
        (LOCATION, begun.location),
        (CACHE_CONTROL, "no-store".to_owned()),
    ];
    (StatusCode::SEE_OTHER, headers, AppendHeaders(cookies)).into_response()
}

/// Comes back from the issuer with a code, for which the person gets a session.
pub(in crate::http) async fn finish(
    State(gateway): State<Arc<AppState>>,
    (provenance, context): (Provenance, RequestContext),
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let Some(sign_in) = gateway.gate.sign_in() else {
        return refusal(&gateway, &SignInError::NotOffered);
    };
    let answer = SignInAnswer {
        state: parameter(&uri, "state").unwrap_or_default(),
        code: parameter(&uri, "code"),
        error: parameter(&uri, "error"),
        issuer: parameter(&uri, "iss"),
    };
    let name = format!("{}{}", prefix(&sign_in), answer.state);
    let sealed = cookies(&headers).find(|(found, _)| *found == name);
    let Some((name, sealed)) = sealed else {
        return refusal(&gateway, &SignInError::NoAttempt(sign_in.url.clone()));
    };
    // Whatever comes of the attempt, it is over.
    let forgotten = (SET_COOKIE, attempt(name, "", 0));
    let finished = gateway
        .gate
        .finish_sign_in(sealed, &answer, provenance.remote);
    let (access, session, return_to) = match finished.await {
        Ok(finished) => finished,
        // The person can try the same page again.
        Err(error @ SignInError::Token(ExchangeError::Busy)) => return refusal(&gateway, &error),
        Err(error) => {
            return (AppendHeaders([forgotten]), refusal(&gateway, &error)).into_response();
        }
    };
    context.set_caller(&access);
    let requester = provenance.requester(access.name());
    gateway.audit.signed_in(&requester, access.proven());
    let left = access
        .ends_at()
        .and_then(|end| end.duration_since(gateway.clock.wall()).ok());
    let jar = CookieJar::for_issuer(&gateway, sign_in.is_secure());
    let kept = jar.keep(&session, left.unwrap_or_default());
    let cookies: Vec<_> = kept
        .into_iter()
        .map(|cookie| (SET_COOKIE, cookie))
        .chain([forgotten])
        .collect();
    (AppendHeaders(cookies), onward(&return_to)).into_response()
}

/// The only value of a parameter of the query.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let parameters = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let mut values = parameters
        .filter(|(found, _)| found == name)
        .map(|(_, value)| value);
    let value = values.next()?;
    values.next().is_none().then(|| value.into_owned())
}

/// The path of the dashboard that is asked for, or that of its first page. Nobody else's address is ever a part of it.
fn return_path(asked: &str, base_path: &BasePath) -> String {
    let dashboard = format!("{base_path}/dashboard");
    // As a browser reads it, dots and backslashes included.
    let read = Url::parse("http://gateway.invalid").and_then(|base| base.join(asked));
    let is_below = |url: &Url| {
        let rest = url.path().strip_prefix(&*dashboard);
        let is_ours = url[..Position::BeforePath] == *"http://gateway.invalid";
        is_ours && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let path = read
        .ok()
        .filter(is_below)
        .map(|url| url[Position::BeforePath..Position::AfterQuery].to_owned());
    path.filter(|path| path.len() <= MAX_RETURN)
        .unwrap_or(dashboard)
}

fn prefix(sign_in: &SignIn) -> &'static str {
    if sign_in.is_secure() {
        ATTEMPT_OF_HOST
    } else {
        ATTEMPT
    }
}

fn attempt(name: &str, value: &str, max_age: u64) -> HeaderValue {
    let secure = if name.starts_with(ATTEMPT_OF_HOST) {
        "; Secure"
    } else {
        ""
    };
    cookie_value(&format!(
        "{name}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Lax{secure}"
    ))
}

// === Pages ===

/// The page that goes on to the dashboard.
fn onward(path: &str) -> Response {
    let path = escaped(path);
    let refresh = format!("<meta http-equiv=\"refresh\" content=\"0;url={path}\">");
    let body = format!("<h1>Signed in</h1><p><a href=\"{path}\">Go on</a></p>");
    page(StatusCode::OK, "Signed in", &refresh, &body)
}

/// The page that says why nobody was signed in.
fn refusal(gateway: &AppState, error: &SignInError) -> Response {
    let status = match error {
        SignInError::NotOffered => StatusCode::NOT_FOUND,
        SignInError::NoToken(_)
        | SignInError::Token(ExchangeError::Busy | ExchangeError::IssuerAway { .. }) => {
            StatusCode::BAD_GATEWAY
        }
        SignInError::NoAttempt(_)
        | SignInError::NotAskedHere
        | SignInError::NotSignedIn(_)
        | SignInError::TooManyGroups
        | SignInError::Token(ExchangeError::Token(_) | ExchangeError::Refused(_)) => {
            StatusCode::FORBIDDEN
        }
    };
    let cause = match error {
        SignInError::NoToken(reason) => reason.clone(),
        error => error.to_string(),
    };
    let cause = if may_hold_secret(&cause) {
        "***"
    } else {
        &*cause
    };
    // Quoted: anybody may choose a part of the text.
    info!(?cause, "nobody was signed in");
    let why = match error {
        // What exactly is wrong is for the log alone.
        SignInError::Token(ExchangeError::Token(refusal)) => {
            format!("Your ID token is refused {}.", refusal.class)
        }
        SignInError::Token(error) => format!("Try again in a minute: {error}."),
        error => error.to_string(),
    };
    let (why, base) = (escaped(&why), &gateway.base_path);
    let body = format!(
        "<h1>You are not signed in</h1><p>{why}</p><p><a href=\"{base}/dashboard\">Back to the dashboard</a></p>"
    );
    page(status, "Not signed in", "", &body)
}

fn page(status: StatusCode, title: &str, head: &str, body: &str) -> Response {
    let html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\"><title>{title}</title>{head}</head>\
         <body>{body}</body></html>"
    );
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
    ];
    (status, headers, html).into_response()
}

/// A text of somebody else as HTML shows it.
fn escaped(text: &str) -> String {
    let harmless = |c: char| match c {
        '&' | '<' | '>' | '"' | '\'' => format!("&#{};", u32::from(c)),
        c if c.is_control() => " ".to_owned(),
        c => c.to_string(),
    };
    text.chars().take(MAX_RETURN).map(harmless).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_returns_to_a_page_of_the_dashboard_and_to_nowhere_else() {
        let path = |asked: &str| return_path(asked, &BasePath::new("/p"));
        for asked in [
            "/p/dashboard",
            "/p/dashboard/",
            "/p/dashboard/locks/a%2Fb?x=1&y=%22",
            "/p/dashboard//evil.example",
        ] {
            assert_eq!(path(asked), asked);
        }
        assert_eq!(path("/p/dashboard/a/../locks#x"), "/p/dashboard/locks");
        for asked in [
            "",
            "/",
            "/dashboard",
            "/p/dashboards",
            "//evil.example/p/dashboard",
            "https://evil.example/p/dashboard",
            "http:/evil.example/p/dashboard",
            "\\\\evil.example\\p\\dashboard",
            "/\\evil.example/p/dashboard",
            "/\t/evil.example/p/dashboard",
            "javascript:alert(1)//p/dashboard",
            "data:text/html,/p/dashboard",
            "/p/dashboard/../locks",
            "/p/dashboard/%2e%2e/locks",
            "/p/dashboard/..\\..\\x",
            "@evil.example/p/dashboard",
            &format!("/p/dashboard/{}", "x".repeat(MAX_RETURN)),
        ] {
            assert_eq!(path(asked), "/p/dashboard", "{asked}");
        }
    }

    #[test]
    fn a_text_of_somebody_else_is_no_html() {
        assert_eq!(
            escaped("<a href=\"x\">'&\n"),
            "&#60;a href=&#34;x&#34;&#62;&#39;&#38; "
        );
    }

    #[test]
    fn a_parameter_that_is_given_twice_counts_as_missing() {
        let uri = "/?a=1&b=2&a=3&c=%26x+y".parse().unwrap();
        assert_eq!(parameter(&uri, "a"), None);
        assert_eq!(parameter(&uri, "b").as_deref(), Some("2"));
        assert_eq!(parameter(&uri, "c").as_deref(), Some("&x y"));
        assert_eq!(parameter(&uri, "d"), None);
    }
}
