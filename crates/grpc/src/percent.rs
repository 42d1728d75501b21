//! The percent-encoding of `grpc-message` (`PROTOCOL-HTTP2.md`, "Responses").

/// Appends `message` as the value of `grpc-message`: bytes outside 0x20–0x7E and `%` become `%` and two upper-case
/// hexadecimal digits.
///
/// Spaces at either end are encoded too: a field value must not begin or end with one (RFC 9113 §8.2.1), and receivers
/// strip them or refuse the whole block.
pub fn encode(message: &str, into: &mut Vec<u8>) {
    let bytes = message.as_bytes();
    let inner = inner_range(bytes);
    // The common case, text without anything to encode, is one copy.
    if inner.len() == bytes.len() && bytes.iter().all(|&byte| is_plain(byte)) {
        into.extend_from_slice(bytes);
        return;
    }
    for (at, &byte) in bytes.iter().enumerate() {
        if is_plain(byte) && inner.contains(&at) {
            into.push(byte);
        } else {
            into.extend_from_slice(&[b'%', hex_digit(byte >> 4), hex_digit(byte & 0xf)]);
        }
    }
}

/// Reads the value of `grpc-message`. It never fails: a `%` that two hexadecimal digits do not follow stands for
/// itself, and what is not UTF-8 in the end is replaced by U+FFFD.
pub fn decode(value: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [first, tail @ ..] = rest {
        match escaped_byte(rest) {
            Some((byte, behind)) => {
                bytes.push(byte);
                rest = behind;
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    match String::from_utf8(bytes) {
        Ok(message) => message,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}

/// The byte that an escape at the start of `text` stands for, and what follows the escape.
fn escaped_byte(text: &[u8]) -> Option<(u8, &[u8])> {
    let [b'%', high, low, behind @ ..] = text else {
        return None;
    };
    let high = char::from(*high).to_digit(16)?;
    let low = char::from(*low).to_digit(16)?;
    Some(((high << 4 | low) as u8, behind))
}

/// Where `bytes` lies between its leading and trailing spaces.
fn inner_range(bytes: &[u8]) -> std::ops::Range<usize> {
    let is_inner = |&byte: &u8| byte != b' ';
    let start = bytes.iter().position(is_inner).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(is_inner).map_or(start, |last| last + 1);
    start..end
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7e) && byte != b'%'
}

fn hex_digit(nibble: u8) -> u8 {
    b"0123456789ABCDEF"[usize::from(nibble & 0xf)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn encoded(message: &str) -> String {
        let mut value = Vec::new();
        encode(message, &mut value);
        String::from_utf8(value).expect("percent-encoded text is ASCII")
    }

    #[test]
    fn plain_text_is_left_alone() {
        let plain: String = (0x21..=0x7e_u8).filter(|&byte| byte != b'%').map(char::from).collect();
        assert_eq!(encoded(&plain), plain);
        assert_eq!(encoded("a b  c"), "a b  c");
        assert_eq!(encoded(""), "");
    }

    /// Wire rule 31, with the message of the interop case `special_status_message`.
    #[test]
    fn everything_else_is_encoded_in_upper_case() {
        assert_eq!(encoded("100%"), "100%25");
        assert_eq!(encoded("\0\x1f\x7f"), "%00%1F%7F");
        let special = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";
        assert_eq!(
            encoded(special),
            "%09%0Atest with whitespace%0D%0Aand Unicode BMP %E2%98%BA and non-BMP %F0%9F%98%88%09%0A"
        );
        assert_eq!(decode(encoded(special).as_bytes()), special);
    }

    #[test]
    fn spaces_at_the_ends_survive_the_wire() {
        assert_eq!(encoded("  a b "), "%20%20a b%20");
        assert_eq!(encoded("  "), "%20%20");
        assert_eq!(decode(b"%20%20a b%20"), "  a b ");
    }

    #[test]
    fn bad_escapes_stand_for_themselves() {
        for text in ["%", "%2", "a%", "%zz", "%2g", "%g2", "%%", "% 41", "%+1", "100% sure"] {
            assert_eq!(decode(text.as_bytes()), text);
        }
        assert_eq!(decode(b"%%41%"), "%A%");
        assert_eq!(decode(b"%e2%98%bA"), "☺", "lower case is read as well");
    }

    #[test]
    fn what_is_not_utf8_is_replaced() {
        assert_eq!(decode(b"a\xffb"), "a\u{fffd}b");
        assert_eq!(decode(b"a%FFb"), "a\u{fffd}b");
        assert_eq!(decode(b"%E2%98"), "\u{fffd}");
    }

    #[test]
    fn random_messages_come_back() {
        let mut random = Random::new(31);
        for _ in 0..2_000 {
            let length = random.below(24) as usize;
            let message: String = (0..length)
                .map(|_| {
                    let bits = [7, 8, 16, 21][random.below(4) as usize];
                    char::from_u32((random.next() & ((1 << bits) - 1)) as u32).unwrap_or('%')
                })
                .collect();
            let value = encoded(&message);
            assert!(value.bytes().all(|byte| (0x20..=0x7e).contains(&byte)), "{value:?}");
            assert_eq!(value.trim(), value);
            assert_eq!(decode(value.as_bytes()), message);
        }
    }

    #[test]
    fn random_bytes_never_make_the_decoder_fail() {
        let mut random = Random::new(310);
        for _ in 0..5_000 {
            let length = random.below(16) as usize;
            let value: Vec<u8> =
                (0..length).map(|_| if random.below(3) == 0 { b'%' } else { random.next() as u8 }).collect();
            let message = decode(&value);
            if !value.contains(&b'%') {
                assert_eq!(message, String::from_utf8_lossy(&value));
            }
        }
    }
}
