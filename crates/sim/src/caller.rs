use std::collections::{BTreeMap, VecDeque};

use fulmar_base::{Block, Closed, DeadlineHeap, DeadlineKey, Endpoint, Env, Input, Instant, TaskId};
use fulmar_grpc::{
    Body, CallKey, Client, ClientIdentity, Code, Config, Event, Memory, MetadataMap, Start, StartError,
};

use crate::ledger::SharedLedger;
use crate::plan::{Direction, Plan, Way, is_message, write_message};

/// The path that every call of a world goes to.
pub(crate) const PATH: &str = "/sim.World/Call";

/// Under this name the metadata of a call tells its number.
pub(crate) const CALL_ID: &str = "sim-call";

/// The client's end: starts calls, sends what their plans say, and checks what comes back.
pub(crate) struct Caller {
    client: Client,
    ledger: SharedLedger,
    /// Whose end it is.
    node: usize,
    /// The number of the connection.
    connection: u64,
    running: BTreeMap<CallKey, Running>,
    timers: DeadlineHeap<Timer>,
    /// Whether calls may be started: after Ready, or from the start, until a start is refused or the server goes away.
    takes_calls: bool,
    metadata: MetadataMap,
    message: Vec<u8>,
}

/// What a user of the library asks for.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Ask {
    /// Client: look whether calls wait to be started.
    Start,
    /// Server: finish what runs, and take no more.
    ShutDown,
}

struct Running {
    plan: Plan,
    sent: usize,
    half_closed: bool,
    received: usize,
    held: VecDeque<(Option<Block>, usize)>,
    cancel: Option<DeadlineKey>,
}

#[derive(Copy, Clone)]
enum Timer {
    /// The message held longest is taken.
    Take(CallKey),
    Cancel(CallKey),
}

impl Caller {
    /// The end of a client on a connection, by their numbers. With `eager` it starts calls before it has heard from the server, and
    /// is refused what the server does not allow.
    pub(crate) fn new(
        config: Config,
        ledger: SharedLedger,
        (node, connection): (usize, u64),
        eager: bool,
    ) -> Self {
        let identity = ClientIdentity { scheme: "http".into(), authority: "sim".into() };
        Self {
            client: Client::new(config, identity),
            ledger,
            node,
            connection,
            running: BTreeMap::new(),
            timers: DeadlineHeap::new(),
            takes_calls: eager,
            metadata: MetadataMap::new(),
            message: Vec::new(),
        }
    }

    pub(crate) fn memory(&self) -> Memory {
        self.client.memory()
    }

    pub(crate) fn calls(&self) -> usize {
        self.client.calls()
    }

    /// Whether calls may be started.
    pub(crate) const fn takes_calls(&self) -> bool {
        self.takes_calls
    }

    /// Whether the server takes no more calls here.
    pub(crate) fn is_going_away(&self) -> bool {
        self.client.going_away().is_some()
    }

    fn drain(&mut self, env: &mut Env<'_>, input: &Input<'_>) -> Result<(), Closed> {
        while let Some(event) = self.client.next_event(env, input)? {
            self.on_event(env, event);
        }
        Ok(())
    }

    fn on_event(&mut self, env: &mut Env<'_>, event: Event<'_>) {
        match event {
            Event::Ready | Event::Capacity => {
                self.takes_calls = self.client.going_away().is_none();
                self.start_waiting(env);
            }
            Event::GoingAway => self.takes_calls = false,
            Event::Headers { call } => self.on_headers(call),
            Event::Message { call, body } => self.on_message(env, call, body),
            Event::Writable { call } => self.send(env, call),
            Event::Finished { call } => self.on_finished(env, call),
            Event::Begin { .. } | Event::HalfClosed { .. } => {
                self.ledger.borrow_mut().check(false, || format!("a client was told {event:?}"));
            }
        }
    }

    fn start_waiting(&mut self, env: &mut Env<'_>) {
        while self.takes_calls {
            let mut ledger = self.ledger.borrow_mut();
            let Some(id) = ledger.waiting[self.node].pop_front() else { return };
            let plan = ledger.plan(id);
            let numbers = [id, plan.requests.len() as u64, plan.replies.len() as u64];
            ledger.note("call", "starts (call, requests, replies):", numbers);
            drop(ledger);
            if let Err(error) = self.start(env, plan) {
                self.takes_calls = false;
                let mut ledger = self.ledger.borrow_mut();
                ledger.waiting[self.node].push_front(id);
                ledger.check(matches!(error, StartError::Busy | StartError::GoingAway), || {
                    format!("call {id} could not be started: {error:?}")
                });
            }
        }
    }

