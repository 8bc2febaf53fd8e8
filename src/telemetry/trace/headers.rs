//! The headers that a collector wants to see.

use std::path::Path;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::bounded_file;

use super::TraceError;

/// A hundred headers, each as long as a server takes it at most.
const MAX_LEN: u64 = 1024 * 1024;

/// Reads them from a file: one per line; empty lines and those that begin with `#` are left out.
pub(super) fn read(path: &str) -> Result<HeaderMap, TraceError> {
    let text = bounded_file::read_text(Path::new(path), MAX_LEN).map_err(|error| {
        TraceError::HeadersFile {
            path: path.to_owned(),
            error,
        }
    })?;
    let mut headers = HeaderMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = header(line).ok_or_else(|| TraceError::Header {
            path: path.to_owned(),
            line: number + 1,
        })?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    let mut value = HeaderValue::try_from(value.trim()).ok()?;
    value.set_sensitive(true);
    Some((HeaderName::try_from(name.trim()).ok()?, value))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_line_is_a_header_and_a_wrong_one_is_not_repeated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("headers");
        let path = path.to_str().unwrap();
        fs::write(path, "# for the collector\n\nAuthorization: Bearer a:b\n").unwrap();
        let headers = read(path).unwrap();
        assert_eq!(headers["authorization"], "Bearer a:b");
        fs::write(path, "\nSECRET\n").unwrap();
        let error = read(path).unwrap_err().to_string();
        assert!(
            error.contains("line 2") && !error.contains("SECRET"),
            "{error}"
        );
    }
}
