//! What is logged, and how.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is logged, and how.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// What is logged: `error`, `warn`, `info`, `debug` or `trace`, or a list of `module=level`
    /// separated by commas.
    pub level: String,
    /// How it is written: `text` for people, `json` for machines, one object per line.
    pub format: LogFormat,
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

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}
