//! Durations as people write them.

use std::time::Duration;

/// Reads `30s`, `500ms`, `2m` or `1h 30m`.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; expected something like 30s, 500ms or 2m"))?;
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err("a duration is whole milliseconds".to_owned());
    }
    Ok(duration)
}

/// Reads how long to wait, which may be 0.
pub(super) fn parse_wait(text: &str) -> Result<Duration, String> {
    if text == "0" {
        Ok(Duration::ZERO)
    } else {
        parse(text)
    }
}

/// Writes a duration, no finer than people read and never longer than it is.
pub(super) fn show(duration: Duration) -> String {
    let seconds = Duration::from_secs(duration.as_secs());
    if duration < Duration::from_secs(1) {
        format!("{}ms", duration.as_millis())
    } else if duration < Duration::from_mins(1) {
        format!("{}.{}s", seconds.as_secs(), duration.subsec_millis() / 100)
    } else {
        humantime::format_duration(seconds).to_string()
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

    #[test]
    fn shows_no_more_than_people_read() {
        for (millis, shown) in [
            (999, "999ms"),
            (29_987, "29.9s"),
            (30_000, "30.0s"),
            (86_399_999, "23h 59m 59s"),
        ] {
            assert_eq!(show(Duration::from_millis(millis)), shown);
        }
    }
}
