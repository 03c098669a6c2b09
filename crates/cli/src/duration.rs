//! Durations as people write them: `250ms`, `10s`, `2m`, `1h`.

use std::fmt;
use std::time::Duration;

const EXPECTED: &str = "write a whole number and a unit: 250ms, 10s, 2m or 1h";

/// Reads a duration.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = &text[..text.len() - unit.len()];
    if digits.is_empty() {
        return Err(format!("it does not begin with a number; {EXPECTED}"));
    }
    let millis_per_unit = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "" => return Err(format!("the unit is missing; {EXPECTED}")),
        _ => return Err(format!("there is no unit {unit:?}; {EXPECTED}")),
    };
    let millis = digits.parse().ok().and_then(|number: u64| {
        let millis = number.checked_mul(millis_per_unit)?;
        // What a deadline in milliseconds since 1970 can take without overflowing.
        (millis < u64::MAX / 4).then_some(millis)
    });
    match millis {
        Some(millis) => Ok(Duration::from_millis(millis)),
        None => Err("it is longer than can be counted".into()),
    }
}

/// A duration as people read it: `250ms`, `8.2s`, `2m 5s`, `1h 3m`.
pub(crate) struct Readable(pub(crate) Duration);

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (millis, seconds) = (self.0.as_millis(), self.0.as_secs());
        match seconds {
            0 => write!(f, "{millis}ms"),
            1..60 => match millis / 100 % 10 {
                0 => write!(f, "{seconds}s"),
                tenth => write!(f, "{seconds}.{tenth}s"),
            },
            60..3600 => match seconds % 60 {
                0 => write!(f, "{}m", seconds / 60),
                rest => write!(f, "{}m {rest}s", seconds / 60),
            },
            _ => match seconds / 60 % 60 {
                0 => write!(f, "{}h", seconds / 3600),
                rest => write!(f, "{}h {rest}m", seconds / 3600),
            },
        }
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
        ] {
            let time = parse(text).unwrap();
            assert_eq!(time, Duration::from_millis(millis));
            assert_eq!(Readable(time).to_string(), text);
        }
        let odd = Readable(Duration::from_millis(3_780_400));
        assert_eq!(odd.to_string(), "1h 3m");
        assert_eq!(Readable(Duration::from_millis(8_270)).to_string(), "8.2s");
    }

    #[test]
    fn what_is_no_duration_is_refused_with_its_reason() {
        for (text, why) in [
            ("", "does not begin with a number"),
            ("soon", "does not begin with a number"),
            ("-5s", "does not begin with a number"),
            ("10", "the unit is missing"),
            ("1.5s", "no unit \".5s\""),
            ("10 s", "no unit \" s\""),
            ("10S", "no unit \"S\""),
            ("5ä", "no unit \"ä\""),
            ("99999999999999999999s", "longer than can be counted"),
            ("18446744073709551615h", "longer than can be counted"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }
}
