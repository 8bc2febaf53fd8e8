//! The rules of an API key for ID tokens: which tokens it is for, and what their exchanged keys may do and say.

use std::time::{Duration, SystemTime};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    auth::{Permission, session::milliseconds},
    lock::{Metadata, Owner},
};

use super::{
    Claims, ExchangedContent, Issuer, RefusalClass, Rendered, TokenRefusal, VerifiedToken,
    claims::ClaimRules, id_token::refuse, template::Template,
};

/// What an API key has instead of secrets: the rules by which ID tokens are exchanged.
#[derive(Debug, Clone, PartialEq)]
pub struct ExchangeRules {
    /// The name of the issuer in the keys file.
    pub issuer: Box<str>,
    /// The audience that a token must have: of keys for people the id of the client with which they sign in.
    pub audience: Box<str>,
    /// The claims that a token must have.
    pub claims: ClaimRules,
    /// The beginnings of lock names that depend on the claims, each with its permission.
    pub(in crate::auth) names: Vec<(Permission, Template)>,
    /// How long an exchanged key lives.
    pub session: Duration,
    /// The owner of the leases of exchanged keys.
    pub(in crate::auth) owner: Option<Template>,
    /// The metadata of the leases of exchanged keys.
    pub(in crate::auth) metadata: Vec<(String, Template)>,
    /// Exchanged keys of tokens that were exchanged before this time do not count.
    pub sessions_after: Option<SystemTime>,
    /// The hash of the issuer, the audience and the claims ([`rules_hash`]).
    pub(in crate::auth) hash: String,
}

/// The longest value of metadata that is made of claims, in characters. A longer value is cut.
const MAX_VALUE: usize = 256;
const EMAIL: &str = "email";
/// The claims that tell workloads apart although they have chosen one `sub`. The first that a token has counts: of GitLab
/// it is the project, and `pipeline_id` is another for each run.
const WORKLOAD_IDS: [&str; 3] = ["repository_id", "project_id", "pipeline_id"];

// === impl ExchangeRules ===

impl ExchangeRules {
    /// Whether a token is for this key; otherwise the first claim that is wrong.
    pub fn check(&self, claims: &Claims) -> Result<(), &str> {
        let uses_email = self.templates().any(|template| template.uses(EMAIL));
        self.claims.check(claims, uses_email)
    }

    /// The content of the exchanged key for a token of this key. Fails if a claim of a template is missing or unfit.
    pub(in crate::auth) fn exchange(
        &self,
        name: &str,
        issuer: &Issuer,
        token: VerifiedToken,
        now: SystemTime,
    ) -> Result<ExchangedContent, TokenRefusal> {
        let VerifiedToken {
            subject, claims, ..
        } = token;
        let rendered = self
            .render(&claims)
            .map_err(|reason| refuse(RefusalClass::NoKeyMatches, reason))?;
        let ids = WORKLOAD_IDS.into_iter();
        let mut ids = ids.filter_map(|claim| Some((claim.to_owned(), claims.get(claim)?.clone())));
        Ok(ExchangedContent {
            name: name.to_owned(),
            rules: self.hash.clone(),
            issuer: issuer.settings.url.to_string(),
            subject,
            workload: Value::Object(ids.next().into_iter().collect()).to_string(),
            at_ms: milliseconds(now),
            until_ms: milliseconds(now + self.session),
            person: None,
            rendered,
        })
    }

    /// What a token makes of the templates: owner, metadata and beginnings of lock names.
    pub fn render(&self, claims: &Claims) -> Result<Rendered, String> {
        let cut = |text: String, most| text.chars().take(most).collect::<String>();
        let mut rendered = Rendered::default();
        if let Some(owner) = &self.owner {
            rendered.owner = Some(cut(owner.render_text(claims)?, Owner::MAX_CHARS));
        }
        for (name, template) in &self.metadata {
            let value = cut(template.render_text(claims)?, MAX_VALUE);
            rendered.metadata.insert(name.clone(), value);
        }
        for (_, template) in &self.names {
            let prefix = template.render_prefix(claims)?;
            rendered
                .prefixes
                .insert(template.as_str().to_owned(), prefix);
        }
        Metadata::new(rendered.metadata.clone())
            .map_err(|error| format!("the metadata of the key {error}"))?;
        Ok(rendered)
    }

    /// The beginnings of lock names with claims in them on which the key has this permission, as they are in the file.
    pub fn templates_of(&self, permission: Permission) -> impl Iterator<Item = &str> {
        let names = self.names.iter().filter(move |(of, _)| *of == permission);
        names.map(|(_, template)| template.as_str())
    }

    /// Whether an exchanged key still counts: the rules are the same, and it is not older than `sessions_after`.
    pub(in crate::auth) fn admits(&self, content: &ExchangedContent) -> bool {
        self.sessions_after <= Some(content.at()) && self.hash == content.rules
    }

    fn templates(&self) -> impl Iterator<Item = &Template> {
        let names = self.names.iter().map(|(_, template)| template);
        let texts = self.metadata.iter().map(|(_, template)| template);
        names.chain(texts).chain(&self.owner)
    }
}

/// The hash of the issuer, the audience and the claims of an API key. If one of them changes, keys that were exchanged
/// before do not count any more.
pub(in crate::auth) fn rules_hash(url: &str, audience: &str, claims: &ClaimRules) -> String {
    let hash = Sha256::digest(json!([url, audience, claims]).to_string());
    URL_SAFE_NO_PAD.encode(&hash[..12])
}
