//! Base64 with the standard alphabet (RFC 4648 §4), as `-bin` metadata uses it: written without padding, read with or
//! without.

use std::fmt;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Marks a byte that is not in the alphabet.
const INVALID: u8 = 0xff;

/// The six bits that each byte stands for, or [`INVALID`].
const SEXTETS: [u8; 256] = {
    let mut sextets = [INVALID; 256];
    let mut index = 0;
    while index < ALPHABET.len() {
        sextets[ALPHABET[index] as usize] = index as u8;
        index += 1;
    }
    sextets
};

/// Characters that `bytes` bytes become, without padding.
pub const fn encoded_len(bytes: usize) -> usize {
    bytes / 3 * 4 + [0, 2, 3][bytes % 3]
}

/// Appends `bytes` in base64 without padding.
pub fn encode(bytes: &[u8], into: &mut Vec<u8>) {
    into.reserve(encoded_len(bytes.len()));
    let mut triples = bytes.chunks_exact(3);
    for triple in &mut triples {
        let bits = u32::from_be_bytes([0, triple[0], triple[1], triple[2]]);
        into.extend_from_slice(&[
            character(bits >> 18),
            character(bits >> 12),
            character(bits >> 6),
            character(bits),
        ]);
    }
    match *triples.remainder() {
        [first] => {
            let bits = u32::from(first) << 4;
            into.extend_from_slice(&[character(bits >> 6), character(bits)]);
        }
        [first, second] => {
            let bits = u32::from(u16::from_be_bytes([first, second])) << 2;
            into.extend_from_slice(&[character(bits >> 12), character(bits >> 6), character(bits)]);
        }
        _ => {}
    }
}

/// Appends the bytes that `text` stands for; on an error `into` is as it was.
///
/// Padding may be there, complete, or not at all. The bits of the last character that belong to no byte are ignored,
/// as grpc-go does: some encoders leave them set, and no byte depends on them.
///
/// # Errors
///
/// A byte outside the alphabet (also white space and the URL alphabet's `-` and `_`), a length that no bytes have, or
/// padding that does not complete a group of four.
pub fn decode(text: &[u8], into: &mut Vec<u8>) -> Result<(), Base64Error> {
    let digits = without_padding(text)?;
    let start = into.len();
    into.reserve(digits.len() / 4 * 3 + 2);
    let result = decode_digits(digits, into);
    if result.is_err() {
        into.truncate(start);
    }
    result
}

/// Whether [`decode`] would succeed, found without memory.
///
/// # Errors
///
/// Those of [`decode`].
pub fn validate(text: &[u8]) -> Result<(), Base64Error> {
    check_characters(without_padding(text)?)
}

/// `text` up to its padding.
///
/// # Errors
///
/// A length that no bytes have, or padding that does not complete a group of four.
pub fn without_padding(text: &[u8]) -> Result<&[u8], Base64Error> {
    let digits = match text {
        [digits @ .., b'=', b'='] | [digits @ .., b'='] => digits,
        digits => digits,
    };
    if digits.len() % 4 == 1 || (digits.len() != text.len() && !text.len().is_multiple_of(4)) {
        return Err(Base64Error::Length(text.len()));
    }
    Ok(digits)
}

fn decode_digits(digits: &[u8], into: &mut Vec<u8>) -> Result<(), Base64Error> {
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        let mut seen = 0;
        for (index, &byte) in group.iter().enumerate() {
            let sextet = SEXTETS[usize::from(byte)];
            seen |= sextet;
            bits |= u32::from(sextet & 0x3f) << (18 - 6 * index);
        }
        if seen & 0xc0 != 0 {
            return check_characters(digits);
        }
        let bytes = bits.to_be_bytes();
        into.extend_from_slice(&bytes[1..group.len()]);
    }
    Ok(())
}

fn check_characters(digits: &[u8]) -> Result<(), Base64Error> {
    match digits.iter().position(|&byte| SEXTETS[usize::from(byte)] == INVALID) {
        Some(at) => Err(Base64Error::Character { byte: digits[at], at }),
        None => Ok(()),
    }
}

fn character(sextet: u32) -> u8 {
    ALPHABET[(sextet & 0x3f) as usize]
}

