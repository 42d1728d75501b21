//! R40 for blocking channels, whose streams borrow them, and for R75: wherever they are made, used and dropped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fulmar::{Channel, Raw, Request, blocking};

use super::handlers::{BIDI, DOWNLOAD, UNARY, UPLOAD};
use super::hostile::Hostile;
use super::{Random, setting};

/// Ends the other side also when an assertion fails.
struct EndOnDrop<'c>(&'c AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn bounded<T>(message: T) -> Request<T> {
    Request::new(message).with_timeout(Duration::from_millis(20))
}

/// Makes a call of any kind and drops it, and with it its channel or not, at any point.
fn call(channel: &mut blocking::Channel, random: &mut Random) {
    let message = Raw::from(vec![b'm'; random.below(20_000)]);
    let uses = random.below(6);
    match random.below(4) {
        0 => drop(channel.unary::<Raw, Raw>(UNARY, bounded(message))),
        1 => {
            if let Ok(replies) = channel.server_streaming::<Raw, Raw>(DOWNLOAD, bounded(message)) {
                let mut replies = replies.into_inner();
                for _ in 0..uses {
                    if replies.message().is_err() {
                        assert!(matches!(replies.message(), Ok(None)), "a stream ends once (R76)");
                    }
                }
            }
        }
        2 => {
            if let Ok(mut upload) = channel.client_streaming::<Raw, Raw>(UPLOAD, bounded(())) {
                for _ in 0..uses {
                    let _ = upload.send(&message);
                }
                if random.percent(50) {
                    let _ = upload.finish();
                }
            }
        }
        _ => {
            if let Ok(mut both) = channel.bidi::<Raw, Raw>(BIDI, bounded(())) {
                for _ in 0..uses {
                    match random.below(3) {
                        0 => drop(both.send(&message)),
                        1 => drop(both.message()),
                        _ => both.finish_sending(),
                    }
                }
            }
        }
    }
}

#[test]
fn r40_blocking_calls_dropped_at_any_point_leave_nothing() {
    super::count_panics();
    let mut hostile = Hostile::new();
    let endpoint = hostile.endpoint();
    let first = setting("R40_SEED", 1);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = EndOnDrop(&is_over);
        scope.spawn(|| {
            let mut random = Random::new(first);
            while !is_over.load(Ordering::Relaxed) {
                hostile.act(&mut random);
                thread::sleep(Duration::from_micros(200));
            }
        });
        for seed in first..first + setting("R40_ROUNDS", 60) {
            let mut random = Random::new(seed);
            let settings = Channel::builder(&endpoint).connect_timeout(Duration::from_secs(5));
            let Ok(mut channel) = blocking::Channel::with(settings) else { continue };
            for _ in 0..8 {
                call(&mut channel, &mut random);
                let counts = channel.counts();
                let of_calls =
                    [counts.cells, counts.client_calls, counts.waiting_calls, counts.metadata_maps];
                assert_eq!(of_calls, [0; 4], "R40_SEED={seed}: {counts:?}");
                assert_eq!((counts.streams, counts.blocks), (0, 0), "R40_SEED={seed}: {counts:?}");
            }
            assert_eq!(super::PANICS.get(), 0, "R40_SEED={seed}: something panicked");
        }
    });
    super::PANICS.set(-1);
}
