use super::*;

/// A stream with a window, and an application that takes messages late.
struct Stream {
    credit: Credit,
    window: usize,
    /// What was received of a message that is not whole.
    part: usize,
}

const WINDOW: usize = 100;

/// The longest frame of the peer.
const FRAME: usize = 30;

impl Stream {
    fn new() -> Self {
        Self { credit: Credit::default(), window: WINDOW, part: 0 }
    }

    /// The peer sends as much of `bytes` as it may; how much it sent.
    fn receive(&mut self, bytes: usize) -> usize {
        let mut sent = 0;
        while sent < bytes && self.window > 0 {
            let now = (bytes - sent).min(self.window).min(FRAME);
            self.window -= now;
            self.credit.received(now);
            self.part += now;
            sent += now;
            if sent < bytes {
                self.settle();
            }
        }
        sent
    }

    fn hand_over(&mut self) -> usize {
        let message = std::mem::take(&mut self.part);
        self.credit.handed_over(message, message);
        self.settle();
        message
    }

    fn take(&mut self, message: usize) {
        self.credit.taken(message);
        self.settle();
    }

    fn settle(&mut self) {
        self.window += self.credit.settle();
        assert!(self.window <= WINDOW, "no more is credited than was received");
    }
}

#[test]
fn a_message_longer_than_the_window_arrives_whole() {
    let mut stream = Stream::new();
    assert_eq!(stream.receive(10 * WINDOW), 10 * WINDOW);
    let message = stream.hand_over();
    stream.take(message);
    assert_eq!(stream.window, WINDOW);
}

#[test]
fn untaken_messages_use_the_window_up_and_taking_them_opens_it() {
    let mut stream = Stream::new();
    for _ in 0..4 {
        assert_eq!(stream.receive(25), 25);
        stream.hand_over();
    }
    assert_eq!((stream.window, stream.receive(25)), (0, 0));
    stream.take(25);
    assert_eq!(stream.receive(25), 25);
}

#[test]
fn a_call_holds_at_most_a_window_and_a_message() {
    let mut stream = Stream::new();
    let message = 3 * WINDOW;
    let mut held = 0;
    loop {
        let received = stream.receive(message);
        held += received;
        if received < message {
            break;
        }
        stream.hand_over();
    }
    assert!(held <= WINDOW + message, "{held} bytes held");
}

#[test]
fn an_unfinished_message_goes_on_while_less_than_a_window_is_untaken() {
    let mut stream = Stream::new();
    assert_eq!(stream.receive(WINDOW - 1), WINDOW - 1);
    stream.hand_over();
    assert_eq!(stream.receive(5 * WINDOW), 5 * WINDOW);
}

#[test]
fn releasing_more_than_was_handed_over_credits_no_more_than_was_received() {
    let mut credit = Credit::default();
    credit.received(10);
    credit.handed_over(10, 10);
    credit.taken(usize::MAX);
    assert_eq!(credit.settle(), 10);
    assert_eq!(credit.settle(), 0);
}

/// Compressed messages that nobody has taken: each arrived in ten bytes and unfolded to a thousand.
fn compressed(messages: usize) -> Credit {
    let mut credit = Credit::default();
    for _ in 0..messages {
        credit.received(10);
        credit.unfolded(10, 1_000);
        credit.handed_over(10, 1_000);
    }
    assert_eq!((credit.settle(), credit.held()), (0, messages * 1_000));
    credit
}

#[test]
fn a_part_of_what_unfolded_stands_for_the_same_part_of_what_arrived() {
    let mut credit = compressed(4);
    for (taken, credited, held) in [(1_000, 10, 3_000), (500, 5, 2_500), (499, 4, 2_001), (2_001, 21, 0)] {
        assert_eq!(credit.taken(taken), taken);
        assert_eq!((credit.settle(), credit.held()), (credited, held), "{taken} bytes were taken");
    }
}

#[test]
fn however_compressed_messages_are_taken_all_that_arrived_is_credited_once() {
    for step in [1, 3, 7, 999, 1_001, 2_500, 100_000] {
        let (mut credit, mut credited, mut taken) = (compressed(7), 0, 0);
        while taken < 7_000 {
            taken += credit.taken(step);
            credited += credit.settle();
            assert!(credited <= 70 && credited * 100 <= taken + 100, "{credited} for {taken} bytes");
        }
        assert_eq!((credited, credit.held(), credit.settle()), (70, 0, 0), "in steps of {step}");
    }
}

#[test]
fn a_plain_message_behind_compressed_ones_shares_in_what_is_credited() {
    let mut credit = compressed(1);
    credit.received(1_000);
    credit.handed_over(1_000, 1_000);
    credit.settle();
    // Half of the bytes: half of what arrived, whichever message they were of.
    credit.taken(1_000);
    assert_eq!((credit.settle(), credit.held()), (505, 1_000));
    credit.taken(1_000);
    assert_eq!((credit.settle(), credit.held()), (505, 0));
    // From here on both lengths are the same again.
    credit.received(10);
    credit.handed_over(10, 10);
    credit.taken(4);
    assert_eq!((credit.settle(), credit.held()), (4, 6));
}

#[test]
fn a_compressed_message_that_unfolds_to_nothing_is_credited_with_the_next() {
    let mut credit = Credit::default();
    credit.received(10);
    credit.unfolded(10, 5);
    credit.handed_over(10, 5);
    // An empty message still counts with the prefix that it would have had.
    credit.taken(5);
    assert_eq!((credit.settle(), credit.held()), (10, 0));
}

#[test]
fn a_call_is_small() {
    assert!(size_of::<Call>() <= 320, "{} bytes", size_of::<Call>());
}

#[test]
fn the_memory_of_maps_that_wait_for_other_calls_is_bounded() {
    let mut calls = Calls::default();
    let value = "v".repeat(1_000);
    for _ in 0..2 * SPARE_BYTES_MAX / value.len() {
        let mut map = Box::<MetadataMap>::default();
        map.append("x-key", &value).expect("it is legal");
        calls.give_map(map);
    }
    assert!((SPARE_BYTES_MAX / 2..=SPARE_BYTES_MAX).contains(&calls.spare_bytes), "{}", calls.spare_bytes);
    let kept: usize = calls.spare.iter().map(|map| map_bytes(map)).sum();
    assert_eq!(calls.spare_bytes, kept, "what is counted is what there is");
}
