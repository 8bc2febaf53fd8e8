//! The rules of an API key for ID tokens: which tokens it is for, and what their exchanged keys may do and say.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    auth::Permission,
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
    /// The hash of the issuer, the audience and the claims.
    pub(in crate::auth) hash: RulesHash,
}

/// The hash of the issuer, the audience and the claims of an API key, in hexadecimal digits. If one of them changes,
/// keys that were exchanged before do not count any more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::auth) struct RulesHash(Box<str>);

/// The longest value of metadata that is made of claims, in characters. A longer value is cut.
const MAX_VALUE: usize = 256;
const EMAIL: &str = "email";
/// The claims that tell workloads apart although they have chosen one `sub`.
const WORKLOAD_IDS: [&str; 3] = ["repository_id", "project_id", "pipeline_id"];

// === impl ExchangeRules ===

impl ExchangeRules {
    /// Whether a token is for this key; otherwise the first claim that is wrong.
    pub fn check(&self, claims: &Claims) -> Result<(), &str> {
        self.claims.check(
            claims,
            self.templates().any(|template| template.uses(EMAIL)),
        )
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
        let ids = ids.filter_map(|claim| Some((claim.to_owned(), claims.get(claim)?.clone())));
        let at = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Ok(ExchangedContent {
            name: name.to_owned(),
            rules: self.hash.0.to_string(),
            issuer: issuer.settings.url.to_string(),
            subject,
            workload: Value::Object(ids.collect()).to_string(),
            at_ms: ms(at),
            until_ms: ms(at + self.session),
            rendered,
        })
    }

    /// What a token makes of the templates: owner, metadata and beginnings of lock names.
    pub fn render(&self, claims: &Claims) -> Result<Rendered, String> {
        let cut = |text: String, most| text.chars().take(most).collect::<String>();
        let owner = self
            .owner
            .as_ref()
            .map(|it| it.render_text(claims))
            .transpose()?;
        let owner = owner.map(|text| cut(text, Owner::MAX_CHARS));
        let value = |(name, template): &(String, Template)| {
            Ok((name.clone(), cut(template.render_text(claims)?, MAX_VALUE)))
        };
        let metadata: BTreeMap<_, _> = self
            .metadata
            .iter()
            .map(value)
            .collect::<Result<_, String>>()?;
        Metadata::new(metadata.clone())
            .map_err(|error| format!("the metadata of the key {error}"))?;
        let prefix = |(_, template): &(Permission, Template)| {
            Ok((
                template.as_str().to_owned(),
                template.render_prefix(claims)?,
            ))
        };
        let prefixes = self
            .names
            .iter()
            .map(prefix)
            .collect::<Result<_, String>>()?;
        Ok(Rendered {
            owner,
            metadata,
            prefixes,
        })
    }

    /// The beginnings of lock names with claims in them on which the key has this permission, as they are in the file.
    pub fn templates_of(&self, permission: Permission) -> impl Iterator<Item = &str> {
        let names = self.names.iter().filter(move |(of, _)| *of == permission);
        names.map(|(_, template)| template.as_str())
    }

    /// Whether an exchanged key still counts: the rules are the same, and it is not older than `sessions_after`.
    pub(in crate::auth) fn admits(&self, content: &ExchangedContent) -> bool {
        let is_revoked = self
            .sessions_after
            .is_some_and(|after| content.at() < after);
        !is_revoked && *self.hash.0 == *content.rules
    }

    fn templates(&self) -> impl Iterator<Item = &Template> {
        let names = self.names.iter().map(|(_, template)| template);
        let texts = self.metadata.iter().map(|(_, template)| template);
        names.chain(texts).chain(&self.owner)
    }
}

// === impl RulesHash ===

impl RulesHash {
    pub(in crate::auth) fn new(url: &str, audience: &str, claims: &ClaimRules) -> Self {
        let mut hash = Sha256::new();
        for part in [url, audience, &claims.canonical()] {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part);
        }
        let hash: [u8; 32] = hash.finalize().into();
        Self(
            hash[..12]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        )
    }
}
