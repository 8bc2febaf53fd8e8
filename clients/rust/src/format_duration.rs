//! Durations as people read them.

use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A duration in words of at most two units, never longer than it is: `999ms`, `29.9s`, `30s`, `2m 3s`,
/// `23h 59m`, `7d`.
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..MINUTE => match duration.subsec_millis() / 100 {
            0 => format!("{seconds}s"),
            tenths => format!("{seconds}.{tenths}s"),
        },
        MINUTE..HOUR => units((seconds / MINUTE, 'm'), (seconds % MINUTE, 's')),
        HOUR..DAY => units((seconds / HOUR, 'h'), (seconds % HOUR / MINUTE, 'm')),
        DAY.. => units((seconds / DAY, 'd'), (seconds % DAY / HOUR, 'h')),
    }
}

fn units((count, unit): (u64, char), (rest, smaller): (u64, char)) -> String {
    match rest {
        0 => format!("{count}{unit}"),
        rest => format!("{count}{unit} {rest}{smaller}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_no_more_than_people_read() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (29_987, "29.9s"),
            (30_000, "30s"),
            (30_099, "30s"),
            (59_999, "59.9s"),
            (60_000, "1m"),
            (123_000, "2m 3s"),
            (3_600_000, "1h"),
            (86_399_999, "23h 59m"),
            (604_800_000, "7d"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(format_duration(Duration::from_millis(ms)), text);
        }
    }
}
