//! The problem document, with which a gateway refuses a request.

use std::{fmt, time::Duration};

use serde::Deserialize;

use crate::Holder;

/// A problem document. It holds no secret.
#[derive(Clone, Deserialize)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// Which problem it is: `locked`, `lease-lost`, ..
    pub code: String,
    /// What it means, in a sentence.
    #[serde(default)]
    pub title: String,
    /// What is wrong with this request.
    #[serde(default)]
    pub detail: Option<String>,
    /// By which the gateway's log knows the request.
    #[serde(default)]
    pub request_id: Option<String>,
    /// With `lease-lost`: whether somebody else holds the lock.
    #[serde(default)]
    pub held: Option<bool>,
    /// With `locked`, if several locks were asked for: the one that is held.
    #[serde(default)]
    pub name: Option<String>,
    /// With `locked`: who holds the lock; nobody while it passes on.
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// With `locked`: how many hold it.
    #[serde(default)]
    pub holder_count: Option<u64>,
    /// With `locked`: how many wait for it.
    #[serde(default)]
    pub waiters: Option<u64>,
    /// With `invalid-request`: what is wrong, and where.
    #[serde(default)]
    pub errors: Vec<FieldError>,
    /// When to ask again, in milliseconds.
    #[serde(default, rename = "retry_after_ms")]
    retry_after: Option<u64>,
    #[serde(skip)]
    json: String,
}

/// One thing that is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FieldError {
    /// Where: a field of the body, a header, ..
    pub field: String,
    /// What is wrong with it.
    #[serde(default)]
    pub reason: String,
}

// === impl Problem ===

impl Problem {
    /// Reads a problem document.
    pub(crate) fn parse(body: &str) -> Option<Self> {
        let mut problem: Self = serde_json::from_str(body).ok()?;
        body.clone_into(&mut problem.json);
        Some(problem)
    }

    /// The problem that stands for an answer of a proxy, which has no problem document.
    pub(crate) fn of_proxy(status: u16, code: &str, detail: String) -> Self {
        Self {
            status,
            name: None,
            detail: Some(detail),
            ..Self::of_part("", code, None, None)
        }
    }

    /// The problem of one lease of a group.
    pub(crate) fn of_part(name: &str, code: &str, more: Option<&str>, held: Option<bool>) -> Self {
        let mut detail = match code {
            "lease-lost" => format!("the lease of {name} is lost"),
            _ => format!("the lease of {name} was neither renewed nor released"),
        };
        if let Some(more) = more {
            detail += ": ";
            detail += more.trim_end_matches('.');
        }
        Self {
            status: 0,
            code: code.to_owned(),
            title: String::new(),
            detail: Some(detail),
            request_id: None,
            held,
            name: Some(name.to_owned()),
            holders: Vec::new(),
            holder_count: None,
            waiters: None,
            errors: Vec::new(),
            retry_after: None,
            json: String::new(),
        }
    }

    /// The document as the gateway sent it.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// When to ask again.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.map(Duration::from_millis)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut detail = self.detail.clone().unwrap_or_else(|| self.title.clone());
        // If there is one error, the detail repeats it.
        if let [_, _, ..] = self.errors.as_slice() {
            let errors = self.errors.iter();
            let errors = errors.map(|FieldError { field, reason }| format!("`{field}` {reason}"));
            detail = format!(
                "{}: {}",
                detail.trim_end_matches('.'),
                errors.collect::<Vec<_>>().join("; ")
            );
        }
        if self.status == 0 {
            return write!(f, "{detail} ({})", self.code);
        }
        write!(
            f,
            "{} ({}, {})",
            detail.trim_end_matches('.'),
            self.code,
            self.status
        )
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Problem({self})")
    }
}
