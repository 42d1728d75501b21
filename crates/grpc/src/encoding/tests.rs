//! What must hold of every encoding that comes along, and of contexts.

use std::sync::Arc;

use fulmar_base::Pool;

use super::*;

/// A message with text, zeros and noise.
fn message() -> Vec<u8> {
    let mut message = b"a fulmar glides for hours, a fulmar glides for days. ".repeat(20);
    message.extend([0; 3_000]);
    let mut state = 1_u32;
    message.extend(
        std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(300),
    );
    message
}

/// The encodings that are built.
fn all() -> Vec<Arc<dyn Encoding>> {
    vec![
        #[cfg(feature = "gzip")]
        Arc::new(Gzip::default()),
        #[cfg(feature = "deflate")]
        Arc::new(Deflate::default()),
        #[cfg(feature = "zstd")]
        Arc::new(Zstd::default()),
    ]
}

fn compressed(encoding: &Arc<dyn Encoding>, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encoding.compressor().compress(message, &mut out).expect("it compresses");
    out
}

fn unfolded(
    context: &mut Context,
    pool: &mut Pool,
    bytes: &[u8],
    bytes_max: usize,
) -> Result<Vec<u8>, EncodingError> {
    let block = context.unfold(pool, bytes, bytes_max)?;
    let message = block.to_vec();
    pool.give(block);
    Ok(message)
}

#[test]
fn one_context_serves_messages_of_all_sizes_one_after_the_other() {
    for encoding in all() {
        let (mut pool, mut contexts) = (Pool::new(), Contexts::default());
        for message in [message(), vec![], vec![7], vec![0; 2_000_000], message(), b"short".to_vec()] {
            let mut context = contexts.take(&encoding);
            let (mut framed, choice) = (vec![9; 3], Choice { encoding: id(), always: true });
            let encode = |buffer: &mut Vec<u8>| buffer.extend_from_slice(&message);
            let length =
                context.frame(choice, Compress::Default, message.len(), encode, &mut framed).expect("framed");
            assert_eq!((framed.len(), framed[3]), (3 + length, 1), "what was there stays");
            let unfolded = unfolded(&mut context, &mut pool, &framed[8..], message.len());
            assert!(unfolded == Ok(message), "{}", encoding.name());
            contexts.give(context);
            assert_eq!(pool.outstanding(), 0);
        }
        assert_eq!(contexts.kept.len(), 1);
    }
}

fn id() -> EncodingId {
    let mut encodings = Encodings::default();
    encodings.accept(Arc::new(Broken)).expect("a name");
    encodings.accepted(b"broken").expect("it is accepted")
}

/// Wire rule 20, R49: exactly the limit passes, a byte more does not.
#[test]
fn a_message_at_the_limit_passes_and_one_above_it_is_too_long() {
    for encoding in all() {
        let (mut pool, mut context) = (Pool::new(), Contexts::default().take(&encoding));
        for length in [0, 1, 511, 512, 513, 100_000, 2_000_000] {
            let bytes = compressed(&encoding, &vec![3; length]);
            assert_eq!(unfolded(&mut context, &mut pool, &bytes, length).map(|all| all.len()), Ok(length));
            if length > 0 {
                let above = unfolded(&mut context, &mut pool, &bytes, length - 1);
                assert_eq!(above, Err(EncodingError::TooLong), "{} {length}", encoding.name());
            }
        }
        assert_eq!(pool.outstanding(), 0, "a message that failed gives its memory back");
    }
}

/// Wire rule 18.
#[test]
fn a_message_that_is_cut_anywhere_is_corrupt() {
    for encoding in all() {
        let (mut pool, mut context) = (Pool::new(), Contexts::default().take(&encoding));
        let (message, bytes) = (message(), compressed(&encoding, &message()));
        for end in 1..bytes.len() {
            let cut = unfolded(&mut context, &mut pool, &bytes[..end], usize::MAX);
            assert!(matches!(cut, Err(EncodingError::Corrupt(_))), "{} at {end}: {cut:?}", encoding.name());
        }
        assert_eq!(unfolded(&mut context, &mut pool, &bytes, message.len()), Ok(message), "it goes on");
        assert_eq!(pool.outstanding(), 0);
    }
}

