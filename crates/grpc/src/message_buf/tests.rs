use prost::Message;

use super::*;
use crate::testing::Random;

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bytes = "bytes", tag = "2")]
    payload: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    parts: Vec<Bytes>,
    #[prost(bytes = "vec", tag = "4")]
    copied: Vec<u8>,
    #[prost(message, optional, boxed, tag = "5")]
    inner: Option<Box<Self>>,
}

fn chunks_of(arena: &Arena) -> &[BytesMut] {
    arena.memory.as_ref().map_or(&[], |memory| &memory.chunks)
}

fn record(random: &mut Random, length_max: u64) -> Record {
    let mut part = || {
        let length = random.below(length_max) as usize;
        Bytes::from(random.bytes(length))
    };
    Record {
        name: "record".into(),
        payload: part(),
        parts: vec![part(), part(), Bytes::new()],
        copied: part().to_vec(),
        inner: Some(Box::new(Record { payload: part(), ..Record::default() })),
    }
}

fn pieces(arena: &Arena) -> &[Large] {
    arena.memory.as_ref().and_then(|memory| memory.large.as_ref()).map_or(&[], |large| &large.pieces)
}

/// Where the bytes lie.
fn place(bytes: &Bytes) -> usize {
    bytes.as_ptr() as usize
}

#[test]
fn prost_decodes_the_same_as_from_a_slice() {
    let mut random = Random::new(1);
    let mut arena = Arena::new();
    let mut kept = Vec::new();
    for round in 0..400 {
        let sent = record(&mut random, [10, 300, 3_000, 40_000][round % 4]);
        let encoded = sent.encode_to_vec();
        let read = Record::decode(MessageBuf::new(&encoded, &mut arena)).expect("it was encoded");
        assert_eq!(read, sent);
        if round % 3 == 0 {
            kept.push((read, sent));
        }
        if random.below(4) == 0 && !kept.is_empty() {
            let index = random.below(kept.len() as u64) as usize;
            kept.swap_remove(index);
        }
        assert!(kept.iter().all(|(read, sent)| read == sent), "what is kept is never written over");
    }
    assert!(
        arena.retained_bytes() <= Arena::CHUNKS_MAX * Arena::CHUNK_BYTES + Arena::LARGE_RETAINED_BYTES_MAX
    );
}

#[test]
fn bad_messages_are_errors_and_harm_nothing() {
    let mut random = Random::new(2);
    let mut arena = Arena::new();
    let encoded = record(&mut random, 100).encode_to_vec();
    for cut in 0..encoded.len() {
        let _ = Record::decode(MessageBuf::new(&encoded[..cut], &mut arena));
    }
    // A bytes field that claims more than there is: the length is checked before anything is carved.
    let claims_too_much = [0x12, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2, 3];
    assert!(Record::decode(MessageBuf::new(&claims_too_much, &mut arena)).is_err());
    for _ in 0..2_000 {
        let mut damaged = encoded.clone();
        let at = random.below(damaged.len() as u64) as usize;
        damaged[at] = random.next() as u8;
        let from_slice = Record::decode(&damaged[..]);
        assert_eq!(Record::decode(MessageBuf::new(&damaged, &mut arena)).ok(), from_slice.ok());
    }
}

#[test]
fn a_buf_is_read_to_its_end() {
    let mut arena = Arena::new();
    let mut message = MessageBuf::new(b"abcdef", &mut arena);
    assert_eq!(message.remaining(), 6);
    message.advance(1);
    assert_eq!(message.chunk(), b"bcdef");
    assert_eq!(message.copy_to_bytes(0), Bytes::new());
    assert_eq!(message.copy_to_bytes(2), "bc");
    assert_eq!(message.copy_to_bytes(3), "def");
    assert!(!message.has_remaining());
}

#[test]
fn a_message_that_was_dropped_gives_its_memory_to_the_next() {
    let mut arena = Arena::new();
    let encoded = record(&mut Random::new(3), 3_000).encode_to_vec();
    let mut read = Record::default();
    let mut first = None;
    for _ in 0..1_000 {
        read.clear();
        read.merge(MessageBuf::new(&encoded, &mut arena)).expect("it was encoded");
        let places = (place(&read.payload), place(&read.parts[0]), place(&read.parts[1]));
        assert_eq!(*first.get_or_insert(places), places, "the same memory for each message");
    }
    assert_eq!(arena.retained_bytes(), Arena::CHUNK_BYTES);
}

#[test]
fn messages_in_flight_take_turns_in_few_chunks() {
    let mut arena = Arena::new();
    let mut in_flight = std::collections::VecDeque::new();
    for round in 0..10_000_u32 {
        in_flight.push_back((round, arena.carve(&[round as u8; 1_000])));
        if in_flight.len() > 150 {
            let (round, bytes) = in_flight.pop_front().expect("there are more than 150");
            assert_eq!(bytes, [round as u8; 1_000][..]);
        }
    }
    assert!(
        chunks_of(&arena).len() <= 4,
        "150,000 bytes in flight need 3 chunks and one to go on: {}",
        chunks_of(&arena).len()
    );
}

