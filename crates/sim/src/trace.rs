use fulmar_base::Instant;

/// What happened in a world, as a hash: the same seed gives the same one, and a change of behaviour changes it.
///
/// FNV-1a, 64 bits, over the time, the name and the numbers of each event.
#[derive(Clone, Debug)]
pub struct Trace {
    hash: u64,
    events: u64,
    log: Option<Vec<String>>,
}

impl Trace {
    /// Nothing has happened.
    pub fn new() -> Self {
        Self { hash: 0xCBF2_9CE4_8422_2325, events: 0, log: None }
    }

    /// Keeps each event as a line for a person to read, too.
    pub fn keep_log(&mut self) {
        self.log.get_or_insert_default();
    }

    /// Somebody did something.
    pub fn event(&mut self, at: Instant, who: &str, what: &str, numbers: &[u64]) {
        self.events += 1;
        self.bytes(&at.as_nanos().to_le_bytes());
        self.bytes(who.as_bytes());
        self.bytes(what.as_bytes());
        for number in numbers {
            self.bytes(&number.to_le_bytes());
        }
        self.line(at, || {
            let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
            format!("{who:<12} {what} {}", numbers.join(", "))
        });
    }

    /// A line for a person, about something that is in the hash already. Not made if nobody reads it.
    pub fn line(&mut self, at: Instant, text: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>14} {}", format!("{at:?}"), text().trim_end()));
        }
    }

    /// Whether lines are kept.
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Bytes belong to what happened.
    pub fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    /// The hash of all that happened.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How many events happened.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The lines kept since [`keep_log`](Self::keep_log).
    pub fn log(&self) -> &[String] {
        self.log.as_deref().unwrap_or_default()
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        let mut trace = Trace::new();
        trace.bytes(b"foobar");
        assert_eq!(trace.hash(), 0x8594_4171_F739_67E8);
    }

    #[test]
    fn time_name_and_numbers_of_an_event_count() {
        let hash = |at, name, numbers: &[u64]| {
            let mut trace = Trace::new();
            trace.event(Instant::from_nanos(at), "node", name, numbers);
            trace.hash()
        };
        let base = hash(1, "receive", &[2]);
        assert_eq!(base, hash(1, "receive", &[2]));
        assert!(
            [hash(2, "receive", &[2]), hash(1, "transmit", &[2]), hash(1, "receive", &[3])]
                .iter()
                .all(|&other| other != base)
        );
    }
}
