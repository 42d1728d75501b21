use super::*;

const LIMIT: usize = 1000;

const PLAIN: Accepts = Accepts { length_max: LIMIT, compressed: false };

/// The messages in `chunks`, with for each whether it was lent; or the error they end with.
fn cut<'c>(chunks: impl IntoIterator<Item = &'c [u8]>) -> Result<Vec<(Vec<u8>, bool)>, FramingError> {
    let mut pool = Pool::new();
    let mut deframer = Deframer::default();
    let mut messages = Vec::new();
    let result = chunks.into_iter().try_for_each(|mut chunk| {
        while let Some(body) = deframer.next(&mut pool, &mut chunk, PLAIN)? {
            messages.push((body.as_slice().to_vec(), matches!(body, Body::Lent(_))));
            if let Body::Block(block) = body {
                pool.give(block);
            }
        }
        assert!(chunk.is_empty(), "all that is no message was taken");
        Ok(())
    });
    let midway = deframer.is_midway();
    deframer.clear(&mut pool);
    assert_eq!(pool.outstanding(), 0);
    result?;
    if midway { Err(FramingError::Truncated) } else { Ok(messages) }
}

fn framed(messages: &[&[u8]]) -> Vec<u8> {
    messages
        .iter()
        .flat_map(|message| [&prefix(message.len(), false).expect("short")[..], message].concat())
        .collect()
}

#[test]
fn a_message_that_lies_in_one_frame_is_lent() {
    assert_eq!(cut([&framed(&[b"hello"])[..]]), Ok(vec![(b"hello".to_vec(), true)]));
}

#[test]
fn a_frame_may_hold_many_messages_and_the_beginning_of_one() {
    let bytes = framed(&[b"one", b"", b"three", b"four"]);
    let (first, second) = bytes.split_at(bytes.len() - 2);
    assert_eq!(
        cut([first, second]),
        Ok(vec![
            (b"one".to_vec(), true),
            (vec![], true),
            (b"three".to_vec(), true),
            (b"four".to_vec(), false)
        ])
    );
}

#[test]
fn any_two_cuts_give_the_same_messages() {
    let bytes = framed(&[b"", b"a", b"bcdefgh", b"", b"ijkl"]);
    let messages = |cut: Vec<(Vec<u8>, bool)>| cut.into_iter().map(|(bytes, _)| bytes).collect::<Vec<_>>();
    let whole = messages(cut([&bytes[..]]).expect("well-formed"));
    assert_eq!(whole.len(), 5);
    for a in 0..=bytes.len() {
        for b in a..=bytes.len() {
            let chunks = [&bytes[..a], &bytes[a..b], &[], &bytes[b..]];
            assert_eq!(messages(cut(chunks).expect("well-formed")), whole, "cut at {a} and {b}");
        }
    }
    assert_eq!(messages(cut(bytes.chunks(1)).expect("well-formed")), whole);
}

#[test]
fn a_message_of_zero_bytes_is_a_message_and_an_empty_frame_is_none() {
    assert_eq!(cut([&framed(&[b""])[..]]), Ok(vec![(vec![], true)]));
    assert_eq!(cut([&[][..], &[]]), Ok(vec![]));
}

#[test]
fn only_a_message_over_the_limit_is_too_long_and_is_so_at_its_prefix() {
    let at_limit = vec![7; LIMIT];
    assert_eq!(cut([&framed(&[&at_limit])[..]]), Ok(vec![(at_limit, true)]));
    let too_long = FramingError::TooLong { length: LIMIT + 1, length_max: LIMIT };
    assert_eq!(cut([&prefix(LIMIT + 1, false).expect("short")[..]]), Err(too_long));
    assert_eq!(too_long.status().code(), Code::ResourceExhausted);
    let most = FramingError::TooLong { length: u32::MAX as usize, length_max: LIMIT };
    assert_eq!(cut([&[0, 255, 255, 255, 255][..]]), Err(most));
}

#[test]
fn flags_besides_zero_are_faults() {
    assert_eq!(cut([&[1, 0, 0, 0, 0][..]]), Err(FramingError::Compressed));
    for flag in [2, 0x80, 0x81, 0xff] {
        assert_eq!(cut([&[flag, 0, 0, 0, 0][..]]), Err(FramingError::Flag(flag)));
    }
    assert_eq!(FramingError::Compressed.status().code(), Code::Internal);
    assert_eq!(FramingError::Flag(2).status().code(), Code::Internal);
}

#[test]
fn a_message_that_has_begun_is_midway_until_its_last_byte() {
    let bytes = framed(&[b"abc"]);
    assert_eq!(cut([&bytes[..1]]), Err(FramingError::Truncated));
    assert_eq!(cut([&bytes[..5]]), Err(FramingError::Truncated));
    assert_eq!(cut([&bytes[..7]]), Err(FramingError::Truncated));
    assert!(cut([&bytes[..]]).is_ok());
}