    fn start(&mut self, env: &mut Env<'_>, plan: Plan) -> Result<(), StartError> {
        self.metadata.clear();
        for (name, value) in [(CALL_ID, plan.id.to_string()), ("sim-filler", "x".repeat(plan.filler_bytes))] {
            self.metadata.append(name, &value).expect("names and values are legal");
        }
        let start = Start {
            path: PATH,
            metadata: &self.metadata,
            timeout: plan.timeout,
            deadline: plan.timeout.map(|timeout| env.now + timeout),
            compression: &fulmar_grpc::Compression::Default,
        };
        let unary = plan.is_unary();
        let mut running =
            Running { plan, sent: 0, half_closed: unary, received: 0, held: VecDeque::new(), cancel: None };
        let call = if unary {
            self.message.clear();
            let plan = &running.plan;
            write_message(&mut self.message, plan.id, Direction::Request, 0, plan.requests[0]);
            running.sent = 1;
            let call = self.client.start(env, start, Some(&self.message), true)?;
            self.ledger.borrow_mut().sent(plan.id, Direction::Request, self.message.len());
            call
        } else {
            self.client.start(env, start, None, false)?
        };
        if let Some(after) = running.plan.cancel {
            running.cancel = Some(self.timers.insert(env.now + after, Timer::Cancel(call)));
        }
        self.running.insert(call, running);
        self.send(env, call);
        Ok(())
    }

    /// Sends as much as may be sent, and says when that was all.
    fn send(&mut self, env: &mut Env<'_>, call: CallKey) {
        let Some(running) = self.running.get_mut(&call) else { return };
        while running.sent < running.plan.requests.len() && self.client.may_send(call) > 0 {
            let (plan, index) = (&running.plan, running.sent);
            let len = plan.requests[index];
            running.sent += 1;
            let write = |into: &mut Vec<u8>| write_message(into, plan.id, Direction::Request, index, len);
            let sent = match plan.way {
                Way::Encoded => self.client.encode_message(env, call, len, write),
                Way::Message => {
                    self.message.clear();
                    write(&mut self.message);
                    self.client.send_message(env, call, &self.message)
                }
                Way::Block => {
                    let mut block = env.pool.take(len + 5);
                    block.extend_from_slice(&prefix(len));
                    write(block.tail_mut());
                    self.client.send_framed(env, call, block)
                }
                Way::Slice => {
                    self.message.clear();
                    self.message.extend_from_slice(&prefix(len));
                    write(&mut self.message);
                    self.client.send_framed_slice(env, call, &self.message)
                }
            };
            // A call that is over refuses, and its end is an event.
            if sent.is_ok() {
                self.ledger.borrow_mut().sent(plan.id, Direction::Request, len);
            }
        }
        if running.sent == running.plan.requests.len() && !running.half_closed {
            running.half_closed = true;
            self.client.half_close(env, call);
        }
    }

    fn on_headers(&mut self, call: CallKey) {
        self.client.take_metadata(call, &mut self.metadata);
        let Some(running) = self.running.get(&call) else { return };
        let told = self.metadata.get(CALL_ID).map(str::to_owned);
        let id = running.plan.id;
        self.ledger.borrow_mut().check(told.as_deref().is_none_or(|told| told == id.to_string()), || {
            format!("call {id} got the initial metadata of call {told:?}")
        });
    }

    fn on_message(&mut self, env: &mut Env<'_>, call: CallKey, body: Body<'_>) {
        let Some(running) = self.running.get_mut(&call) else {
            return self.ledger.borrow_mut().check(false, || "a message came for a call that is over".into());
        };
        let (plan, index) = (&running.plan, running.received);
        running.received += 1;
        let right = plan
            .replies
            .get(index)
            .is_some_and(|&len| is_message(body.as_slice(), plan.id, Direction::Reply, index, len));
        let mut ledger = self.ledger.borrow_mut();
        ledger.check(right, || format!("call {} got something else for reply {index}", plan.id));
        ledger.received(plan.id, Direction::Reply, body.len());
        drop(ledger);
        running.held.push_back(hold(body));
        self.timers.insert(env.now + plan.hold, Timer::Take(call));
    }

