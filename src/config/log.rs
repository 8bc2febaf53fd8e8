//! What is logged, and how.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::Invalid;

/// What is logged, and how.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// What is logged: `error`, `warn`, `info`, `debug`, `trace` or `off`. A list may give modules
    /// a level of their own: `info,latchgate::store=debug`.
    pub level: String,
    /// How it is written: `text` for people, `json` for machines, one object per line.
    pub format: LogFormat,
    /// Which requests get a line of their own: `failed` for those that failed or were slow, `all` for
    /// every one. Failed is every answer from 400 on, but for 423: that a lock is held is no failure. So
    /// is a request whose caller hung up before the answer. Slow is what the gateway worked on for a
    /// second or longer; the time in which a request waits for a lock, or for the rest of its own body,
    /// does not count. Metrics count every request in either case.
    pub requests: LogRequests,
}

/// Which requests get a log line of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogRequests {
    /// Those that failed or were slow.
    Failed,
    /// Every one.
    All,
}

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

// === impl LogConfig ===

impl LogConfig {
    /// Finds out whether something can be logged in this way.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        self.filter().map(|_filter| ())
    }

    /// The filter that `level` describes.
    pub fn filter(&self) -> Result<Targets, Invalid> {
        let invalid = || {
            let allowed = "error, warn, info, debug, trace or off, or a list such as \
                           info,latchgate::store=debug";
            Invalid::new("log.level", format!("{:?}", self.level), allowed)
        };
        // It warns of each answer to a ping that is not its own, and some are ours.
        let mut filter = Targets::new().with_target("h2::proto::ping_pong", LevelFilter::ERROR);
        for part in self.level.split(',') {
            filter = match part.split_once('=') {
                None => filter.with_default(level(part).ok_or_else(invalid)?),
                Some((module, name)) if is_module(module) => {
                    filter.with_target(module, level(name).ok_or_else(invalid)?)
                }
                Some(_) => return Err(invalid()),
            };
        }
        Ok(filter)
    }
}

/// Only the names: the parser of the library also takes numbers, and any other word as a module.
fn level(name: &str) -> Option<LevelFilter> {
    match name {
        "off" | "error" | "warn" | "info" | "debug" | "trace" => name.parse().ok(),
        _ => None,
    }
}

fn is_module(name: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    name.split("::").all(part)
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Text,
            // A line for each request is work for each request, and hides those that somebody should read.
            requests: LogRequests::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    fn with(level: &str) -> LogConfig {
        LogConfig {
            level: level.to_owned(),
            ..LogConfig::default()
        }
    }

    #[test]
    fn a_module_may_have_a_level_of_its_own() {
        let filter = with("warn,latchgate::store=debug").filter().unwrap();
        assert!(filter.would_enable("latchgate::store::redis", &Level::DEBUG));
        assert!(!filter.would_enable("latchgate::http", &Level::INFO));
        assert!(filter.would_enable("latchgate::http", &Level::WARN));
        assert!(filter.would_enable("h2::proto", &Level::WARN));
        assert!(!filter.would_enable("h2::proto::ping_pong", &Level::WARN));
    }

    #[test]
    fn a_misspelt_level_is_refused() {
        for bad in [
            "",
            "inof",
            "INFO",
            "3",
            "info,",
            "latchgate",
            "=info",
            "a b=info",
            "x=loud",
        ] {
            let invalid = with(bad).validate().unwrap_err();
            assert_eq!(invalid.key, "log.level", "{bad}");
        }
    }
}
