//! The Huffman code of RFC 7541 §5.2 and Appendix B.
//!
//! The code is canonical: codes of one length are consecutive numbers in the order of their symbols, and each length goes on
//! where the one before ended. So the lengths say everything, and all tables here are made from them at compile time.

use crate::DecodeErrorKind;

/// What a string came to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Decoded {
    /// The whole string has been appended.
    Whole,
    /// The string is longer than allowed; a part of it has been appended, and the rest has not been looked at.
    TooLong,
}

/// Appends the string that `input` encodes, unless it has more than `bytes_max` bytes.
///
/// One look-up in a table of 16 KiB takes one or two symbols, as many as there are in twelve bits.
pub(crate) fn decode(input: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Result<Decoded, DecodeErrorKind> {
    let end_max = out.len().saturating_add(bytes_max);
    // One byte more than can come, because two are written where one is meant.
    out.reserve((input.len().saturating_mul(8) / LENGTH_MIN).min(bytes_max) + 1);
    let mut bits = BitReader { rest: input, window: 0, valid: 0 };
    loop {
        bits.refill();
        let step = STEPS[(bits.window >> (64 - STEP_BITS)) as usize];
        let end = out.len() + usize::from(step.count);
        if step.count > 0 && u32::from(step.bits) <= bits.valid && end <= end_max {
            out.extend_from_slice(&step.symbols);
            out.truncate(end);
            bits.skip(step.bits.into());
            continue;
        }
        let (symbol, length) = first_code(bits.window);
        if length > bits.valid {
            return bits.check_padding();
        }
        if symbol == EOS {
            return Err(DecodeErrorKind::HuffmanEos);
        }
        if out.len() == end_max {
            return Ok(Decoded::TooLong);
        }
        out.push(symbol as u8);
        bits.skip(length);
    }
}

/// Length in bytes of `string` once encoded, padding included.
pub(crate) fn encoded_len(string: &[u8]) -> usize {
    let bits: usize = string.iter().map(|&octet| usize::from(LENGTHS[usize::from(octet)])).sum();
    bits.div_ceil(8)
}

/// Appends `string` encoded.
pub(crate) fn encode(string: &[u8], out: &mut Vec<u8>) {
    let mut window = 0u64; // the lower `valid` bits wait to be written, fewer than 32 of them between symbols
    let mut valid = 0;
    for &octet in string {
        let length = u32::from(LENGTHS[usize::from(octet)]);
        window = window << length | u64::from(CODES[usize::from(octet)]);
        valid += length;
        if valid >= 32 {
            valid -= 32;
            out.extend_from_slice(&((window >> valid) as u32).to_be_bytes());
        }
    }
    while valid >= 8 {
        valid -= 8;
        out.push((window >> valid) as u8);
    }
    if valid > 0 {
        // Padded with the first bits of EOS, which are ones.
        out.push((window << (8 - valid)) as u8 | 0xff >> valid);
    }
}

struct BitReader<'a> {
    rest: &'a [u8],
    /// The next bits, the first one at the top; zeros behind the valid ones.
    window: u64,
    /// Number of bits in the window, at most 63.
    valid: u32,
}

impl BitReader<'_> {
    /// Makes sure of 32 bits, more than the longest code, or of all that are left.
    fn refill(&mut self) {
        if self.valid >= 32 {
            return;
        }
        if let Some((chunk, rest)) = self.rest.split_first_chunk::<4>() {
            self.window |= u64::from(u32::from_be_bytes(*chunk)) << (32 - self.valid);
            self.valid += 32;
            self.rest = rest;
            return;
        }
        while let Some((&octet, rest)) = self.rest.split_first() {
            self.window |= u64::from(octet) << (56 - self.valid);
            self.valid += 8;
            self.rest = rest;
        }
    }

    fn skip(&mut self, bits: u32) {
        self.window <<= bits;
        self.valid -= bits;
    }

    /// The bits left are no whole symbol: they must be the padding, fewer than eight bits and all ones.
    fn check_padding(&self) -> Result<Decoded, DecodeErrorKind> {
        let padding = self.window.leading_ones();
        if self.valid < 8 && padding == self.valid {
            Ok(Decoded::Whole)
        } else {
            Err(DecodeErrorKind::HuffmanPaddingInvalid)
        }
    }
}

/// The symbol and length of the code at the top of `window`, for what [`STEPS`] does not settle: long codes and the end.
fn first_code(window: u64) -> (u16, u32) {
    let code = (window >> (64 - LENGTH_MAX)) as u32;
    let mut length = LENGTH_MIN;
    // The codes of the greatest length reach to the end, so the loop ends there at the latest.
    while length < LENGTH_MAX as usize && code >= CODE_ENDS[length] {
        length += 1;
    }
    let first = CODE_ENDS[length - 1];
    let rank = usize::from(RANKS[length]) + ((code - first) >> (LENGTH_MAX as usize - length)) as usize;
    (SYMBOLS[rank], length as u32)
}

/// What the next [`STEP_BITS`] bits begin with: as many whole codes as fit, at most two.
#[derive(Copy, Clone)]
struct Step {
    symbols: [u8; 2],
    /// Number of symbols; none where the first code is longer.
    count: u8,
    /// Bits of their codes.
    bits: u8,
}

/// Number of symbols: the octets and EOS.
const SYMBOL_COUNT: usize = 257;
const EOS: u16 = 256;
/// Bits of the shortest code.
const LENGTH_MIN: usize = 5;
/// Bits of the longest code.
const LENGTH_MAX: u32 = 30;
/// Bits that one look-up in [`STEPS`] sees: two of the more frequent symbols, which have five or six.
const STEP_BITS: u32 = 12;