    fn on_finished(&mut self, env: &mut Env<'_>, call: CallKey) {
        let unprocessed = self.client.unprocessed(call);
        let status = self.client.take_status(call, &mut self.metadata);
        let Some(running) = self.running.remove(&call) else {
            return self.ledger.borrow_mut().check(false, || "a call finished that was over".into());
        };
        let mut ledger = self.ledger.borrow_mut();
        let plan = &running.plan;
        if unprocessed {
            ledger.note("call", "was not processed (call, code):", [plan.id, status.code() as u64, 0]);
            ledger.check(status.code() == Code::Unavailable, || {
                format!("call {} was not processed, but ended with {status:?}", plan.id)
            });
            ledger.retry(plan.id);
        } else {
            if status.code() == plan.outcome {
                let told = self.metadata.get(CALL_ID).map(str::to_owned);
                ledger.check(told.as_ref() == Some(&plan.id.to_string()), || {
                    format!("call {} got the trailers of call {told:?}", plan.id)
                });
            }
            ledger.finish(self.connection, plan, status.code(), status.message(), running.received);
        }
        drop(ledger);
        self.end(env, running);
    }

    fn on_timer(&mut self, env: &mut Env<'_>, timer: Timer) {
        match timer {
            Timer::Take(call) => {
                let Some(running) = self.running.get_mut(&call) else { return };
                if let Some((block, len)) = running.held.pop_front() {
                    block.into_iter().for_each(|block| env.pool.give(block));
                    self.client.release(env, call, len);
                }
            }
            Timer::Cancel(call) => {
                let Some(mut running) = self.running.remove(&call) else { return };
                running.cancel = None;
                let mut ledger = self.ledger.borrow_mut();
                let numbers = [running.plan.id, running.received as u64, 0];
                ledger.note("call", "is cancelled (call, replies):", numbers);
                ledger.cancel(running.plan.id);
                drop(ledger);
                self.client.cancel(env, call);
                self.end(env, running);
            }
        }
    }

    fn end(&mut self, env: &mut Env<'_>, running: Running) {
        if let Some(cancel) = running.cancel {
            self.timers.remove(cancel);
        }
        running.held.into_iter().filter_map(|(block, _)| block).for_each(|block| env.pool.give(block));
    }
}

impl Endpoint for Caller {
    type Command = Ask;

    fn receive(&mut self, env: &mut Env<'_>, bytes: &[u8]) -> Result<usize, Closed> {
        let input = Input::new(bytes);
        self.drain(env, &input)?;
        Ok(input.consumed())
    }

    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        self.client.transmit(env);
        self.drain(env, &Input::new(&[]))
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.client.next_deadline().into_iter().chain(self.timers.next()).min()
    }

    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        while let Some(timer) = self.timers.pop_expired(env.now) {
            self.on_timer(env, timer);
        }
        self.client.on_deadline(env)?;
        self.drain(env, &Input::new(&[]))
    }

    fn on_command(&mut self, env: &mut Env<'_>, _ask: Ask) -> Result<(), Closed> {
        self.start_waiting(env);
        self.drain(env, &Input::new(&[]))
    }

    fn has_work(&self, is_room: bool) -> bool {
        self.client.has_work(is_room)
    }

    fn on_wake(&mut self, _env: &mut Env<'_>, _task: TaskId) -> Result<(), Closed> {
        Ok(())
    }

    fn on_close(&mut self, env: &mut Env<'_>, closed: &Closed) {
        self.takes_calls = false;
        self.client.closed(env, closed);
        let drained = self.drain(env, &Input::new(&[]));
        let left = (drained, self.running.len(), self.client.calls());
        self.ledger.borrow_mut().check(left == (Ok(()), 0, 0), || {
            format!("the connection is lost, and the client still has {left:?}")
        });
    }
}

/// The prefix of a message that is not compressed.
pub(crate) fn prefix(len: usize) -> [u8; 5] {
    let len = u32::try_from(len).expect("messages of a world are small").to_be_bytes();
    [0, len[0], len[1], len[2], len[3]]
}

/// What is kept of a message until it is taken: its block, if it has one, and its length.
pub(crate) fn hold(body: Body<'_>) -> (Option<Block>, usize) {
    let len = body.len();
    match body {
        Body::Lent(_) | Body::Shared(_) => (None, len),
        Body::Block(block) => (Some(block), len),
    }
}
