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
    let mut pool = Pool::new();
    let mut deframer = Deframer::default();
    let length = 1 << 30;
    let mut bytes = &prefix(length, false).expect("fits four bytes")[..];
    assert!(matches!(
        deframer.next(&mut pool, &mut bytes, Accepts { length_max: usize::MAX, ..PLAIN }),
        Ok(None)
    ));
    assert_eq!((pool.outstanding(), deframer.block.capacity()), (0, 0));
    for received in 1..200_usize {
        let mut bytes = &[0; 100][..];
        assert!(matches!(
            deframer.next(&mut pool, &mut bytes, Accepts { length_max: usize::MAX, ..PLAIN }),
            Ok(None)
        ));
        // Twice what has arrived, rounded up to a class of the pool, and no class is below 512 bytes.
        assert!(deframer.block.capacity() <= (received * 100 * 4).max(512), "after {received} frames");
    }
    deframer.clear(&mut pool);
    assert_eq!(pool.outstanding(), 0);
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
