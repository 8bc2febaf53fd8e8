//! `latchgate reserve` and `latchgate unreserve`: a person holds a lock until a time, without a process that renews it.

use std::time::Duration;

use clap::Args;
use jiff::{
    Span, Timestamp, Zoned,
    civil::{Date, Time},
    tz::TimeZone,
};
use rustix::process::Signal;

use crate::{
    client::{AcquireRequest, Reserve},
    clock::parse_time,
    lock::{FencingToken, LockName, Owner, Reason},
};

use super::{
    caller::{
        connection::ConnectionArgs,
        environment::Environment,
        request::{self, WantedLocks},
    },
    error::{CliError, Exit},
    terminal::{
        output,
        signals::{GIVING_UP, Signals},
        text, waiting,
    },
};

/// Reserve a lock until a time: hold it alone, without renewals.
///
/// For people: "staging is mine until Friday". The lock is held until the time is over, or until
/// `latchgate unreserve`; the command ends at once. Without API keys, every caller may end a reservation.
#[derive(Args)]
pub(super) struct ReserveArgs {
    /// The lock
    name: LockName,
    /// When the reservation ends: +2h, 18:00, "Fri 18:00", "tomorrow 9:00", "2026-12-04 18:00", or RFC 3339
    ///
    /// A time without an offset is in the time zone of this machine (TZ). A time or a weekday alone is the next one.
    /// The command repeats the time with its zone.
    #[arg(long, value_name = "TIME", value_parser = until)]
    until: Zoned,
    /// Why the lock is reserved: 1 to 200 characters
    #[arg(long, value_name = "TEXT", value_parser = Reason::not_blank)]
    reason: Reason,
    /// How long to wait for a lock that is held [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = text::parse_wait)]
    wait: Option<Duration>,
    /// Owner of the lease, for people to read [default: USER@HOST]
    #[arg(long, value_parser = Owner::new)]
    owner: Option<Owner>,
    /// An entry to attach to the lease; may be repeated
    #[arg(long = "meta", value_name = "NAME=VALUE", value_parser = request::entry)]
    meta: Vec<(String, String)>,
    /// Print the gateway's answer as JSON, the lease or the problem
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// End the reservation of a lock.
///
/// An API key ends its own reservations, and with the permission `break` those of others. A lock that is held but not
/// reserved is left alone.
#[derive(Args)]
pub(super) struct UnreserveArgs {
    /// The lock
    name: LockName,
    /// Why the reservation ends: 1 to 200 characters
    #[arg(long, value_name = "TEXT", default_value = "no longer needed", value_parser = Reason::not_blank)]
    reason: Reason,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn reserve(args: &ReserveArgs, environment: &Environment) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    let metadata = request::build_metadata(&args.meta);
    let owner = args.owner.clone();
    let request = AcquireRequest {
        wait: args.wait.unwrap_or_default(),
        reserve: Some(Reserve {
            until: args.until.timestamp().to_string(),
            reason: args.reason.clone(),
        }),
        owner: owner.or_else(|| request::default(environment)),
        metadata: metadata.map_err(|error| CliError::argument("--meta", error))?,
        ..AcquireRequest::default()
    };
    let handled = GIVING_UP.into_iter().chain([Signal::TSTP]);
    let mut signals = Signals::listen(handled).map_err(CliError::runtime)?;
    let wanted = WantedLocks::from(args.name.clone());
    let lease = Box::pin(waiting::acquire(&client, wanted, request, &mut signals)).await?;
    if args.json {
        return output::answer(lease.json());
    }
    let (name, until, fence) = (&args.name, text::local(&args.until), lease.fence);
    output::note(&format!(
        "reserved {name} until {until}: fencing token {fence}"
    ));
    Ok(())
}

pub(super) async fn unreserve(
    args: &UnreserveArgs,
    environment: &Environment,
) -> Result<(), CliError> {
    let client = args.connection.client(environment)?;
    let lock = client.inspect(&args.name).await?;
    let mut holders = lock.holders.iter();
    let reserved = holders.find(|holder| holder.reservation.is_some());
    let fence = reserved.and_then(|holder| holder.fencing_token);
    let Some(fence) = fence.and_then(|fence| FencingToken::new(fence).ok()) else {
        let text = format!("{} is not reserved", args.name);
        return Err(CliError::new(Exit::NotHeld, text));
    };
    let ended = client.break_lock(&args.name, &args.reason, Some(fence.into()));
    ended.await?;
    output::note(&format!("ended the reservation of {}", args.name));
    Ok(())
}

// === Until ===
//
// The time of the option `--until`.

/// The weekdays, in the order of ISO 8601.
const WEEKDAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

fn until(text: &str) -> Result<Zoned, String> {
    // The library takes UTC for a zone that it does not find.
    let zone = TimeZone::try_system().map_err(|error| {
        format!(
            "the time zone of this machine is not known ({error}): set TZ to a zone that exists \
             (TZ=Europe/Berlin, TZ=UTC), install the zone data (tzdata), or write the time with its \
             offset: 2026-12-04T18:00:00+01:00"
        )
    });
    parse_until(text, Timestamp::now(), zone)
}

/// Parses a time after `now`. `zone`: the time zone of a time without an offset, or why it is not known.
fn parse_until(
    text: &str,
    now: Timestamp,
    zone: Result<TimeZone, String>,
) -> Result<Zoned, String> {
    let time = match (text.strip_prefix('+'), parse_time(text)) {
        (Some(after), _) => {
            let after = text::parse_duration(after)?;
            let time = now.checked_add(after).map_err(|error| error.to_string())?;
            time.to_zoned(zone.unwrap_or(TimeZone::UTC))
        }
        (None, Some(exact)) => exact.to_zoned(zone.unwrap_or(TimeZone::UTC)),
        (None, None) => local_time(text, &now.to_zoned(zone?))?,
    };
    if time.timestamp() > now {
        Ok(time)
    } else {
        Err(format!("{} is in the past", text::local(&time)))
    }
}

fn local_time(text: &str, now: &Zoned) -> Result<Zoned, String> {
    let unknown = || {
        let day = text.trim();
        let lower = day.to_lowercase();
        let is_day = matches!(&*lower, "today" | "tomorrow") || weekday(&lower).is_some();
        if is_day || day.parse::<Date>().is_ok() {
            format!("expected a time of day behind the day: \"{day} 18:00\"")
        } else {
            "expected a time such as +2h, 18:00, Fri 18:00 or 2026-12-04 18:00".to_owned()
        }
    };
    let (day, time) = match text.trim().rsplit_once([' ', 'T']) {
        Some((day, time)) => (day.trim().to_lowercase(), time),
        None => (String::new(), text.trim()),
    };
    let has_colon = time.contains(':');
    let time = format!("{time:0>5}").parse::<Time>().ok();
    let time = time.filter(|_| has_colon).ok_or_else(unknown)?;
    let today = now.date();
    // The date, and after how many days the text means another one, if the time of the first is over.
    let (date, again) = match (&*day, weekday(&day)) {
        ("", _) => (today, Some(1)),
        ("today", _) => (today, None),
        ("tomorrow", _) => (later(today, 1)?, None),
        (_, Some(weekday)) => {
            let days = (weekday - today.weekday().to_monday_zero_offset()).rem_euclid(7);
            (later(today, days)?, Some(7))
        }
        (day, None) => (day.parse().map_err(|_invalid| unknown())?, None),
    };
    let at = |date: Date| {
        let time = date.to_datetime(time);
        let zoned = now.time_zone().to_ambiguous_zoned(time).unambiguous();
        zoned.map_err(|_changed| {
            format!("the clocks change at {time}: write the time as RFC 3339, with its offset")
        })
    };
    match (at(date)?, again) {
        (time, Some(days)) if time <= *now => at(later(date, days)?),
        (time, _) => Ok(time),
    }
}

/// The number of a weekday, from Monday; its name may be cut off after three letters.
fn weekday(day: &str) -> Option<i8> {
    let mut days = WEEKDAYS.iter().zip(0..);
    let (_, number) = days.find(|(name, _)| name.starts_with(day) && day.len() > 2)?;
    Some(number)
}

fn later(date: Date, days: i8) -> Result<Date, String> {
    let later = date.checked_add(Span::new().days(days));
    later.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the text means on a Friday at noon in Berlin.
    fn until(text: &str) -> Result<String, String> {
        let now: Zoned = "2026-10-23T12:00[Europe/Berlin]".parse().unwrap();
        parse_until(text, now.timestamp(), Ok(now.time_zone().clone()))
            .map(|time| text::local(&time))
    }

    #[test]
    fn a_time_is_read_as_people_write_it() {
        for (text, time) in [
            ("+2h", "Fri 2026-10-23 14:00 Europe/Berlin"),
            ("+1d 30m", "Sat 2026-10-24 12:30 Europe/Berlin"),
            ("18:00", "Fri 2026-10-23 18:00 Europe/Berlin"),
            ("9:00", "Sat 2026-10-24 09:00 Europe/Berlin"),
            ("today 18:00", "Fri 2026-10-23 18:00 Europe/Berlin"),
            ("tomorrow 9:00", "Sat 2026-10-24 09:00 Europe/Berlin"),
            ("Fri 18:00", "Fri 2026-10-23 18:00 Europe/Berlin"),
            ("fri 9:00", "Fri 2026-10-30 09:00 Europe/Berlin"),
            ("Tuesday 9:30", "Tue 2026-10-27 09:30 Europe/Berlin"),
            ("2026-12-04 18:00", "Fri 2026-12-04 18:00 Europe/Berlin"),
            ("2026-12-04T18:00", "Fri 2026-12-04 18:00 Europe/Berlin"),
            ("2026-12-04T18:00Z", "Fri 2026-12-04 19:00 Europe/Berlin"),
            (
                "2026-12-04T18:00:00+05:30",
                "Fri 2026-12-04 13:30 Europe/Berlin",
            ),
        ] {
            assert_eq!(until(text).as_deref(), Ok(time), "{text}");
        }
        for text in [
            "",
            "18",
            "Friday",
            "fr 18:00",
            "25:00",
            "2026-13-01 18:00",
            "soon 18:00",
            "18:00 Fri",
        ] {
            let error = until(text).unwrap_err();
            assert!(error.starts_with("expected"), "{text}: {error}");
        }
        for (day, example) in [
            ("Friday", "\"Friday 18:00\""),
            ("tomorrow", "\"tomorrow 18:00\""),
            ("2026-12-04", "\"2026-12-04 18:00\""),
        ] {
            assert!(until(day).unwrap_err().ends_with(example), "{day}");
        }
        for text in ["+", "+2", "+2x", "+-2h"] {
            assert!(until(text).is_err(), "{text}");
        }
        assert!(until("+0s").unwrap_err().contains("is in the past"));
        for text in ["today 9:00", "2026-10-22 18:00", "2026-10-23T09:59:59Z"] {
            assert!(
                until(text).unwrap_err().contains("is in the past"),
                "{text}"
            );
        }
    }

    #[test]
    fn an_hour_is_the_one_of_the_clock_on_that_day() {
        // The clocks change in the night to 2026-10-25, at three o'clock.
        assert_eq!(
            until("Sun 1:59").as_deref(),
            Ok("Sun 2026-10-25 01:59 Europe/Berlin")
        );
        let error = until("Sun 2:30").unwrap_err();
        assert!(
            error.starts_with("the clocks change at 2026-10-25T02:30:00"),
            "{error}"
        );
        let time = |text| {
            let now: Zoned = "2026-10-23T12:00[Europe/Berlin]".parse().unwrap();
            let time = parse_until(text, now.timestamp(), Ok(now.time_zone().clone()));
            time.unwrap().timestamp().to_string()
        };
        assert_eq!(time("Sat 12:00"), "2026-10-24T10:00:00Z");
        assert_eq!(time("Sun 12:00"), "2026-10-25T11:00:00Z");
        let error = until("2027-03-28 2:30").unwrap_err();
        assert!(error.contains("write the time as RFC 3339"), "{error}");
    }
}
