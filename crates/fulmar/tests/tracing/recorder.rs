//! A subscriber that keeps everything. There is one for the process; tests find their own calls by the path of their methods.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// What became of one span.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpanRecord {
    pub(crate) id: u64,
    pub(crate) parent: Option<u64>,
    pub(crate) fields: Fields,
    pub(crate) handles: usize,
    pub(crate) closes: usize,
    pub(crate) enters: usize,
}

/// One event, and the span that it is in.
#[derive(Clone, Debug)]
pub(crate) struct EventRecord {
    pub(crate) target: String,
    pub(crate) parent: Option<u64>,
    pub(crate) fields: Fields,
}

/// Fields by name. Each recorded once, so that one that comes twice is noticed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(HashMap<String, String>);

impl Fields {
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let earlier = self.0.insert(field.name().to_owned(), format!("{value:?}"));
        assert!(earlier.is_none(), "{field} was recorded twice");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// By id less one.
    spans: Mutex<Vec<SpanRecord>>,
    events: Mutex<Vec<EventRecord>>,
}

thread_local! {
    static INSIDE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The recorder of the process.
pub(crate) fn recorder() -> &'static Recorder {
    static RECORDER: OnceLock<Arc<Recorder>> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let recorder = Arc::new(Recorder::default());
        tracing::subscriber::set_global_default(Handle(recorder.clone())).expect("nobody else sets one");
        recorder
    })
}

impl Recorder {
    pub(crate) fn spans(&self) -> Vec<SpanRecord> {
        self.spans.lock().unwrap().clone()
    }

    pub(crate) fn events(&self) -> Vec<EventRecord> {
        self.events.lock().unwrap().clone()
    }

    /// Whether one side has begun a call of a method.
    pub(crate) fn has_begun(&self, kind: &str, path: &str) -> bool {
        let spans = self.spans.lock().unwrap();
        spans
            .iter()
            .any(|span| span.fields.get("otel.name") == &path[1..] && span.fields.get("otel.kind") == kind)
    }

    /// The spans of one side of the calls of a method, once so many have ended.
    pub(crate) fn ended(&self, kind: &str, path: &str, count: usize) -> Vec<SpanRecord> {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let spans: Vec<_> = self
                .spans()
                .into_iter()
                .filter(|span| span.fields.get("otel.name") == &path[1..])
                .filter(|span| span.fields.get("otel.kind") == kind)
                .collect();
            if spans.len() >= count && spans.iter().all(|span| span.closes > 0) {
                assert_eq!(spans.len(), count, "{kind} of {path}");
                for span in &spans {
                    assert_eq!((span.closes, span.handles), (1, 0), "{span:?}");
                }
                return spans;
            }
            assert!(Instant::now() < until, "{kind} of {path}: {spans:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// How many messages were sent and received in a span.
    pub(crate) fn messages(&self, span: &SpanRecord) -> (usize, usize) {
        let count = |direction: &str| {
            let messages = self.events().into_iter().filter(|event| {
                event.target == "fulmar::message"
                    && event.parent == Some(span.id)
                    && event.fields.get("direction") == direction
            });
            messages.count()
        };
        (count("sent"), count("received"))
    }
}

#[derive(Clone, Debug)]
struct Handle(Arc<Recorder>);

impl Subscriber for Handle {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("fulmar::") || metadata.target().starts_with("test")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let parent = match attributes.parent() {
            Some(parent) => Some(parent.into_u64()),
            None if attributes.is_contextual() => INSIDE.with_borrow(|inside| inside.last().copied()),
            None => None,
        };
        let mut spans = self.0.spans.lock().unwrap();
        let id = spans.len() as u64 + 1;
        spans.push(SpanRecord { id, parent, fields, handles: 1, ..SpanRecord::default() });
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut self.span(span).fields);
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let parent = match event.parent() {
            Some(parent) => Some(parent.into_u64()),
            None => INSIDE.with_borrow(|inside| inside.last().copied()),
        };
        let target = event.metadata().target().to_owned();
        self.0.events.lock().unwrap().push(EventRecord { target, parent, fields });
    }

    fn enter(&self, span: &Id) {
        self.span(span).enters += 1;
        INSIDE.with_borrow_mut(|inside| inside.push(span.into_u64()));
    }

    fn exit(&self, span: &Id) {
        let left = INSIDE.with_borrow_mut(Vec::pop);
        assert_eq!(left, Some(span.into_u64()), "spans are left in the order in which they were entered");
    }

    fn clone_span(&self, span: &Id) -> Id {
        self.span(span).handles += 1;
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        let mut span = self.span(&span);
        span.handles -= 1;
        if span.handles == 0 {
            span.closes += 1;
        }
        span.handles == 0
    }
}

impl Handle {
    fn span(&self, id: &Id) -> impl std::ops::DerefMut<Target = SpanRecord> + '_ {
        SpanGuard { spans: self.0.spans.lock().unwrap(), index: id.into_u64() as usize - 1 }
    }
}

struct SpanGuard<'r> {
    spans: std::sync::MutexGuard<'r, Vec<SpanRecord>>,
    index: usize,
}

impl std::ops::Deref for SpanGuard<'_> {
    type Target = SpanRecord;

    fn deref(&self) -> &SpanRecord {
        &self.spans[self.index]
    }
}

impl std::ops::DerefMut for SpanGuard<'_> {
    fn deref_mut(&mut self) -> &mut SpanRecord {
        &mut self.spans[self.index]
    }
}
