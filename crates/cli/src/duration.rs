//! Durations as people write and read them: `250ms`, `10s`, `2m`, `1h30m`, or a number of seconds.

use std::time::Duration;

pub(crate) use fencepost_core::ttl::Readable;
use humantime::DurationError;

const EXPECTED: &str = "write 250ms, 10s, 2m, 1h30m, or a number of seconds";
/// What a deadline in milliseconds since 1970 can take without overflowing.
const LONGEST: Duration = Duration::from_millis(u64::MAX / 4);

/// Reads a duration.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let is_bare = text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let time = match is_bare {
        // As `flock -w` and `sleep` take it.
        true => {
            let seconds = text.parse().map_err(|_| no_duration())?;
            Duration::try_from_secs_f64(seconds).map_err(|_| too_long())?
        }
        // humantime would read months, which is never meant.
        false if text.contains('M') => {
            return Err(format!("unknown unit \"M\"; {EXPECTED}"));
        }
        false => humantime::parse_duration(text).map_err(|error| match error {
            DurationError::UnknownUnit { unit, .. } if !unit.is_empty() => {
                format!("unknown unit {unit:?}; {EXPECTED}")
            }
            DurationError::NumberOverflow => too_long(),
            _ => no_duration(),
        })?,
    };
    match time <= LONGEST {
        true => Ok(time),
        false => Err(too_long()),
    }
}

fn no_duration() -> String {
    format!("not a duration; {EXPECTED}")
}

fn too_long() -> String {
    "duration out of range".into()
}

/// Without tenths, which would only flicker: `0s`, `8s`, `2m 5s`.
pub(crate) fn whole_seconds(time: Duration) -> String {
    match time.as_secs() {
        0 => "0s".into(),
        whole => Readable(Duration::from_secs(whole)).to_string(),
    }
}

/// Whole milliseconds, for programs.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read_and_written_the_same() {
        for (text, millis) in [
            ("0ms", 0),
            ("250ms", 250),
            ("10s", 10_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1h 30m", 5_400_000),
            ("2d 3h", 183_600_000),
        ] {
            let time = parse(text).unwrap();
            assert_eq!(time, Duration::from_millis(millis));
            assert_eq!(Readable(time).to_string(), text);
        }
    }

    #[test]
    fn a_bare_number_is_seconds_and_units_can_be_combined() {
        for (text, millis) in [
            ("0", 0),
            ("10", 10_000),
            ("0.5", 500),
            ("1h30m", 5_400_000),
            ("2min", 120_000),
            ("10 s", 10_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_its_reason() {
        for (text, why) in [
            ("", "not a duration"),
            ("soon", "not a duration"),
            ("-5s", "not a duration"),
            ("-5", "not a duration"),
            (".", "not a duration"),
            ("1.2.3", "not a duration"),
            ("1e9", "unknown unit"),
            ("10S", "unknown unit \"S\""),
            ("5M", "unknown unit \"M\""),
            ("5ä", "not a duration"),
            ("99999999999999999999", "duration out of range"),
            ("99999999999999999999s", "duration out of range"),
            ("18446744073709551615h", "duration out of range"),
            ("18446744073709551s", "duration out of range"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }
}
