use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fulmar_base::{Block, Closed, DeadlineHeap, Endpoint, Env, Input, Instant, TaskId};
use fulmar_grpc::{Body, CallKey, Code, Config, Event, Gone, Memory, MetadataMap, Routes, Server, Status};

use crate::caller::{Ask, CALL_ID, PATH, hold, prefix};
use crate::ledger::SharedLedger;
use crate::plan::{Answer, Direction, Plan, Way, is_message, write_message};

/// The server's end: answers calls as their plans say, and checks what arrives.
pub(crate) struct Callee {
    server: Server,
    ledger: SharedLedger,
    /// The number of the connection.
    connection: u64,
    serving: BTreeMap<CallKey, Serving>,
    timers: DeadlineHeap<Timer>,
    metadata: MetadataMap,
    message: Vec<u8>,
}

struct Serving {
    plan: Plan,
    received: usize,
    half_closed: bool,
    sent: usize,
    held: VecDeque<(Option<Block>, usize)>,
    /// Whether the end of the answer is decided, and a timer runs until it is sent.
    thinking: bool,
    finished: bool,
}

#[derive(Copy, Clone)]
enum Timer {
    /// The message held longest is taken.
    Take(CallKey),
    Finish(CallKey),
}

impl Callee {
    pub(crate) fn new(config: Config, ledger: SharedLedger, connection: u64) -> Self {
        let mut routes = Routes::new();
        routes.add(PATH).expect("the path is one");
        Self {
            server: Server::new(config, Arc::new(routes)),
            ledger,
            connection,
            serving: BTreeMap::new(),
            timers: DeadlineHeap::new(),
            metadata: MetadataMap::new(),
            message: Vec::new(),
        }
    }

    pub(crate) fn memory(&self) -> Memory {
        self.server.memory()
    }

    pub(crate) fn calls(&self) -> usize {
        self.server.calls()
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.server.is_drained()
    }

    fn drain(&mut self, env: &mut Env<'_>, input: &Input<'_>) -> Result<(), Closed> {
        while let Some(event) = self.server.next_event(env, input)? {
            self.on_event(env, event);
        }
        Ok(())
    }

    fn on_event(&mut self, env: &mut Env<'_>, event: Event<'_>) {
        match event {
            Event::Begin { call, .. } => self.on_begin(env, call),
            Event::Message { call, body } => self.on_message(env, call, body),
            Event::HalfClosed { call } => {
                if let Some(serving) = self.serving.get_mut(&call) {
                    serving.half_closed = true;
                    let (id, all) = (serving.plan.id, serving.received == serving.plan.requests.len());
                    let mut ledger = self.ledger.borrow_mut();
                    ledger.check(all, || format!("call {id} half-closed before its last message"));
                    ledger.received_all(id, Direction::Request);
                }
                self.answer(env, call);
            }
            Event::Writable { call } => self.answer(env, call),
            Event::Finished { call } => self.on_finished(env, call),
            event => self.ledger.borrow_mut().check(false, || format!("a server was told {event:?}")),
        }
    }

    fn on_begin(&mut self, env: &mut Env<'_>, call: CallKey) {
        self.server.take_metadata(call, &mut self.metadata);
        let mut ledger = self.ledger.borrow_mut();
        let Some(id) = self.metadata.get(CALL_ID).and_then(|id| id.parse().ok()) else {
            return ledger.check(false, || "a call came without its number".into());
        };
        ledger.note("call", "begins (call, connection):", [id, self.connection, 0]);
        ledger.begin(id, self.connection);
        let plan = ledger.plan(id);
        drop(ledger);
        let serving = Serving {
            plan,
            received: 0,
            half_closed: false,
            sent: 0,
            held: VecDeque::new(),
            thinking: false,
            finished: false,
        };
        self.serving.insert(call, serving);
        self.answer(env, call);
    }

    fn on_message(&mut self, env: &mut Env<'_>, call: CallKey, body: Body<'_>) {
        let Some(serving) = self.serving.get_mut(&call) else {
            return self.ledger.borrow_mut().check(false, || "a message came for a call that is over".into());
        };
        let (plan, index) = (&serving.plan, serving.received);
        serving.received += 1;
        let right = plan
            .requests
            .get(index)
            .is_some_and(|&len| is_message(body.as_slice(), plan.id, Direction::Request, index, len));
        let mut ledger = self.ledger.borrow_mut();
        ledger.check(right, || format!("call {} got something else for request {index}", plan.id));
        ledger.received(plan.id, Direction::Request, body.len());
        drop(ledger);
        serving.held.push_back(hold(body));
        self.timers.insert(env.now + plan.hold, Timer::Take(call));
        self.answer(env, call);
    }

    /// Sends as many replies as the plan and the windows allow by now, and decides when to finish.
    fn answer(&mut self, env: &mut Env<'_>, call: CallKey) {
        let Some(serving) = self.serving.get_mut(&call).filter(|serving| !serving.finished) else { return };
        let plan = &serving.plan;
        let allowed = match plan.answer {
            Answer::InTurn if !serving.half_closed => serving.received.min(plan.replies.len()),
            Answer::Afterwards if !serving.half_closed => 0,
            _ => plan.replies.len(),
        };
        // A unary answer leaves in one go, after the thinking.
        if !plan.is_unary() {
            while serving.sent < allowed && self.server.may_send(call) > 0 {
                // A call that is over refuses, and its end is an event.
                if send(&mut self.server, env, call, plan, serving.sent, &mut self.message).is_ok() {
                    self.ledger.borrow_mut().sent(plan.id, Direction::Reply, plan.replies[serving.sent]);
                }
                serving.sent += 1;
            }
        }
        let done = serving.sent == plan.replies.len() || plan.is_unary();
        if done && !serving.thinking && (serving.half_closed || plan.answer == Answer::AtOnce) {
            serving.thinking = true;
            self.timers.insert(env.now + plan.think, Timer::Finish(call));
        }
    }

