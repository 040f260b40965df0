//! Parses and formats points in time.
//!
//! The format is `YYYY-MM-DD`, `YYYY-MM-DDTHH:MM` or `YYYY-MM-DDTHH:MM:SS`, with up to nine digits of a decimal fraction; in
//! the time zone of this machine, or in UTC with a final `Z`. Omitted parts are zero: a date is the time at which the day
//! begins.

use chrono::{DateTime, Local, NaiveDate, NaiveDateTime, NaiveTime, SecondsFormat, TimeZone, Utc};

use crate::object::Time;

/// Parses a point in time; `None` if it is malformed.
pub fn parse(text: &str) -> Option<Time> {
    match text.strip_suffix('Z') {
        Some(text) => parse_in(text, &Utc),
        None => parse_in(text, &Local),
    }
}

fn parse_in(text: &str, zone: &impl TimeZone) -> Option<Time> {
    let (date, time) = text.split_once('T').map_or((text, None), |(date, time)| (date, Some(time)));
    let [year, month, day] = parse_fields(date, '-', [4, 2, 2])?;
    let date = NaiveDate::from_ymd_opt(year.try_into().ok()?, month, day)?;
    let time = match time {
        None => NaiveTime::MIN,
        Some(time) => clock(time)?,
    };
    // The first of two if clocks are set back at that time; none if they are set forward over it.
    let moment = zone.from_local_datetime(&NaiveDateTime::new(date, time)).earliest()?;
    moment.timestamp_nanos_opt().map(Time)
}

fn clock(text: &str) -> Option<NaiveTime> {
    if let Some([hour, minute]) = parse_fields(text, ':', [2, 2]) {
        return NaiveTime::from_hms_opt(hour, minute, 0);
    }
    let (whole, part) = text.split_once('.').map_or((text, None), |(whole, part)| (whole, Some(part)));
    let [hour, minute, second] = parse_fields(whole, ':', [2, 2, 2])?;
    let nanoseconds = match part {
        None => 0,
        Some(part) if (1..=9).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{part:0<9}").parse().ok()?
        }
        Some(_) => return None,
    };
    NaiveTime::from_hms_nano_opt(hour, minute, second, nanoseconds)
}

/// Parses numbers with fixed counts of digits.
fn parse_fields<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[u32; N]> {
    let mut parts = text.split(separator);
    let mut found = [0; N];
    for (found, digits) in found.iter_mut().zip(digits) {
        let part = parts.next()?;
        if part.len() != digits || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *found = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

/// Rounds up to the next millisecond, so that the state at the formatted time includes what was done at `time`.
fn rounded(time: Time) -> DateTime<Utc> {
    DateTime::from_timestamp_nanos(time.0.saturating_add(999_999) / 1_000_000 * 1_000_000)
}

/// Formats a time in UTC with milliseconds, for [`parse`].
pub fn exact(time: Time) -> String {
    rounded(time).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Formats a time in the time zone of this machine with milliseconds, for [`parse`].
pub fn local(time: Time) -> String {
    rounded(time).with_timezone(&Local).format("%Y-%m-%dT%H:%M:%S%.3f").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_time_parses_again() {
        let second = 1_000_000_000;
        let noon = 1_795_176_000 * second;
        for (text, nanoseconds) in [
            ("1970-01-01Z", 0),
            ("2026-11-20T12:00Z", noon),
            ("2026-11-20T12:00:00Z", noon),
            ("2026-11-20T12:00:07.5Z", noon + 7 * second + second / 2),
            ("2026-11-20T12:00:00.000000001Z", noon + 1),
            ("2026-11-20Z", noon - 12 * 3600 * second),
        ] {
            assert_eq!(parse(text), Some(Time(nanoseconds)), "{text}");
        }
        let summer = chrono::FixedOffset::east_opt(7200).unwrap();
        assert_eq!(parse_in("2026-11-20T14:00", &summer), Some(Time(noon)));
        for time in [Time(noon), Time(noon + 1), Time(noon + 999_999_999)] {
            for text in [exact(time), local(time)] {
                let read = parse(&text).unwrap();
                assert!(read >= time && read.0 - time.0 < 1_000_000, "{text} of {time:?}");
            }
        }
    }

    #[test]
    fn invalid_time_is_refused() {
        for text in [
            "",
            "Z",
            "2026",
            "2026-11",
            "2026-11-31",
            "2026-1-1",
            "26-11-20",
            "2026-11-20T",
            "2026-11-20T12",
            "2026-11-20T24:00",
            "2026-11-20 12:00",
            "2026-11-20T12:00:61",
            "2026-11-20T12:00:00.",
            "9999-01-01Z",
            "2026-11-20T12:00:00.1234567890",
            "2026-11-20T12:00.5",
            "+026-11-20",
            "2026-11-20ZZ",
            "today",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