/// Wire rule 18. What has a checksum gives no wrong message, and nothing panics or passes the limit.
#[test]
fn a_message_with_a_wrong_byte_anywhere_harms_nothing() {
    for encoding in all() {
        let (mut pool, mut context) = (Pool::new(), Contexts::default().take(&encoding));
        let (message, bytes) = (message(), compressed(&encoding, &message()));
        let has_checksum = encoding.name() != "zstd";
        for position in 0..bytes.len() {
            for flipped in [0x01, 0x80, 0xff] {
                let mut wrong = bytes.clone();
                wrong[position] ^= flipped;
                let result = unfolded(&mut context, &mut pool, &wrong, 2 * message.len());
                if let Ok(unfolded) = result {
                    assert!(!has_checksum || unfolded == message, "{} at {position}", encoding.name());
                }
            }
        }
        assert_eq!(unfolded(&mut context, &mut pool, &bytes, message.len()), Ok(message), "it goes on");
        assert_eq!(pool.outstanding(), 0);
    }
}

#[test]
fn nothing_may_follow_but_what_the_format_lets_follow() {
    for encoding in all() {
        let (mut pool, mut context) = (Pool::new(), Contexts::default().take(&encoding));
        let one = compressed(&encoding, b"one");
        let two = [&one[..], &compressed(&encoding, b"two")].concat();
        let result = unfolded(&mut context, &mut pool, &two, 6);
        if encoding.name() == "deflate" {
            assert!(matches!(result, Err(EncodingError::Corrupt(_))), "{result:?}");
        } else {
            assert_eq!(result, Ok(b"onetwo".to_vec()), "members (RFC 1952 §2.2), frames (RFC 8878 §3)");
            let above = unfolded(&mut context, &mut pool, &two, 5);
            assert_eq!(above, Err(EncodingError::TooLong), "the limit is for all of them");
        }
        for garbage in [&b"\0"[..], b"garbage behind it", &one[..one.len() - 1]] {
            let result = unfolded(&mut context, &mut pool, &[&one, garbage].concat(), 100);
            assert!(matches!(result, Err(EncodingError::Corrupt(_))), "{}: {result:?}", encoding.name());
        }
    }
}

#[test]
fn nothing_compressed_to_nothing_is_an_empty_message() {
    for encoding in all() {
        let mut context = Contexts::default().take(&encoding);
        assert_eq!(unfolded(&mut context, &mut Pool::new(), b"", 0), Ok(vec![]));
    }
}

#[cfg(feature = "gzip")]
#[test]
fn a_gzip_header_may_have_every_field_and_its_checksum_counts() {
    let encoding: Arc<dyn Encoding> = Arc::new(Gzip::default());
    let (mut pool, mut context) = (Pool::new(), Contexts::default().take(&encoding));
    let plain = compressed(&encoding, b"message");
    let mut header = plain[..10].to_vec();
    header[3] = 2 | 4 | 8 | 16;
    header.extend_from_slice(&[3, 0, 1, 2, 3]);
    header.extend_from_slice(b"name\0comment\0");
    let mut crc = flate2::Crc::new();
    crc.update(&header);
    let sum = (crc.sum() as u16).to_le_bytes();
    let whole = |sum: [u8; 2]| [&header[..], &sum, &plain[10..]].concat();
    assert_eq!(unfolded(&mut context, &mut pool, &whole(sum), 7), Ok(b"message".to_vec()));
    let wrong = unfolded(&mut context, &mut pool, &whole([sum[0] ^ 1, sum[1]]), 7);
    assert!(matches!(wrong, Err(EncodingError::Corrupt(_))), "{wrong:?}");
}

/// What others make is read, and what is made here is read by others.
#[cfg(feature = "gzip")]
#[test]
fn gzip_agrees_with_a_reader_and_a_writer_that_are_not_ours() {
    use std::io::{Read, Write};

    let encoding: Arc<dyn Encoding> = Arc::new(Gzip::default());
    let mut context = Contexts::default().take(&encoding);
    let mut theirs = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    theirs.write_all(&message()).expect("it writes to memory");
    let theirs = theirs.finish().expect("it writes to memory");
    assert_eq!(unfolded(&mut context, &mut Pool::new(), &theirs, message().len()), Ok(message()));

    let ours = compressed(&encoding, &message());
    let mut read = Vec::new();
    flate2::read::GzDecoder::new(&ours[..]).read_to_end(&mut read).expect("it is gzip");
    assert_eq!(read, message());
}

