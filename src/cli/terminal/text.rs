//! Text input and output of commands: durations, tables, and descriptions of leases.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use jiff::{SignedDuration, Timestamp, Zoned, tz::TimeZone};

use crate::client::{AwaitedLock, Holder, LockState, ReleaseRequest, Reservation};

use super::visible;

pub(crate) use crate::client::format_duration as duration;

/// Parses a duration such as `30s`, `500ms`, `2m` or `1h 30m`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|_invalid| "expected a time such as 30s, 500ms, 2m or 1h 30m".to_owned())?;
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err("a duration is whole milliseconds".to_owned());
    }
    Ok(duration)
}

/// Parses a duration such as `30s`, and returns it in milliseconds.
pub(crate) fn parse_millis(text: &str) -> Result<u64, String> {
    let ms = parse_duration(text)?.as_millis();
    ms.try_into().map_err(|_| "too long".to_owned())
}

/// Parses the duration of a wait, which may be `0`.
pub(crate) fn parse_wait(text: &str) -> Result<Duration, String> {
    if text == "0" {
        Ok(Duration::ZERO)
    } else {
        parse_duration(text)
    }
}

/// Formats rows as lines with aligned columns.
pub(crate) fn aligned(rows: &[impl AsRef<[String]>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.as_ref().get(column));
        cells.map(|cell| cell.chars().count() + 2).max()
    };
    let widths: Vec<usize> = (0..).map_while(width).collect();
    let line = |row: &[String]| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            write!(line, "{cell:<width$}").expect("writing to a String never fails");
        }
        line.trim_end().to_owned() + "\n"
    };
    rows.iter().map(|row| line(row.as_ref())).collect()
}

/// The text of a table cell; a dash if the value is missing.
pub(crate) fn or_dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| text.to_string())
}

/// Describes a release request: the time left, the caller that sent it, and its reason.
pub(crate) fn asked_for(request: &ReleaseRequest) -> String {
    let within = duration(request.within());
    let by = request.by.as_deref().unwrap_or("somebody");
    format!(
        "within {within}, requested by {}: {}",
        visible(by),
        visible(&request.reason)
    )
}

/// Describes a reservation: who reserved the lock, until when in the time zone of this machine, and why.
pub(crate) fn reserved(reservation: &Reservation) -> String {
    let by = reservation.reserved_by.as_deref();
    let by = by.map_or_else(String::new, |by| format!("by {} ", visible(by)));
    let until = match reservation.until.parse::<Timestamp>() {
        // A zone that is not known would be shown as such; UTC has a name.
        Ok(until) => local(&until.to_zoned(TimeZone::try_system().unwrap_or(TimeZone::UTC))),
        Err(_) => visible(&reservation.until).into_owned(),
    };
    format!("{by}until {until} because {}", visible(&reservation.reason))
}

/// Describes the lock that a group waits for: its name, for how long the group has waited, and who holds the lock.
pub(crate) fn awaited(lock: &AwaitedLock) -> String {
    let waited = duration(Duration::from_millis(lock.since_ms));
    let Some(name) = &lock.name else {
        return format!("a lock that the key may not view, for {waited}");
    };
    let how = match &lock.holders[..] {
        [] if lock.state == Some(LockState::Resting) => "rests after its last lease".to_owned(),
        [] => "free".to_owned(),
        [holder] => held_by(holder).unwrap_or_else(|| "held".to_owned()),
        [_, _, ..] => format!("{} hold it", lock.holder_count.max(2)),
    };
    format!("{} for {waited}: {how}", visible(name))
}

/// Says who has reserved or holds a lock, if that is known.
fn held_by(holder: &Holder) -> Option<String> {
    let reservation = holder.reservation.as_ref();
    let reserved = reservation.map(|it| format!("reserved {}", reserved(it)));
    match (reserved, &holder.owner) {
        (reserved, Some(owner)) => {
            let reserved = reserved.map_or_else(String::new, |it| format!(", {it}"));
            Some(format!("held by {}{reserved}", visible(owner)))
        }
        (None, None) if holder.foreign => Some("held by a client without a gateway".to_owned()),
        (reserved, None) => reserved,
    }
}

/// A time with its weekday and its zone.
pub(crate) fn local(time: &Zoned) -> String {
    time.strftime("%a %Y-%m-%d %H:%M %:Q").to_string()
}

/// The table cell with the owner of a lease, and its reservation and its release request if there is one.
pub(crate) fn owner_and_request(holder: &Holder) -> String {
    let owner = match &holder.owner {
        Some(owner) => visible(owner).into_owned(),
        None if holder.foreign => "(a client that uses no gateway)".to_owned(),
        None => String::new(),
    };
    let owner = match &holder.reservation {
        Some(reservation) => format!("{owner} (reserved {})", reserved(reservation)),
        None if holder.waiting => format!("{owner} (waiting for another lock)"),
        None => owner,
    };
    match &holder.release_requested {
        None => owner,
        Some(request) => format!("{owner} (to be released {})", asked_for(request)),
    }
}

