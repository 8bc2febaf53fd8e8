//! How people sign in at an issuer, as `[sign_in]` of a keys file says.

use std::{fmt, path::PathBuf, sync::OnceLock};

use url::Url;

use crate::{auth::oidc::Claims, bounded_file};

/// How people sign in at an issuer.
#[derive(Debug)]
pub struct SignIn {
    /// The name of the issuer in the keys file.
    pub issuer: Box<str>,
    /// The id that the gateway has as a client of the issuer. ID tokens of people have it as their audience.
    pub client_id: Box<str>,
    /// The file with the secret of the client.
    pub(in crate::auth) secret_file: PathBuf,
    /// The secret, once it was read.
    pub(in crate::auth) secret: OnceLock<ClientSecret>,
    /// The address of the gateway as browsers see it, without a slash at its end.
    pub url: Box<str>,
    /// The scopes that are asked for, with spaces between.
    pub(in crate::auth) scopes: Box<str>,
    /// The claim by which people are shown, if it is not their address.
    pub(in crate::auth) shown_claim: Option<Box<str>>,
    /// Whether the page can be used with API keys, too.
    pub has_key_form: bool,
    /// Whether people that sign out go on to the issuer.
    pub(in crate::auth) signs_out_there: bool,
}

/// The secret of the client. `Debug` never shows it.
pub(in crate::auth) struct ClientSecret(pub(super) Box<str>);

/// The longest secret of a client, in bytes.
const MAX_SECRET: u64 = 4_096;
/// How many characters people are shown of a person.
const MAX_SHOWN: usize = 120;

// === impl SignIn ===

impl SignIn {
    /// Reads the secret from its file, without the line break at its end.
    pub(in crate::auth) fn read_secret(&self) -> Result<(), String> {
        let file = self.secret_file.display();
        let refused =
            |why: &str| format!("client_secret_file of [sign_in]: cannot use {file}: {why}");
        let text = bounded_file::read_text(&self.secret_file, MAX_SECRET)
            .map_err(|error| refused(&error.to_string()))?;
        let secret = text.trim();
        if secret.is_empty() || secret.contains(char::is_control) {
            return Err(refused("it has no secret, or more than one line"));
        }
        self.secret.get_or_init(|| ClientSecret(secret.into()));
        Ok(())
    }

    /// Whether browsers reach the gateway over HTTPS.
    pub fn is_secure(&self) -> bool {
        self.url.starts_with("https://")
    }

    /// The address to which the issuer sends browsers back. No header of a request has a part in it.
    pub(super) fn redirect_uri(&self) -> String {
        format!("{}/sign-in/callback", self.url)
    }

    /// The address at which a person signs out at the issuer, and comes back from there.
    pub(super) fn sign_out(&self, mut endpoint: Url) -> String {
        let back = format!("{}/dashboard", self.url);
        endpoint
            .query_pairs_mut()
            .append_pair("client_id", &self.client_id)
            .append_pair("post_logout_redirect_uri", &back);
        endpoint.into()
    }

    /// What people are shown of a person: the address, if the issuer has verified it, or else the subject. It is harmless
    /// in a log and in a header.
    pub(super) fn shown(&self, claims: &Claims, subject: &str) -> String {
        let text = |claim: &str| claims.get(claim).and_then(|value| value.as_str());
        let is_verified = claims.get("email_verified") == Some(&true.into());
        let claim = self.shown_claim.as_deref().unwrap_or("email");
        let chosen = text(claim).filter(|_| claim != "email" || is_verified);
        let harmless = |c: char| if matches!(c, ' '..='~') { c } else { '?' };
        let shown = |text: &str| -> String { text.trim().chars().map(harmless).collect() };
        let mut shown = chosen
            .map(shown)
            .filter(|it| !it.is_empty())
            .unwrap_or_else(|| shown(subject));
        shown.truncate(MAX_SHOWN);
        shown
    }
}

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSecret(..)")
    }
}
