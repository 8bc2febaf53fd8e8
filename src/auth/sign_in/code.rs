//! The exchange of a code for an ID token, at the token endpoint of the issuer.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use serde::Deserialize;
use url::form_urlencoded::{Serializer, byte_serialize};

use crate::auth::oidc::{Discovery, IssuerSettings, shown};

use super::{SignIn, attempt::Attempt};

/// An answer of a token endpoint. What else it has is not read: no access token is needed.
#[derive(Deserialize)]
struct TokenAnswer {
    id_token: Option<String>,
    error: Option<String>,
}

const BASIC: &str = "client_secret_basic";
const POST: &str = "client_secret_post";

/// Exchanges a code for an ID token. A failure is a text for the log.
pub(super) async fn id_token(
    sign_in: &SignIn,
    issuer: &IssuerSettings,
    discovery: &Discovery,
    attempt: &Attempt,
    code: &str,
) -> Result<String, String> {
    let endpoint = discovery.token_endpoint.as_deref().unwrap_or_default();
    let endpoint = issuer.named("token_endpoint", endpoint)?;
    let (form, basic) = request(sign_in, discovery, attempt, code)?;
    let asked = issuer.ask(&endpoint, |client, url| {
        let request = client.post(url).body(form);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        match basic {
            Some(basic) => request.header(AUTHORIZATION, basic),
            None => request,
        }
    });
    let (status, body) = asked
        .await
        .map(|(answer, body)| (answer.status().as_u16(), body))?;
    let said: TokenAnswer = serde_json::from_slice(&body)
        .map_err(|_| format!("the token endpoint answers with the status {status}, and no JSON"))?;
    said.id_token.filter(|_| status == 200).ok_or_else(|| {
        let error = shown(&said.error.unwrap_or_default());
        format!("the token endpoint answers with the status {status} and the error {error}")
    })
}

/// The body of the request for an ID token, and its header `Authorization` if the secret is not in the body.
fn request(
    sign_in: &SignIn,
    discovery: &Discovery,
    attempt: &Attempt,
    code: &str,
) -> Result<(String, Option<String>), String> {
    let secret = sign_in.secret.get().map_or("", |secret| &secret.0);
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "authorization_code")
        .append_pair("code", code)
        .append_pair("redirect_uri", &sign_in.redirect_uri())
        .append_pair("code_verifier", &attempt.verifier);
    let methods = &discovery.token_endpoint_auth_methods_supported;
    let takes = |method: &str| methods.iter().any(|it| it == method);
    // Issuers differ in how they read special characters of a secret in a header, and not in a body.
    if takes(POST) {
        form.append_pair("client_id", &sign_in.client_id)
            .append_pair("client_secret", secret);
        Ok((form.finish(), None))
    } else if takes(BASIC) || methods.is_empty() {
        let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        let pair = format!("{}:{}", encoded(&sign_in.client_id), encoded(secret));
        let basic = format!("Basic {}", STANDARD.encode(pair));
        Ok((form.finish(), Some(basic)))
    } else {
        Err(format!("the issuer takes neither {BASIC} nor {POST}"))
    }
}
