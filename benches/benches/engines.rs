//! A pair of gRPC engines: what a call costs besides sockets, threads and the API.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fulmar_benches::engines::{Pair, metadata};

const MESSAGES: [(&str, &[u8]); 2] = [("1B", &[7]), ("1KiB", &[7; 1024])];

fn unary(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engines/unary");
    for (size, message) in MESSAGES {
        for calls in [1, 64] {
            let mut pair = Pair::new(metadata(0)).expect("a fresh pair");
            group.throughput(Throughput::Elements(calls as u64));
            group.bench_function(format!("{size}/c={calls}"), |bencher| {
                bencher.iter(|| pair.unary(calls, message).expect("every call ends well"));
            });
        }
    }
    let mut pair = Pair::new(metadata(8)).expect("a fresh pair");
    group.throughput(Throughput::Elements(64));
    group.bench_function("1B/8 metadata entries/c=64", |bencher| {
        bencher.iter(|| pair.unary(64, &[7]).expect("every call ends well"));
    });
    group.finish();
}

fn streaming(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engines/streaming");
    for (size, message) in MESSAGES {
        for streams in [1, 64] {
            let mut pair = Pair::new(metadata(0)).expect("a fresh pair");
            pair.open_streams(streams).expect("streams open");
            group.throughput(Throughput::Elements(streams as u64));
            group.bench_function(format!("{size}/c={streams}"), |bencher| {
                bencher.iter(|| pair.ping_pong(message).expect("every message comes back"));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, unary, streaming);
criterion_main!(benches);
