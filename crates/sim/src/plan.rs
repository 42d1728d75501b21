use std::time::Duration;

use fulmar_grpc::Code;

use crate::Random;

/// What one call does, on both ends. Drawn from the seed of the world and the call's number, so that the server's end, told the
/// number in the metadata, knows the same plan.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The number of the call in its world.
    pub(crate) id: u64,
    /// How much metadata comes along, in bytes: at times more than one frame holds.
    pub(crate) filler_bytes: usize,
    /// Lengths of the messages to the server, in bytes; never none.
    pub(crate) requests: Vec<usize>,
    /// Lengths of the messages back.
    pub(crate) replies: Vec<usize>,
    pub(crate) answer: Answer,
    /// What the server says at the end.
    pub(crate) outcome: Code,
    /// How long the server thinks before it says so.
    pub(crate) think: Duration,
    /// How long either end holds a message before it takes it: at times so long that windows are used up.
    pub(crate) hold: Duration,
    /// When the client gives up without a word to the user, after the start.
    pub(crate) cancel: Option<Duration>,
    /// The call's timeout.
    pub(crate) timeout: Option<Duration>,
    /// Which of the ways to send a message each end uses.
    pub(crate) way: Way,
}

/// When the server answers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// At once, whatever the client sends, and it ends when it has answered.
    AtOnce,
    /// One reply for each request.
    InTurn,
    /// When it has all requests.
    Afterwards,
}

/// How a message is sent: the engines have four ways, which must not differ on the wire.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Message,
    Encoded,
    Block,
    Slice,
}

/// How much the calls of a world may be.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Scale {
    pub(crate) messages_max: usize,
    pub(crate) message_bytes_max: usize,
    pub(crate) metadata_bytes_max: usize,
}

impl Plan {
    pub(crate) fn draw(seed: u64, id: u64, scale: Scale) -> Self {
        let mut random = Random::part(seed, 1000 + id);
        let messages = |random: &mut Random, least: usize| -> Vec<usize> {
            let count = if random.one_in(2) { 1 } else { random.within(least..=scale.messages_max) };
            (0..count).map(|_| random.magnitude(scale.message_bytes_max)).collect()
        };
        let requests = messages(&mut random, 1);
        let replies = messages(&mut random, 0);
        let answers = [Answer::AtOnce, Answer::InTurn, Answer::Afterwards, Answer::Afterwards];
        let outcomes = [Code::NotFound, Code::Aborted, Code::DataLoss, Code::Internal];
        let filler_max = [0, 100, scale.metadata_bytes_max][random.within(0..=2)];
        let filler_bytes = random.magnitude(filler_max);
        Self {
            id,
            filler_bytes,
            requests,
            replies,
            answer: answers[random.within(0..=3)],
            outcome: if random.one_in(4) { outcomes[random.within(0..=3)] } else { Code::Ok },
            think: random.time(Duration::from_millis(50)),
            hold: Duration::from_millis([0, 0, 0, 20, 20, 1_000][random.within(0..=5)]),
            cancel: random.one_in(10).then(|| random.time(Duration::from_secs(1))),
            timeout: random.one_in(10).then(|| random.time(Duration::from_secs(2))),
            way: [Way::Message, Way::Encoded, Way::Block, Way::Slice][random.within(0..=3)],
        }
    }

    /// Whether the call is one message each way and OK: both engines have a short way for those.
    pub(crate) fn is_unary(&self) -> bool {
        self.requests.len() == 1 && self.replies.len() == 1 && self.outcome == Code::Ok
    }
}

/// Which way a message goes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    Request = 1,
    Reply = 2,
}

/// Appends the content of a message: bytes that depend on the call, the direction, and where the message stands.
pub(crate) fn write_message(into: &mut Vec<u8>, id: u64, direction: Direction, index: usize, len: usize) {
    into.extend(content(id, direction, index).take(len));
}

/// Whether this is the message that was planned.
pub(crate) fn is_message(bytes: &[u8], id: u64, direction: Direction, index: usize, len: usize) -> bool {
    bytes.len() == len && content(id, direction, index).zip(bytes).all(|(planned, &byte)| planned == byte)
}

fn content(id: u64, direction: Direction, index: usize) -> impl Iterator<Item = u8> {
    let mut state = Random::part(id, direction as u64 * 1_000_000 + index as u64).bits() | 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(0x2545_F491_4F6C_DD1D).wrapping_add(0x1234_5677);
        (state >> 56) as u8
    })
}