    fn finish(&mut self, env: &mut Env<'_>, call: CallKey) {
        let Some(serving) = self.serving.get_mut(&call) else { return };
        serving.finished = true;
        let plan = &serving.plan;
        self.metadata.clear();
        self.metadata.append(CALL_ID, &plan.id.to_string()).expect("the value is legal");
        self.ledger.borrow_mut().note("call", "is answered (call, code):", [plan.id, plan.outcome as u64, 0]);
        // A call that is over refuses, and its end is an event.
        let _ = if plan.is_unary() {
            self.ledger.borrow_mut().sent(plan.id, Direction::Reply, plan.replies[0]);
            let write =
                |into: &mut Vec<u8>| write_message(into, plan.id, Direction::Reply, 0, plan.replies[0]);
            self.server.reply(env, call, &self.metadata, plan.replies[0], write, &self.metadata)
        } else {
            let text = if plan.outcome == Code::Ok { "" } else { "as planned, 100 %" };
            self.server.finish(env, call, &Status::new(plan.outcome, text), &self.metadata)
        };
        // What the client still sends does not count any more.
        let held = std::mem::take(&mut serving.held);
        held.into_iter().filter_map(|(block, _)| block).for_each(|block| env.pool.give(block));
    }

    fn on_finished(&mut self, env: &mut Env<'_>, call: CallKey) {
        let Some(serving) = self.serving.remove(&call) else {
            return self.ledger.borrow_mut().check(false, || "a call finished that was over".into());
        };
        let numbers = [serving.plan.id, serving.received as u64, serving.sent as u64];
        self.ledger.borrow_mut().note("call", "is served (call, requests, replies):", numbers);
        serving.held.into_iter().filter_map(|(block, _)| block).for_each(|block| env.pool.give(block));
    }

    fn on_timer(&mut self, env: &mut Env<'_>, timer: Timer) {
        match timer {
            Timer::Take(call) => {
                let held = self.serving.get_mut(&call).and_then(|serving| serving.held.pop_front());
                if let Some((block, len)) = held {
                    block.into_iter().for_each(|block| env.pool.give(block));
                    self.server.release(env, call, len);
                }
            }
            Timer::Finish(call) => self.finish(env, call),
        }
    }
}

/// Sends one reply, in the way of the plan.
fn send(
    server: &mut Server,
    env: &mut Env<'_>,
    call: CallKey,
    plan: &Plan,
    index: usize,
    message: &mut Vec<u8>,
) -> Result<(), Gone> {
    let len = plan.replies[index];
    let write = |into: &mut Vec<u8>| write_message(into, plan.id, Direction::Reply, index, len);
    if index == 0 && plan.id.is_multiple_of(3) {
        let mut metadata = MetadataMap::new();
        metadata.append(CALL_ID, &plan.id.to_string()).expect("the value is legal");
        server.send_headers(env, call, &metadata)?;
    }
    message.clear();
    match plan.way {
        Way::Encoded => server.encode_message(env, call, len, write),
        Way::Message => {
            write(message);
            server.send_message(env, call, message)
        }
        Way::Block => {
            let mut block = env.pool.take(len + 5);
            block.extend_from_slice(&prefix(len));
            write(block.tail_mut());
            server.send_framed(env, call, block)
        }
        Way::Slice => {
            message.extend_from_slice(&prefix(len));
            write(message);
            server.send_framed_slice(env, call, message)
        }
    }
}

impl Endpoint for Callee {
    type Command = Ask;

    fn receive(&mut self, env: &mut Env<'_>, bytes: &[u8]) -> Result<usize, Closed> {
        let input = Input::new(bytes);
        self.drain(env, &input)?;
        Ok(input.consumed())
    }

    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        self.server.transmit(env);
        self.drain(env, &Input::new(&[]))
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.server.next_deadline().into_iter().chain(self.timers.next()).min()
    }

    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        while let Some(timer) = self.timers.pop_expired(env.now) {
            self.on_timer(env, timer);
        }
        self.server.on_deadline(env)?;
        self.drain(env, &Input::new(&[]))
    }

    fn on_command(&mut self, env: &mut Env<'_>, ask: Ask) -> Result<(), Closed> {
        if let Ask::ShutDown = ask {
            self.server.shutdown(env);
        }
        self.drain(env, &Input::new(&[]))
    }

    fn has_work(&self, is_room: bool) -> bool {
        self.server.has_work(is_room)
    }

    fn on_wake(&mut self, _env: &mut Env<'_>, _task: TaskId) -> Result<(), Closed> {
        Ok(())
    }

    fn on_close(&mut self, env: &mut Env<'_>, closed: &Closed) {
        self.server.closed(env, closed);
        let drained = self.drain(env, &Input::new(&[]));
        let left = (drained, self.serving.len(), self.server.calls());
        self.ledger.borrow_mut().check(left == (Ok(()), 0, 0), || {
            format!("the connection is lost, and the server still has {left:?}")
        });
    }
}
