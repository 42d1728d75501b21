use super::*;
use crate::ErrorCode;

fn head(length: usize, kind: Kind, flags: u8, stream_id: u32) -> Head {
    Head { length, kind, flags, stream_id }
}

#[test]
fn a_head_survives_the_wire_and_its_reserved_bit_is_ignored() {
    let sent = head(0x01_0203, Kind::WindowUpdate, 0x55, 0x1234_5678);
    let mut bytes = sent.to_bytes();
    assert_eq!(bytes, [1, 2, 3, 8, 0x55, 0x12, 0x34, 0x56, 0x78]);
    bytes[5] |= 0x80;
    assert_eq!(Head::peek(&bytes), Some(sent));
    assert_eq!(Head::peek(&bytes[..8]), None);
}

#[test]
fn every_type_is_read_as_what_it_was_written() {
    for kind in 0..=u8::MAX {
        let bytes = [0, 0, 0, kind, 0, 0, 0, 0, 0];
        assert_eq!(Head::peek(&bytes).unwrap().kind.as_u8(), kind);
    }
}

#[test]
fn a_head_alone_tells_wrong_sizes_and_wrong_streams() {
    let size = Some(ErrorCode::FrameSizeError);
    let protocol = Some(ErrorCode::ProtocolError);
    for (head, expected) in [
        (head(16_384, Kind::Data, 0, 1), None),
        (head(16_385, Kind::Data, 0, 1), size),
        (head(16_385, Kind::Unknown(77), 0, 1), size),
        (head(0, Kind::Data, 0, 0), protocol),
        (head(0, Kind::Headers, 0, 0), protocol),
        (head(5, Kind::Priority, 0, 0), protocol),
        (head(4, Kind::ResetStream, 0, 0), protocol),
        (head(3, Kind::ResetStream, 0, 1), size),
        (head(0, Kind::Settings, 0, 1), protocol),
        (head(5, Kind::Settings, 0, 0), size),
        (head(6, Kind::Settings, flag::ACK, 0), size),
        (head(0, Kind::Settings, flag::ACK, 0), None),
        (head(8, Kind::Ping, 0, 1), protocol),
        (head(7, Kind::Ping, 0, 0), size),
        (head(9, Kind::GoAway, 0, 3), protocol),
        (head(7, Kind::GoAway, 0, 0), size),
        (head(5, Kind::WindowUpdate, 0, 0), size),
        (head(4, Kind::WindowUpdate, 0, 0), None),
        (head(1, Kind::Continuation, 0, 0), protocol),
        (head(1, Kind::Unknown(0xfe), 0xff, 0), None),
    ] {
        assert_eq!(head.check(16_384).err().map(|error| error.code), expected, "{head:?}");
    }
}

#[test]
fn padding_is_stripped_and_may_not_be_longer_than_its_frame() {
    let padded = |payload| strip_padding(&head(0, Kind::Data, flag::PADDED, 1), payload);
    assert_eq!(padded(b"\x02ab\0\0"), Ok(&b"ab"[..]));
    assert_eq!(padded(b"\x04\0\0\0\0"), Ok(&b""[..]));
    assert_eq!(padded(b"\x05\0\0\0\0").unwrap_err().code, ErrorCode::ProtocolError);
    assert_eq!(padded(b"").unwrap_err().code, ErrorCode::FrameSizeError);
    assert_eq!(strip_padding(&head(0, Kind::Data, 0, 1), b"\x05ab"), Ok(&b"\x05ab"[..]));
}

#[test]
fn a_priority_in_headers_is_skipped_and_self_dependency_is_seen() {
    let parse =
        |payload| HeadersPayload::parse(&head(0, Kind::Headers, flag::PADDED | flag::PRIORITY, 3), payload);
    let payload = parse(b"\x01\x80\0\0\x03\x10block\0").unwrap();
    assert_eq!((payload.fragment, payload.self_dependent), (&b"block"[..], true));
    assert!(!parse(b"\x00\x80\0\0\x01\x10block").unwrap().self_dependent);
    assert_eq!(parse(b"\x00\x80\0\0\x01").unwrap_err().code, ErrorCode::FrameSizeError);
}

#[test]
fn settings_survive_the_wire() {
    let sent = [
        Setting::HeaderTableSize(1),
        Setting::EnablePush(0),
        Setting::MaxConcurrentStreams(u32::MAX),
        Setting::InitialWindowSize(4),
        Setting::MaxFrameSize(5),
        Setting::MaxHeaderListSize(6),
        Setting::Unknown(0xabcd, 7),
    ];
    let mut bytes = Vec::new();
    settings(sent.into_iter(), &mut bytes);
    assert_eq!(Head::peek(&bytes), Some(head(42, Kind::Settings, 0, 0)));
    assert!(entries(&bytes[HEAD_BYTES..]).eq(sent));
}

#[test]
fn a_header_block_is_split_where_the_peer_takes_no_more() {
    for (block_bytes, frames) in [(0, 1), (1, 1), (10, 1), (11, 2), (20, 2), (21, 3), (95, 10)] {
        let block: Vec<u8> = (0..block_bytes).collect();
        let mut out = b"before".to_vec();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        out.extend_from_slice(&block);
        finish_header_block(5, true, 10, 6, &mut out);

        let mut rest = &out[6..];
        let mut joined = Vec::new();
        for frame in 0..frames {
            let head = Head::peek(rest).unwrap();
            assert_eq!(head.kind, if frame == 0 { Kind::Headers } else { Kind::Continuation });
            assert_eq!(head.stream_id, 5);
            assert_eq!(head.kind == Kind::Headers, head.has(flag::END_STREAM));
            assert_eq!(frame + 1 == frames, head.has(flag::END_HEADERS));
            joined.extend_from_slice(&rest[HEAD_BYTES..HEAD_BYTES + head.length]);
            rest = &rest[HEAD_BYTES + head.length..];
        }
        assert_eq!((joined, rest), (block, &b""[..]));
    }
}