#[test]
fn memory_follows_the_bytes_received_and_not_the_bytes_announced() {
    for length in [1 << 30, Output::SHARED_MIN - 1] {
        let mut pool = Pool::new();
        let mut deframer = Deframer::default();
        let accepts = Accepts { length_max: usize::MAX, ..PLAIN };
        let mut bytes = &prefix(length, false).expect("fits four bytes")[..];
        assert!(matches!(deframer.next(&mut pool, &mut bytes, accepts), Ok(None)));
        assert_eq!((pool.outstanding(), deframer.memory_bytes()), (0, 0));
        for received in 1..160_usize {
            let mut bytes = &[0; 100][..];
            assert!(matches!(deframer.next(&mut pool, &mut bytes, accepts), Ok(None)));
            // Two pages to place it, and again once it has moved; beyond that four times what has arrived, and at least the smallest block.
            let most = (received * 100 * 4).max(512) + 2 * PLACE_BYTES;
            let held = match &deframer.unfinished {
                Unfinished::Block(block) => block.memory_bytes(),
                Unfinished::Large(memory) => memory.capacity(),
            };
            assert!(held <= most, "{held} bytes after {received} frames");
        }
        assert_eq!(pool.outstanding(), 1);
        deframer.clear(&mut pool);
        assert_eq!(pool.outstanding(), 0);
    }
}

#[test]
fn messages_that_are_only_announced_park_no_more_than_the_pool_may_keep() {
    const LENGTH: usize = 1 << 20;
    let mut pool = Pool::with_retained_max(4 * LENGTH);
    let accepts = Accepts { length_max: usize::MAX, ..PLAIN };
    let wire = framed(&[&vec![7; LENGTH]]);
    let mut begun = Vec::new();
    for _ in 0..20 {
        let mut whole = &wire[..];
        let mut deframer = Deframer::default();
        for frame in wire.chunks(16_384) {
            whole = frame;
            deframer.next(&mut pool, &mut whole, accepts).expect("it is a message");
        }
        assert!(whole.is_empty());
        let mut deframer = Deframer::default();
        let mut beginning = &wire[..PREFIX_LEN + 1];
        assert!(matches!(deframer.next(&mut pool, &mut beginning, accepts), Ok(None)));
        begun.push(deframer);
    }
    let held = |deframer: &Deframer| match &deframer.unfinished {
        Unfinished::Large(memory) => memory.capacity(),
        Unfinished::Block(block) => block.memory_bytes(),
    };
    let parked: usize = begun.iter().map(held).sum();
    assert!(
        (LENGTH..=4 * LENGTH + 20 * 3 * PLACE_BYTES).contains(&parked),
        "{parked} bytes for twenty bytes"
    );
    begun.iter_mut().for_each(|deframer| deframer.clear(&mut pool));
    assert_eq!(pool.outstanding(), 0);
}

#[test]
fn r81_a_large_message_is_put_together_once_and_handed_over_whole() {
    let (mut pool, mut deframer) = (Pool::new(), Deframer::default());
    let accepts = Accepts { length_max: usize::MAX, ..PLAIN };
    let message: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
    let wire = framed(&[&message]);
    let mut places = std::collections::BTreeSet::new();
    for round in 0..10 {
        let mut taken = None;
        for frame in wire.chunks(16_384) {
            let mut bytes = frame;
            taken = deframer.next(&mut pool, &mut bytes, accepts).expect("it is a message");
        }
        let Some(Body::Shared(bytes)) = taken else { panic!("{taken:?} is not in memory of its own") };
        assert_eq!(bytes, message);
        assert_eq!(pool.outstanding(), 0, "it is the reader's");
        if round > 0 {
            // The memory of the first message grew with it.
            places.insert(bytes.as_ptr().addr());
        }
    }
    assert!(places.len() == 1, "{places:?}");
    assert!(pool.shared_bytes() < 1_100_000, "{} bytes", pool.shared_bytes());
}

#[test]
fn a_message_given_up_midway_leaves_its_memory_to_the_next() {
    let (mut pool, mut deframer) = (Pool::new(), Deframer::default());
    let accepts = Accepts { length_max: usize::MAX, ..PLAIN };
    let wire = framed(&[&[7; 100_000]]);
    for _ in 0..1_000 {
        let mut bytes = &wire[..50_000];
        assert!(matches!(deframer.next(&mut pool, &mut bytes, accepts), Ok(None)));
        deframer.clear(&mut pool);
    }
    assert_eq!(pool.outstanding(), 0);
    assert!(pool.shared_bytes() <= 105_000, "{} bytes", pool.shared_bytes());
}

#[test]
fn a_length_that_four_bytes_cannot_hold_has_no_prefix() {
    assert_eq!(prefix(0x0102_0304, false), Some([0, 1, 2, 3, 4]));
    assert_eq!(prefix(u32::MAX as usize, false), Some([0, 255, 255, 255, 255]));
    assert_eq!(prefix(u32::MAX as usize + 1, false), None);
}

#[test]
fn a_quoted_body_is_cut_at_its_limit() {
    let mut pool = Pool::new();
    let mut deframer = Deframer::default();
    assert!(deframer.quote(&mut pool, b"<html>", 10));
    assert!(!deframer.quote(&mut pool, b"<body>", 10));
    assert!(!deframer.quote(&mut pool, b"more", 10));
    assert_eq!(deframer.quoted(), b"<html><bod");
    deframer.clear(&mut pool);
}