#[test]
fn a_message_far_below_the_limit_is_not_held_in_memory_for_one_at_the_limit() {
    const LIMIT: usize = 64 * 1024 * 1024;
    for encoding in all() {
        let (mut pool, mut context) = (Pool::new(), Contexts::default().take(&encoding));
        for length in [1, 100_000, 250_000, 270_000, 300_000, 1_000_000, 3_000_000, 5_000_000] {
            let bytes = compressed(&encoding, &vec![1; length]);
            let block = context.unfold(&mut pool, &bytes, LIMIT).expect("it is within the limit");
            assert!(*block == vec![1; length]);
            let memory = block.memory_bytes();
            assert!(memory <= 4 * Pool::block_bytes(length) + 4_096, "{memory} bytes for {length}");
            pool.give(block);
        }
        assert_eq!(pool.outstanding(), 0);
    }
}

/// R49: a bomb costs no more than the limit. The frames say that they need a window of 2 MiB.
#[test]
fn a_bomb_is_given_up_at_the_limit() {
    const LIMIT: usize = 4 * 1024 * 1024;
    for encoding in all() {
        let (mut pool, mut context) = (Pool::new(), Contexts::default().take(&encoding));
        let bomb = compressed(&encoding, &vec![0; 2 * LIMIT]);
        assert!(bomb.len() < 9_000);
        assert_eq!(unfolded(&mut context, &mut pool, &bomb, LIMIT), Err(EncodingError::TooLong));
        assert_eq!(pool.outstanding(), 0);
        assert!(pool.retained_bytes() <= LIMIT);
    }
}

#[cfg(feature = "zstd")]
#[test]
fn a_zstd_frame_that_asks_for_a_large_window_is_refused() {
    // Magic number; a header without size; a window of 2^41 bytes; an empty last block (RFC 8878 §3.1.1).
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0, 31 << 3, 1, 0, 0];
    let mut context = Contexts::default().take(&(Arc::new(Zstd::default()) as Arc<dyn Encoding>));
    let result = unfolded(&mut context, &mut Pool::new(), &frame, usize::MAX);
    assert!(matches!(result, Err(EncodingError::Corrupt(_))), "{result:?}");
}

/// An encoding that does everything wrong.
struct Broken;

impl Encoding for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn compressor(&self) -> Box<dyn Compressor> {
        Box::new(Self)
    }

    fn decompressor(&self) -> Box<dyn Decompressor> {
        Box::new(Self)
    }
}

impl Compressor for Broken {
    fn compress(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), EncodingError> {
        out.extend_from_slice(message);
        Err(EncodingError::Failed("it is broken".into()))
    }
}

