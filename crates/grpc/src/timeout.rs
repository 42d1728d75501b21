//! `grpc-timeout`: one to eight digits and a unit (`PROTOCOL-HTTP2.md`, "Timeout").

use std::time::Duration;

/// Bytes of the longest value: eight digits and the unit.
const VALUE_BYTES_MAX: usize = 9;

/// The largest number that eight digits can say.
const NUMBER_MAX: u128 = 99_999_999;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The units, finest first, with their nanoseconds.
const UNITS: [(u8, u128); 6] = [
    (b'n', 1),
    (b'u', 1_000),
    (b'm', 1_000_000),
    (b'S', NANOS_PER_SECOND),
    (b'M', 60 * NANOS_PER_SECOND),
    (b'H', 3_600 * NANOS_PER_SECOND),
];

/// Appends `timeout` as the value of `grpc-timeout`.
///
/// It takes the finest unit in which the number fits into eight digits and rounds up, so that the peer never gives up
/// early. What is longer than 99,999,999 hours (11,407 years) becomes that.
///
/// ```
/// use std::time::Duration;
/// let mut value = Vec::new();
/// fulmar_grpc::timeout::encode(Duration::from_millis(250), &mut value);
/// assert_eq!(value, b"250000u");
/// ```
pub fn encode(timeout: Duration, into: &mut Vec<u8>) {
    let nanos = timeout.as_nanos();
    let (unit, number) = UNITS
        .iter()
        .map(|&(unit, unit_nanos)| (unit, nanos.div_ceil(unit_nanos)))
        .find(|&(_, number)| number <= NUMBER_MAX)
        .unwrap_or((b'H', NUMBER_MAX));

    let mut buffer = [unit; VALUE_BYTES_MAX];
    let mut start = VALUE_BYTES_MAX - 1;
    let mut rest = number;
    loop {
        start -= 1;
        buffer[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    into.extend_from_slice(&buffer[start..]);
}

/// Reads the value of `grpc-timeout`: `None` unless it is one to eight ASCII digits and one of `H M S m u n`.
///
/// The longest, 99,999,999 hours, fits a `Duration`; adding it to an instant saturates.
pub fn decode(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    let (_, unit_nanos) = UNITS.iter().find(|(known, _)| known == unit)?;
    if digits.is_empty() || digits.len() >= VALUE_BYTES_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'));
    // Up to 3.6e20 ns, which 64 bits do not hold: whole seconds are counted as seconds.
    Some(match (unit_nanos / NANOS_PER_SECOND) as u64 {
        0 => Duration::from_nanos(number * *unit_nanos as u64),
        unit_seconds => Duration::from_secs(number * unit_seconds),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn encoded(timeout: Duration) -> String {
        let mut value = b"kept".to_vec();
        encode(timeout, &mut value);
        String::from_utf8(value.split_off(4)).expect("digits and a unit are ASCII")
    }

    #[test]
    fn the_finest_unit_that_fits_is_taken() {
        assert_eq!(encoded(Duration::ZERO), "0n");
        assert_eq!(encoded(Duration::from_nanos(1)), "1n");
        assert_eq!(encoded(Duration::from_nanos(99_999_999)), "99999999n");
        assert_eq!(encoded(Duration::from_millis(100)), "100000u");
        assert_eq!(encoded(Duration::from_secs(100)), "100000m");
        assert_eq!(encoded(Duration::from_secs(100_000)), "100000S");
        assert_eq!(encoded(Duration::from_secs(6_000_000_000)), "1666667H");
    }

    #[test]
    fn what_does_not_divide_is_rounded_up() {
        assert_eq!(encoded(Duration::from_nanos(100_000_001)), "100001u");
        assert_eq!(encoded(Duration::new(99, 999_999_001)), "100000m");
        assert_eq!(encoded(Duration::new(99_999_999, 1)), "1666667M");
    }

    #[test]
    fn what_is_too_long_is_clamped_and_never_wraps() {
        assert_eq!(encoded(Duration::from_secs(99_999_999 * 3_600)), "99999999H");
        assert_eq!(encoded(Duration::from_secs(99_999_999 * 3_600 + 1)), "99999999H");
        assert_eq!(encoded(Duration::MAX), "99999999H");
    }

    #[test]
    fn every_unit_is_read() {
        assert_eq!(decode(b"1H"), Some(Duration::from_secs(3_600)));
        assert_eq!(decode(b"2M"), Some(Duration::from_secs(120)));
        assert_eq!(decode(b"3S"), Some(Duration::from_secs(3)));
        assert_eq!(decode(b"4m"), Some(Duration::from_millis(4)));
        assert_eq!(decode(b"5u"), Some(Duration::from_micros(5)));
        assert_eq!(decode(b"6n"), Some(Duration::from_nanos(6)));
        assert_eq!(decode(b"0n"), Some(Duration::ZERO));
        assert_eq!(decode(b"00000007n"), Some(Duration::from_nanos(7)));
        assert_eq!(decode(b"99999999H"), Some(Duration::from_secs(359_999_996_400)));
    }

    /// Wire rule 6.
    #[test]
    fn malformed_timeouts_are_refused() {
        let malformed: [&[u8]; 16] = [
            b"",
            b"n",
            b"1",
            b"12345678",
            b"123456789n",
            b"+1S",
            b"-1S",
            b" 1S",
            b"1 S",
            b"1S ",
            b"1s",
            b"1h",
            b"1x",
            b"1.5S",
            b"0x1S",
            b"\xd9\xa1S",
        ];
        for value in malformed {
            assert!(decode(value).is_none(), "{value:?}");
        }
    }

    #[test]
    fn a_round_trip_never_shortens_and_stays_within_one_unit() {
        let mut random = Random::new(6);
        for _ in 0..20_000 {
            let nanos = random.next() >> random.below(64);
            let timeout = Duration::from_nanos(nanos);
            let text = encoded(timeout);
            let read = decode(text.as_bytes()).expect("what we encode can be read");
            let unit = decode(format!("1{}", &text[text.len() - 1..]).as_bytes()).expect("one unit");
            assert!(read >= timeout && read < timeout + unit, "{timeout:?} as {text}");
        }
    }
}