/// Bits of the code of each symbol (RFC 7541 Appendix B).
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOL_COUNT] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, //   0
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, //  16
     6, 10, 10, 12, 13,  6,  8, 11, 10, 10,  8, 11,  8,  6,  6,  6, //  32 space to '/'
     5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8, 15,  6, 12, 10, //  48 '0' to '?'
    13,  6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7, //  64 '@' to 'O'
     7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8, 13, 19, 13, 14,  6, //  80 'P' to '_'
    15,  5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5, //  96 '`' to 'o'
     6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7, 15, 11, 14, 13, 28, // 112 'p' to '~'
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, // 128
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, // 144
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, // 160
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, // 176
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, // 192
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, // 208
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, // 224
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, // 240
    30,                                                             // 256 EOS
];

/// The symbols in the order of their codes: by length, then by value.
static SYMBOLS: [u16; SYMBOL_COUNT] = symbols();
/// For each length, how many symbols have shorter codes.
static RANKS: [u16; LENGTH_MAX as usize + 1] = ranks();
/// For each length, the end of its codes (exclusive), moved up to [`LENGTH_MAX`] bits.
static CODE_ENDS: [u32; LENGTH_MAX as usize + 1] = code_ends();
/// The code of each symbol, in the lower bits.
static CODES: [u32; SYMBOL_COUNT] = codes();
/// What each value of the next [`STEP_BITS`] bits begins with.
static STEPS: [Step; 1 << STEP_BITS] = steps();

const fn symbols() -> [u16; SYMBOL_COUNT] {
    let mut next = ranks();
    let mut symbols = [0; SYMBOL_COUNT];
    let mut symbol = 0;
    while symbol < SYMBOL_COUNT {
        let length = LENGTHS[symbol] as usize;
        symbols[next[length] as usize] = symbol as u16;
        next[length] += 1;
        symbol += 1;
    }
    symbols
}

const fn ranks() -> [u16; LENGTH_MAX as usize + 1] {
    let mut ranks = [0; LENGTH_MAX as usize + 1];
    let mut symbol = 0;
    while symbol < SYMBOL_COUNT {
        let mut longer = LENGTHS[symbol] as usize + 1;
        while longer <= LENGTH_MAX as usize {
            ranks[longer] += 1;
            longer += 1;
        }
        symbol += 1;
    }
    ranks
}

const fn code_ends() -> [u32; LENGTH_MAX as usize + 1] {
    let mut ends = [0; LENGTH_MAX as usize + 1];
    let ranks = ranks();
    let mut length = 1;
    while length <= LENGTH_MAX as usize {
        let rank_end = if length < LENGTH_MAX as usize { ranks[length + 1] as usize } else { SYMBOL_COUNT };
        let count = (rank_end - ranks[length] as usize) as u32;
        ends[length] = ends[length - 1] + (count << (LENGTH_MAX as usize - length));
        length += 1;
    }
    // Kraft: a complete code leaves no pattern of bits without a symbol.
    assert!(ends[LENGTH_MAX as usize] == 1 << LENGTH_MAX);
    ends
}

const fn codes() -> [u32; SYMBOL_COUNT] {
    let (symbols, ranks, ends) = (symbols(), ranks(), code_ends());
    let mut codes = [0; SYMBOL_COUNT];
    let mut rank = 0;
    while rank < SYMBOL_COUNT {
        let symbol = symbols[rank] as usize;
        let length = LENGTHS[symbol] as usize;
        let first = ends[length - 1] >> (LENGTH_MAX as usize - length);
        codes[symbol] = first + (rank - ranks[length] as usize) as u32;
        rank += 1;
    }
    codes
}

const fn steps() -> [Step; 1 << STEP_BITS] {
    let firsts = first_symbols();
    let mut steps = [Step { symbols: [0; 2], count: 0, bits: 0 }; 1 << STEP_BITS];
    let mut pattern = 0;
    while pattern < 1 << STEP_BITS {
        let first = firsts[pattern];
        if first != NONE {
            let length = LENGTHS[first as usize];
            // The bits behind the first code, moved up, with zeros behind them.
            let second = firsts[pattern << length & ((1 << STEP_BITS) - 1)];
            let step = &mut steps[pattern];
            step.symbols[0] = first as u8;
            (step.count, step.bits) = (1, length);
            if second != NONE && length as u32 + LENGTHS[second as usize] as u32 <= STEP_BITS {
                step.symbols[1] = second as u8;
                (step.count, step.bits) = (2, length + LENGTHS[second as usize]);
            }
        }
        pattern += 1;
    }
    steps
}

/// No symbol: the code is longer than [`STEP_BITS`] bits.
const NONE: u16 = u16::MAX;

/// The symbol that each value of the next [`STEP_BITS`] bits begins with, or [`NONE`].
const fn first_symbols() -> [u16; 1 << STEP_BITS] {
    let codes = codes();
    let mut firsts = [NONE; 1 << STEP_BITS];
    let mut symbol = 0;
    while symbol < SYMBOL_COUNT {
        let length = LENGTHS[symbol] as u32;
        if length <= STEP_BITS {
            let spare_bits = STEP_BITS - length;
            let first = (codes[symbol] as usize) << spare_bits;
            let mut behind = 0;
            while behind < 1 << spare_bits {
                firsts[first + behind] = symbol as u16;
                behind += 1;
            }
        }
        symbol += 1;
    }
    firsts
}

#[cfg(test)]
mod tests;