impl Decompressor for Broken {
    fn decompress(&mut self, message: &[u8], out: &mut Unfolded<'_>) -> Result<(), EncodingError> {
        match message {
            b"panic" => panic!("it has had enough"),
            b"claim" => {
                out.room()?;
                out.fill(usize::MAX);
            }
            b"ignore" => while out.extend_from_slice(b"0123456789").is_ok() {},
            _ => loop {
                let room = out.room()?.len();
                out.fill(room);
            },
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        usize::MAX
    }
}

#[test]
fn a_decompressor_that_misbehaves_gets_no_more_than_the_limit() {
    let broken: Arc<dyn Encoding> = Arc::new(Broken);
    let (mut pool, mut contexts) = (Pool::new(), Contexts::default());
    let mut context = contexts.take(&broken);
    let panicked = unfolded(&mut context, &mut pool, b"panic", 100);
    assert_eq!(panicked, Err(EncodingError::Failed("it panicked: it has had enough".into())));
    assert_eq!(unfolded(&mut context, &mut pool, b"claim", 100), Err(EncodingError::TooLong));
    assert_eq!(unfolded(&mut context, &mut pool, b"ignore", 105).map(|all| all.len()), Ok(100));
    assert_eq!(unfolded(&mut context, &mut pool, b"endless", 1_000_000), Err(EncodingError::TooLong));
    assert_eq!(pool.outstanding(), 0);
    contexts.give(context);
    assert!(contexts.take(&broken).decompressor.is_none(), "one that holds much is not kept");
}

#[test]
fn an_encoding_that_panics_instead_of_making_a_decompressor_fails_the_message() {
    struct Useless;
    impl Encoding for Useless {
        fn name(&self) -> &str {
            "useless"
        }
        fn compressor(&self) -> Box<dyn Compressor> {
            Box::new(Broken)
        }
        fn decompressor(&self) -> Box<dyn Decompressor> {
            panic!("out of order")
        }
    }
    let useless: Arc<dyn Encoding> = Arc::new(Useless);
    let (mut pool, mut context) = (Pool::new(), Contexts::default().take(&useless));
    let failed = unfolded(&mut context, &mut pool, b"message", 100);
    assert_eq!(failed, Err(EncodingError::Failed("it panicked: out of order".into())));
}

#[test]
fn a_message_that_cannot_be_compressed_leaves_nothing_behind() {
    let mut context = Contexts::default().take(&(Arc::new(Broken) as Arc<dyn Encoding>));
    let (mut out, choice) = (b"before".to_vec(), Choice { encoding: id(), always: false });
    let encode = |buffer: &mut Vec<u8>| buffer.resize(200, 1);
    let failed = context.frame(choice, Compress::Default, 200, encode, &mut out);
    assert_eq!(failed, Err(FrameError::Encoding(EncodingError::Failed("it is broken".into()))));
    let misencoded = context.frame(choice, Compress::Yes, 201, encode, &mut out);
    assert_eq!(misencoded, Err(FrameError::Misencoded { announced: 201, encoded: 200 }));
    assert_eq!(out, b"before");
    assert_eq!(context.frame(choice, Compress::No, 200, encode, &mut out), Ok(205));
    assert_eq!(out[6..12], [0, 0, 0, 0, 200, 1]);
}

#[test]
fn the_context_that_was_used_longest_ago_makes_room() {
    let encodings: Vec<Arc<dyn Encoding>> = (0..40).map(|_| Arc::new(Broken) as Arc<dyn Encoding>).collect();
    let mut contexts = Contexts::default();
    for encoding in &encodings {
        let context = contexts.take(encoding);
        contexts.give(context);
        let first = contexts.take(&encodings[0]);
        contexts.give(first);
    }
    assert_eq!(contexts.kept.len(), 32);
    assert!(contexts.kept.iter().any(|context| Arc::ptr_eq(&context.encoding, &encodings[0])));
}

#[test]
fn a_choice_is_made_among_what_both_ends_know() {
    struct Named(&'static str);
    impl Encoding for Named {
        fn name(&self) -> &str {
            self.0
        }
        fn compressor(&self) -> Box<dyn Compressor> {
            Box::new(Broken)
        }
        fn decompressor(&self) -> Box<dyn Decompressor> {
            Box::new(Broken)
        }
    }
    let mut encodings = Encodings::default();
    encodings.accept(Arc::new(Named("in"))).expect("a name");
    encodings.send(Arc::new(Named("out"))).expect("a name");
    encodings.send(Arc::new(Named("both"))).expect("a name");
    encodings.accept(Arc::new(Named("both"))).expect("a name");
    assert_eq!(encodings.accept_value(), "in,both,identity");
    assert!(encodings.accepted(b"out").is_none() && encodings.accepted(b"both").is_some());

    let peer = |list: &[u8]| {
        let mut peer = PeerAccepts::default();
        peer.add(list, &encodings);
        peer
    };
    let chosen = |compression: Compression, list: &[u8]| {
        let choice = encodings.choose(&compression, peer(list)).expect("a known encoding")?;
        Some((encodings.name(choice.encoding)?.to_string(), choice.always))
    };
    let is = |name: &str, always| Some((name.to_owned(), always));
    assert_eq!(chosen(Compression::Default, b"in, both ,out"), is("out", false));
    assert_eq!(chosen(Compression::Default, b"identity,both"), is("both", false));
    assert_eq!(chosen(Compression::Default, b"in"), None);
    assert_eq!(chosen(Compression::On, b"in"), is("in", true));
    assert_eq!(chosen(Compression::On, b"gzip,identity"), None);
    assert_eq!(chosen(Compression::encoding("both"), b"in,out"), None);
    assert_eq!(chosen(Compression::encoding("both"), b"both"), is("both", true));
    assert_eq!(chosen(Compression::encoding("identity"), b"both"), None);
    assert_eq!(chosen(Compression::Off, b"both"), None);
    let unknown = encodings.choose(&Compression::encoding("snappy"), PeerAccepts::ANYTHING);
    assert_eq!(unknown, Err(UnknownEncoding(Some("snappy".into()))));
    let none = Encodings::default().choose(&Compression::On, PeerAccepts::ANYTHING);
    assert_eq!(none, Err(UnknownEncoding(None)));
}

#[test]
fn a_seventeenth_encoding_is_refused_and_a_known_one_is_not() {
    struct Numbered(String);
    impl Encoding for Numbered {
        fn name(&self) -> &str {
            &self.0
        }
        fn compressor(&self) -> Box<dyn Compressor> {
            Box::new(Broken)
        }
        fn decompressor(&self) -> Box<dyn Decompressor> {
            Box::new(Broken)
        }
    }
    let numbered = |number| Arc::new(Numbered(format!("number-{number}")));
    let mut encodings = Encodings::default();
    for number in 0..16 {
        encodings.accept(numbered(number)).expect("there is room");
    }
    assert_eq!(encodings.send(numbered(16)), Err(RegisterError::TooMany("number-16".into())));
    assert_eq!(encodings.send(numbered(7)), Ok(()));
}

#[test]
fn memory_that_was_lent_and_not_filled_is_lent_again_and_not_zeroed_again() {
    let mut pool = Pool::new();
    let mut out = Unfolded::new(&mut pool, 1 << 20);
    out.extend_from_slice(&[1; 10_000]).unwrap();
    let room = out.room().unwrap();
    assert!(room.len() >= 10_000 && room.iter().all(|&byte| byte == 0));
    room.fill(7);
    for filled in [0, 0, 3, 0, 500] {
        let room = out.room().unwrap();
        assert!(room[..9_000].iter().all(|&byte| byte == 7), "it was touched");
        out.fill(filled);
    }
    assert_eq!(out.len(), 10_503);
    out.extend_from_slice(&[2; 5]).unwrap();
    let block = out.finish().unwrap();
    assert_eq!((&block[..10_000], &block[10_000..10_503]), (&[1; 10_000][..], &[7; 503][..]));
    assert_eq!(&block[10_503..], [2; 5]);
}

#[cfg(feature = "gzip")]
#[test]
fn a_message_of_many_gzip_members_needs_bytes_for_them() {
    let gzip: Arc<dyn Encoding> = Arc::new(Gzip::default());
    let (mut pool, mut context) = (Pool::new(), Contexts::default().take(&gzip));
    let mut of_members = |member: &[u8], count: usize| {
        let bytes = compressed(&gzip, member).repeat(count);
        unfolded(&mut context, &mut pool, &bytes, 4 << 20).map(|message| message.len())
    };
    assert_eq!(of_members(&[], 64), Ok(0));
    assert_eq!(
        of_members(&[], 66),
        Err(EncodingError::Corrupt("it is cut into too many small gzip members".into()))
    );
    assert!(of_members(&[], 200_000).is_err());
    assert!(of_members(&[7], 10_000).is_err());
    // What is cut on purpose is not cut so small.
    assert_eq!(of_members(&[7; 2_000], 1_000), Ok(2_000_000));
    assert_eq!(of_members(&[7], 1), Ok(1), "and the next message begins anew");
}

#[test]
fn the_buffers_that_a_context_keeps_are_small() {
    let broken: Arc<dyn Encoding> = Arc::new(Broken);
    let mut contexts = Contexts::default();
    let mut context = contexts.take(&broken);
    context.framed.resize(1024 * 1024, 7);
    contexts.give(context);
    assert!(contexts.take(&broken).framed.capacity() <= 64 * 1024);
}