/// Why a text is not base64.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Base64Error {
    /// A byte outside the alphabet.
    Character {
        /// The byte.
        byte: u8,
        /// Its place in the text, from 0.
        at: usize,
    },
    /// A text of so many characters stands for no bytes, or its padding does not complete a group of four.
    Length(usize),
}

impl fmt::Display for Base64Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Character { byte, at } => {
                write!(f, "not base64: byte {byte:#04x} at {at} is not in the standard alphabet")
            }
            Self::Length(length) => {
                write!(f, "not base64: {length} characters stand for no bytes or are padded wrongly")
            }
        }
    }
}

impl std::error::Error for Base64Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn encoded(bytes: &[u8]) -> String {
        let mut text = Vec::new();
        encode(bytes, &mut text);
        String::from_utf8(text).expect("base64 is ASCII")
    }

    fn decoded(text: &[u8]) -> Result<Vec<u8>, Base64Error> {
        let mut bytes = b"kept".to_vec();
        let result = decode(text, &mut bytes);
        assert_eq!(result, validate(text), "decode and validate agree on {text:?}");
        assert_eq!(&bytes[..4], b"kept");
        if result.is_err() {
            assert_eq!(bytes.len(), 4, "nothing is left behind by an error");
        }
        result.map(|()| bytes.split_off(4))
    }

    /// The vectors of RFC 4648 §10.
    const VECTORS: [(&str, &str); 7] = [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foob", "Zm9vYg=="),
        ("fooba", "Zm9vYmE="),
        ("foobar", "Zm9vYmFy"),
    ];

    #[test]
    fn the_vectors_of_the_rfc_hold_with_and_without_padding() {
        for (plain, padded) in VECTORS {
            let unpadded = padded.trim_end_matches('=');
            assert_eq!(encoded(plain.as_bytes()), unpadded);
            assert_eq!(encoded_len(plain.len()), unpadded.len());
            assert_eq!(decoded(padded.as_bytes()).as_deref(), Ok(plain.as_bytes()));
            assert_eq!(decoded(unpadded.as_bytes()).as_deref(), Ok(plain.as_bytes()));
        }
    }

    #[test]
    fn every_character_of_the_alphabet_comes_back() {
        let bytes = decoded(ALPHABET).expect("the alphabet is base64");
        assert_eq!(encoded(&bytes).as_bytes(), ALPHABET);
        assert_eq!(encoded(&[0xfb, 0xff, 0xbf]), "+/+/");
    }

    #[test]
    fn characters_outside_the_alphabet_are_refused_wherever_they_stand() {
        for bad in [b'-', b'_', b' ', b'\n', b',', b'=', b'%', 0, 0x7f, 0x80, 0xff] {
            for at in 0..8 {
                let mut text = *b"QUJDREVG";
                text[at] = bad;
                if bad == b'=' && at == 7 {
                    continue;
                }
                assert_eq!(decoded(&text), Err(Base64Error::Character { byte: bad, at }), "{text:?}");
            }
        }
    }

    #[test]
    fn lengths_and_padding_that_no_bytes_have_are_refused() {
        let wrong: [&[u8]; 10] =
            [b"A", b"AAAAA", b"=", b"==", b"A=", b"AA=", b"A==", b"AAA==", b"AAAA=", b"AAAA=="];
        for text in wrong {
            assert_eq!(decoded(text), Err(Base64Error::Length(text.len())), "{text:?}");
        }
        assert!(decoded(b"A===").is_err());
        assert!(decoded(b"====").is_err());
        assert!(decoded(b"AA==AA==").is_err());
    }

    #[test]
    fn spare_bits_of_the_last_character_are_ignored() {
        assert_eq!(decoded(b"Zh").as_deref(), Ok(b"f".as_slice()));
        assert_eq!(decoded(b"Zm+").as_deref(), Ok(b"fo".as_slice()));
    }

    #[test]
    fn random_bytes_come_back() {
        let mut random = Random::new(11);
        for length in (0..200).chain([1_000, 4_097]) {
            let bytes = random.bytes(length);
            let text = encoded(&bytes);
            assert_eq!(text.len(), encoded_len(length));
            assert_eq!(decoded(text.as_bytes()).as_deref(), Ok(bytes.as_slice()));
            let padded = format!("{text}{}", "=".repeat(text.len().next_multiple_of(4) - text.len()));
            assert_eq!(decoded(padded.as_bytes()).as_deref(), Ok(bytes.as_slice()));
        }
    }
}