/// How long the holder has held the lock. Both times are of the gateway's clock, so that of this machine does not matter.
pub(crate) fn held_for(holder: &Holder) -> Option<Duration> {
    let time = |text: &Option<String>| text.as_deref()?.parse::<Timestamp>().ok();
    let left = SignedDuration::from_millis(holder.expires_in_ms?.try_into().ok()?);
    let all = time(&holder.expires_at)?.duration_since(time(&holder.acquired_at)?);
    all.checked_sub(left)?.try_into().ok()
}

/// How long ago the lease was last renewed, or granted; `None` if what is left of the lease does not say it.
pub(crate) fn renewed_ago(holder: &Holder) -> Option<Duration> {
    let left = holder.expires_in_ms?;
    let is_cut = holder.hold_expires_in_ms.is_some_and(|limit| limit <= left);
    let is_moved = holder.reservation.is_some() || holder.release_requested.is_some();
    let ago = holder.ttl_ms?.checked_sub(left)?;
    (!is_cut && !is_moved).then(|| Duration::from_millis(ago))
}

/// Metadata in a line: ` job=4711 step=2`.
pub(crate) fn entries(metadata: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (name, value) in metadata {
        write!(text, " {name}={value}").expect("writing to a String never fails");
    }
    visible(&text).into_owned()
}

/// The table cell with the time left until a lease expires.
pub(crate) fn expires_in(holder: &Holder) -> String {
    let left = holder.expires_in_ms.map(Duration::from_millis);
    left.map_or_else(|| "never".to_owned(), duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        assert_eq!(parse_duration("30s").unwrap(), Duration::from_secs(30));
        assert_eq!(
            parse_duration("1500ms").unwrap(),
            Duration::from_millis(1_500)
        );
        assert_eq!(parse_duration("2m 1s").unwrap(), Duration::from_secs(121));
        for bad in ["", "30", "-1s", "1.5x", "10us"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        let error = parse_duration("abc").unwrap_err();
        assert_eq!(error, "expected a time such as 30s, 500ms, 2m or 1h 30m");
    }

    #[test]
    fn the_times_of_a_lease_are_read_from_what_is_left_of_it() {
        let holder = |more: &str| -> Holder {
            let json = format!(
                r#"{{"acquired_at":"2026-11-20T12:00:00.000Z","expires_at":"2026-11-20T12:02:30.500Z",
                    "ttl_ms":30000,"expires_in_ms":21000{more}}}"#
            );
            serde_json::from_str(&json).unwrap()
        };
        assert_eq!(held_for(&holder("")), Some(Duration::from_millis(129_500)));
        assert_eq!(renewed_ago(&holder("")), Some(Duration::from_secs(9)));
        // The end of a lease that its hold limit or a request cuts off says nothing of its renewal.
        assert_eq!(renewed_ago(&holder(r#","hold_expires_in_ms":21000"#)), None);
        let asked = r#","release_requested":{"by":null,"reason":"x","within_ms":21000}"#;
        assert_eq!(renewed_ago(&holder(asked)), None);
        let foreign: Holder = serde_json::from_str(r#"{"foreign":true}"#).unwrap();
        assert_eq!((held_for(&foreign), renewed_ago(&foreign)), (None, None));
    }

    #[test]
    fn no_wait_needs_no_unit() {
        assert_eq!(parse_wait("0").unwrap(), Duration::ZERO);
        assert_eq!(parse_wait("2m").unwrap(), Duration::from_mins(2));
        assert!(parse_wait("30").is_err());
    }

    #[test]
    fn each_column_is_as_wide_as_its_widest_cell_and_no_line_ends_with_spaces() {
        let rows = [["LOCK", "OWNER"], ["ä", ""], ["deploy", "ci"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows), "LOCK    OWNER\n\u{e4}\ndeploy  ci\n");
    }

    #[test]
    fn nobody_can_pretend_to_be_somebody_else() {
        let request = |by: &str| serde_json::from_str(by).unwrap();
        let named = r#"{"by":"ops","reason":"a\u202eb","within_ms":30000}"#;
        assert_eq!(
            asked_for(&request(named)),
            r"within 30s, requested by ops: a\u{202e}b"
        );
        let open = r#"{"by":null,"reason":"deploy","within_ms":500}"#;
        assert_eq!(
            asked_for(&request(open)),
            "within 500ms, requested by somebody: deploy"
        );
    }
}
