//! Durations as people write them.

use std::time::Duration;

pub(crate) use crate::client::format_duration as show;

/// Reads `30s`, `500ms`, `2m` or `1h 30m`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; expected something like 30s, 500ms or 2m"))?;
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err("a duration is whole milliseconds".to_owned());
    }
    Ok(duration)
}

/// Reads the same, in milliseconds.
pub(crate) fn parse_millis(text: &str) -> Result<u64, String> {
    let ms = parse(text)?.as_millis();
    ms.try_into().map_err(|_| "too long".to_owned())
}

/// Reads how long to wait, which may be 0.
pub(crate) fn parse_wait(text: &str) -> Result<Duration, String> {
    if text == "0" {
        Ok(Duration::ZERO)
    } else {
        parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        assert_eq!(parse("30s").unwrap(), Duration::from_secs(30));
        assert_eq!(parse("1500ms").unwrap(), Duration::from_millis(1_500));
        assert_eq!(parse("2m 1s").unwrap(), Duration::from_secs(121));
        for bad in ["", "30", "-1s", "1.5x", "10us"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_wait_needs_no_unit() {
        assert_eq!(parse_wait("0").unwrap(), Duration::ZERO);
        assert_eq!(parse_wait("2m").unwrap(), Duration::from_mins(2));
        assert!(parse_wait("30").is_err());
    }
}
