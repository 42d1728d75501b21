//! A subscriber that counts the spans and events of calls, for the cells of `--trace on`.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber, callsite};

static IS_ON: AtomicBool = AtomicBool::new(false);
static SPANS: AtomicU64 = AtomicU64::new(0);
static CLOSED: AtomicU64 = AtomicU64::new(0);
static EVENTS: AtomicU64 = AtomicU64::new(0);

/// What was told so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Spans that began: one a call and side.
    pub spans: u64,
    /// Spans that ended.
    pub closed: u64,
    /// Events: one a message and side.
    pub events: u64,
}

/// Turns the subscriber on or off, for all threads. While it is off, no level is enabled, so that it costs what no subscriber costs; and
/// there is none before it is first turned on.
pub fn set(is_on: bool) {
    static INSTALLED: Once = Once::new();
    if IS_ON.swap(is_on, Relaxed) == is_on {
        return;
    }
    // Another subscriber in its place, which nobody sets here, would only mean that nothing is counted.
    INSTALLED.call_once(|| drop(tracing::subscriber::set_global_default(Counting)));
    callsite::rebuild_interest_cache();
}

/// What was told so far.
pub fn told() -> Told {
    Told { spans: SPANS.load(Relaxed), closed: CLOSED.load(Relaxed), events: EVENTS.load(Relaxed) }
}

/// Counts, as every subscriber has to do something.
struct Counting;

fn is_of_calls(metadata: &Metadata<'_>) -> bool {
    matches!(metadata.target(), "fulmar::call" | "fulmar::message")
}

impl Subscriber for Counting {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if IS_ON.load(Relaxed) && is_of_calls(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_of_calls(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(if IS_ON.load(Relaxed) { LevelFilter::TRACE } else { LevelFilter::OFF })
    }

    fn new_span(&self, _attributes: &Attributes<'_>) -> Id {
        Id::from_u64(SPANS.fetch_add(1, Relaxed) + 1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &Event<'_>) {
        EVENTS.fetch_add(1, Relaxed);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}

    fn try_close(&self, _span: Id) -> bool {
        CLOSED.fetch_add(1, Relaxed);
        true
    }
}