#[test]
fn fields_that_are_kept_pin_a_bounded_number_of_chunks() {
    let mut arena = Arena::new();
    let mut kept = Vec::new();
    for _ in 0..100 {
        kept.push(arena.carve(b"tiny"));
        // Enough to need another chunk.
        for _ in 0..5 {
            arena.carve(&[0; 15_000]);
        }
    }
    assert_eq!(chunks_of(&arena).len(), Arena::CHUNKS_MAX);
    assert_eq!(arena.retained_bytes(), Arena::CHUNKS_MAX * Arena::CHUNK_BYTES);
    assert!(kept.iter().all(|field| field == "tiny"));

    kept.truncate(1);
    let chunks: Vec<usize> = chunks_of(&arena).iter().map(|chunk| chunk.as_ptr() as usize).collect();
    for _ in 0..100 {
        let field = arena.carve(&[0; 15_000]);
        let is_carved = chunks.iter().any(|&rest| place(&field).abs_diff(rest) <= Arena::CHUNK_BYTES);
        assert!(is_carved, "chunks that became free are used again");
    }
    assert_eq!(chunks_of(&arena).len(), Arena::CHUNKS_MAX);
}

#[test]
fn large_fields_use_their_memory_again() {
    let mut arena = Arena::new();
    let sizes = [Arena::LARGE_BYTES, 100_000, 1_000_000];
    let first = sizes.map(|size| place(&arena.carve(&vec![1; size])));
    for _ in 0..100 {
        let fields = sizes.map(|size| arena.carve(&vec![2; size]));
        assert_eq!(fields.each_ref().map(place), first);
        assert!(
            fields
                .iter()
                .zip(sizes)
                .all(|(field, size)| field.len() == size && field.iter().all(|&byte| byte == 2))
        );
    }
    assert_eq!(arena.retained_bytes(), 16 * 1024 + 128 * 1024 + 1024 * 1024);
    assert!(chunks_of(&arena).is_empty());
}

#[test]
fn what_is_remembered_of_large_fields_is_bounded() {
    let mut arena = Arena::new();
    let mut random = Random::new(5);
    let mut kept = Vec::new();
    for _ in 0..300 {
        let length = Arena::LARGE_BYTES + random.below(3 << 20) as usize;
        kept.push((length, arena.carve(&vec![length as u8; length])));
        if kept.len() > 10 {
            kept.swap_remove(random.below(10) as usize);
        }
        assert!(
            kept.iter().all(|(length, field)| field.len() == *length && field[length / 2] == *length as u8)
        );
        let retained: usize = pieces(&arena).iter().map(|large| large.capacity).sum();
        assert_eq!(arena.retained_bytes(), retained);
        assert!(retained <= Arena::LARGE_RETAINED_BYTES_MAX);
        assert!(pieces(&arena).len() <= Arena::LARGE_PIECES_MAX);
    }
    let huge = arena.carve(&vec![3; Arena::LARGE_RETAINED_BYTES_MAX + 1]);
    assert_eq!(huge.len(), Arena::LARGE_RETAINED_BYTES_MAX + 1);
    assert!(arena.retained_bytes() <= Arena::LARGE_RETAINED_BYTES_MAX, "the largest are not remembered");
}

#[test]
fn few_pieces_are_remembered_however_many_large_fields_are_kept() {
    let mut arena = Arena::new();
    let kept: Vec<Bytes> = (0..40).map(|round| arena.carve(&[round; Arena::LARGE_BYTES])).collect();
    assert_eq!(pieces(&arena).len(), Arena::LARGE_PIECES_MAX);
    assert_eq!(arena.retained_bytes(), Arena::LARGE_PIECES_MAX * Arena::LARGE_BYTES);
    assert!(kept.iter().zip(0..).all(|(field, round)| field.iter().all(|&byte| byte == round)));
}

#[test]
fn a_large_piece_does_not_serve_a_much_smaller_field() {
    let mut arena = Arena::new();
    arena.carve(&vec![0; 1 << 20]);
    let small = arena.carve(&vec![0; Arena::LARGE_BYTES]);
    assert_eq!(arena.retained_bytes(), (1 << 20) + Arena::LARGE_BYTES);
    drop(small);
    let quarter = arena.carve(&vec![0; 1 << 18]);
    assert_eq!(arena.retained_bytes(), (1 << 20) + Arena::LARGE_BYTES, "a quarter is enough");
    drop(quarter);
    arena.clear();
    assert_eq!(arena.retained_bytes(), 0);
}

#[test]
fn carved_bytes_may_outlive_the_arena_and_cross_threads() {
    fn crosses_threads<T: Send + 'static>(value: T) -> T {
        value
    }
    let mut arena = crosses_threads(Arena::new());
    let fields = [arena.carve(b"small"), arena.carve(&[9; 20_000])];
    drop(arena);
    let fields = crosses_threads(fields);
    assert_eq!(fields[0], "small");
    assert_eq!(fields[1], [9; 20_000][..]);
}

#[test]
fn a_field_that_is_most_of_a_large_message_is_a_part_of_it_and_others_are_not() {
    let payload = Bytes::from(vec![7; 20_000]);
    let record = Record {
        name: "record".into(),
        payload,
        parts: vec![Bytes::from(vec![9; 5_000])],
        ..Record::default()
    };
    let message = Bytes::from(record.encode_to_vec());
    let lies_in = |field: &Bytes| (place(&message)..place(&message) + message.len()).contains(&place(field));
    let mut arena = Arena::new();
    let decoded = Record::decode(MessageBuf::shared(&message, &mut arena)).expect("it is valid");
    assert_eq!(decoded, record);
    assert!(lies_in(&decoded.payload));
    assert!(!lies_in(&decoded.parts[0]), "it would keep four times its size");
    let decoded = Record::decode(MessageBuf::new(&message, &mut arena)).expect("it is valid");
    assert!(!lies_in(&decoded.payload), "the message is only lent");
}
