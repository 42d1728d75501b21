//! HPACK alone: gRPC's header blocks, in and out, in the steady state of a connection (every field is in a table).

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use fulmar_hpack::{DecodeLimits, Decoder, Encoder, Field, FieldList, TABLE_BYTES_INITIAL};

/// Name, what a peer sends of it, and the fields.
type Block = (&'static str, &'static [(&'static [u8], &'static [u8])]);

const BLOCKS: [Block; 3] = [
    (
        "request",
        &[
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", b"/fulmar.bench.Bench/Unary"),
            (b":authority", b"127.0.0.1:50051"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"user-agent", b"fulmar/0.1.0"),
        ],
    ),
    ("response", &[(b":status", b"200"), (b"content-type", b"application/grpc")]),
    ("trailers", &[(b"grpc-status", b"0")]),
];

fn fields(block: &'static [(&'static [u8], &'static [u8])]) -> impl Iterator<Item = Field<'static>> {
    block.iter().map(|(name, value)| Field::new(name, value))
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hpack/encode");
    for (name, block) in BLOCKS {
        let mut encoder = Encoder::new(TABLE_BYTES_INITIAL);
        let mut out = Vec::new();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                out.clear();
                encoder.encode(fields(black_box(block)), &mut out);
                black_box(out.len())
            });
        });
    }
    group.finish();
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hpack/decode");
    for (name, block) in BLOCKS {
        let (mut encoder, mut decoder) =
            (Encoder::new(TABLE_BYTES_INITIAL), Decoder::new(TABLE_BYTES_INITIAL));
        let (mut out, mut list) = (Vec::new(), FieldList::new());
        let limits = DecodeLimits::default();
        // The first block fills both tables, the second is what the steady state looks like.
        for _ in 0..2 {
            out.clear();
            encoder.encode(fields(block), &mut out);
            decoder.decode(&out, &limits, &mut list).expect("our own encoder's block");
        }
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                decoder.decode(black_box(&out), &limits, &mut list).expect("decoded before");
                black_box(list.len())
            });
        });
    }
    group.finish();
}

/// What no table has: long values, Huffman-coded.
fn literals(criterion: &mut Criterion) {
    const TOKEN: &[u8] = b"Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJmdWxtYXIifQ.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg";
    let field = || [Field::sensitive(b"authorization", black_box(TOKEN))];
    let mut group = criterion.benchmark_group("hpack/literal");
    let (mut encoder, mut out) = (Encoder::new(TABLE_BYTES_INITIAL), Vec::new());
    group.bench_function("encode", |bencher| {
        bencher.iter(|| {
            out.clear();
            encoder.encode(field(), &mut out);
            black_box(out.len())
        });
    });
    let (mut decoder, mut list) = (Decoder::new(TABLE_BYTES_INITIAL), FieldList::new());
    let limits = DecodeLimits::default();
    out.clear();
    encoder.encode(field(), &mut out);
    group.bench_function("decode", |bencher| {
        bencher.iter(|| {
            decoder.decode(black_box(&out), &limits, &mut list).expect("our own encoder's block");
            black_box(list.len())
        });
    });
    group.finish();
}

criterion_group!(benches, encode, decode, literals);
criterion_main!(benches);
