//! `latchgate openapi`.

use crate::http;

use super::{error::CliError, terminal::output};

/// Prints the document that a gateway with the default configuration serves.
pub(super) fn openapi() -> Result<(), CliError> {
    let document = http::openapi().to_pretty_json();
    let document = document.expect("an OpenAPI document is JSON");
    output::answer(&document).map_err(CliError::Output)
}
