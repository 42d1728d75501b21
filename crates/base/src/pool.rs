use std::any::Any;
use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

use crate::held::{Held, Holding};
use crate::{Output, SharedBlock, SharedMemory};

/// A page of the processors we know; see [`Block`] for what it matters here.
pub(crate) const PAGE: usize = 4096;

/// From this capacity on, blocks start half a page past the start of a page.
const PLACED_MIN: usize = 16 * 1024;

/// The smallest and the largest size class: 512 B, and 4 MiB, which is what a message of gRPC is at most by default.
const CLASS_BITS_MIN: u32 = 9;
const CLASS_BITS_MAX: u32 = 22;
const CLASSES: usize = (CLASS_BITS_MAX - CLASS_BITS_MIN + 1) as usize;

/// Recycled blocks in size classes, the powers of two from 512 B to 4 MiB.
///
/// A pool belongs to one thread. It keeps what it is given, up to a limit in bytes, so that after warm-up the allocator is not
/// called. Blocks above 4 MiB are made to measure and freed when given back.
pub struct Pool {
    free: [Vec<Block>; CLASSES],
    outputs: Vec<Output>,
    kept: Vec<Box<dyn Any + Send>>,
    shared: SharedMemory,
    retained_bytes: usize,
    retained_bytes_max: usize,
    outstanding: usize,
    held: Held,
    held_bytes_max: usize,
}

impl Pool {
    /// How many bytes [`Pool::new`] keeps for reuse at most: 16 MiB.
    pub const RETAINED_MAX_DEFAULT: usize = 16 * 1024 * 1024;

    /// How many bytes of peers a thread holds before it holds them back: 1 GiB. See [`hold`](Self::hold).
    pub const HELD_MAX_DEFAULT: usize = 1024 * 1024 * 1024;

    /// A pool without memory that keeps at most [`RETAINED_MAX_DEFAULT`](Self::RETAINED_MAX_DEFAULT) for reuse.
    pub const fn new() -> Self {
        Self::with_retained_max(Self::RETAINED_MAX_DEFAULT)
    }

    /// A pool without memory that keeps at most so many bytes for reuse.
    pub const fn with_retained_max(retained_bytes_max: usize) -> Self {
        Self {
            free: [const { Vec::new() }; CLASSES],
            outputs: Vec::new(),
            kept: Vec::new(),
            shared: SharedMemory::with_retained_max(retained_bytes_max),
            retained_bytes: 0,
            retained_bytes_max,
            outstanding: 0,
            held: Held::NOTHING,
            held_bytes_max: Self::HELD_MAX_DEFAULT,
        }
    }

    /// An empty block with room for at least `capacity_min` bytes.
    pub fn take(&mut self, capacity_min: usize) -> Block {
        self.outstanding += 1;
        let class = class_to_hold(capacity_min);
        if let Some(block) = self.free.get_mut(class).and_then(Vec::pop) {
            self.retained_bytes -= block.bytes.capacity();
            return Block { pooled: true, ..block };
        }
        let capacity =
            if class < CLASSES { class_capacity(class) } else { capacity_min.next_multiple_of(PAGE) };
        Block { pooled: true, ..Block::with_capacity(capacity) }
    }

    /// How much memory a block [taken](Self::take) for so many bytes has at most: the next power of two up to 4 MiB, whole pages
    /// above, and a page to place it.
    pub const fn block_bytes(capacity_min: usize) -> usize {
        let rounded = if capacity_min <= 1 << CLASS_BITS_MAX {
            let power = capacity_min.next_power_of_two();
            if power < 1 << CLASS_BITS_MIN { 1 << CLASS_BITS_MIN } else { power }
        } else {
            capacity_min.saturating_add(PAGE)
        };
        if rounded >= PLACED_MIN { rounded.saturating_add(PAGE) } else { rounded }
    }

    /// Takes a block back. One that never had memory, or that was not taken from a pool, is welcome too.
    pub fn give(&mut self, mut block: Block) {
        if block.pooled {
            self.outstanding = self.outstanding.saturating_sub(1);
            block.pooled = false;
        }
        let held = block.bytes.capacity();
        let kept = self.retained_bytes.saturating_add(held);
        if let Some(class) = class_to_keep(block.capacity())
            && kept <= self.retained_bytes_max
        {
            block.clear();
            self.retained_bytes = kept;
            self.free[class].push(block);
        }
    }

    /// Parts with a block that an application gets, which may keep or drop it: it is not [outstanding](Self::outstanding) any longer.
    /// It may be [given back](Self::give) all the same.
    pub fn hand_out(&mut self, block: &mut Block) {
        if std::mem::take(&mut block.pooled) {
            self.outstanding = self.outstanding.saturating_sub(1);
        }
    }

    /// Makes room for `additional` more bytes at the tail of `block`: moves what it holds to a larger block of this pool, if need
    /// be, so that growing calls no allocator after warm-up either.
    pub fn reserve(&mut self, block: &mut Block, additional: usize) {
        if block.bytes.capacity() - block.bytes.len() >= additional {
            return;
        }
        let mut larger = self.take(block.len().saturating_add(additional));
        larger.bytes.extend_from_slice(block);
        self.give(std::mem::replace(block, larger));
    }

    /// Empty memory for `capacity_min` bytes that are to become [`Bytes`]; it is [outstanding](Self::outstanding) until it is
    /// [frozen](Self::freeze_shared) or [given back](Self::give_shared). The pool remembers as much of it as of blocks at most.
    pub fn take_shared(&mut self, capacity_min: usize) -> SharedBlock {
        self.outstanding += 1;
        self.shared.take(capacity_min)
    }

    /// As [`take_shared`](Self::take_shared), where memory that was used before is free, which costs nothing.
    pub fn find_shared(&mut self, capacity_min: usize) -> Option<SharedBlock> {
        let found = self.shared.find(capacity_min)?;
        self.outstanding += 1;
        Some(found)
    }

    /// What was written into memory [taken](Self::take_shared) here. The pool uses the memory again when all of that is dropped.
    pub fn freeze_shared(&mut self, memory: SharedBlock) -> Bytes {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.shared.freeze(memory)
    }

    /// Takes memory back that was not frozen.
    pub fn give_shared(&mut self, memory: SharedBlock) {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.shared.give(memory);
    }

    /// An empty output, with the memory of one given back earlier if there is one. Connections with nothing to say hold none.
    pub fn take_output(&mut self) -> Output {
        let output = self.outputs.pop().unwrap_or_default();
        self.retained_bytes -= output.capacity();
        output
    }

    /// Takes an output back; what still waits in it is dropped.
    pub fn give_output(&mut self, mut output: Output) {
        output.clear();
        let kept = self.retained_bytes.saturating_add(output.capacity());
        if output.capacity() > 0 && kept <= self.retained_bytes_max {
            self.retained_bytes = kept;
            self.outputs.push(output);
        }
    }

    /// Keeps something for whoever lends this pool next and [asks](Self::take_kept) for its type: what a thread needs once, and its
    /// connections by turns. It bounds itself, and does not count as [retained](Self::retained_bytes). There is one of each type at
    /// most: it takes the place of one that is kept already.
    pub fn keep<T: Any + Send>(&mut self, thing: Box<T>) {
        drop(self.take_kept::<T>());
        self.kept.push(thing);
    }

    /// What is [kept](Self::keep) of this type.
    pub fn take_kept<T: Any + Send>(&mut self) -> Option<Box<T>> {
        let index = self.kept.iter().position(|thing| (**thing).is::<T>())?;
        self.kept.swap_remove(index).downcast().ok()
    }

    /// How many blocks were taken and neither given back nor [handed out](Self::hand_out). A world at rest has none: anything else is a leak.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Counts bytes that a peer has sent and that nobody has taken yet, wherever they lie: in blocks of this pool, or in memory of
    /// an application's that waits to read them. All connections of a thread count here, so that each can see when the thread
    /// holds too much; the pool itself refuses nothing.
    pub fn hold(&mut self, bytes: usize) {
        self.held.add(bytes);
    }

    /// Counts bytes that were [held](Self::hold) and are not any longer.
    pub fn unhold(&mut self, bytes: usize) {
        self.held.subtract(bytes);
    }

    /// [`hold`](Self::hold) on the account of a connection.
    #[inline]
    pub fn hold_for(&mut self, holding: &mut Holding, bytes: usize) {
        self.held.add_to(holding, bytes);
    }

    /// [`unhold`](Self::unhold) on the account of a connection.
    #[inline]
    pub fn unhold_for(&mut self, holding: &mut Holding, bytes: usize) {
        self.held.subtract_from(holding, bytes);
    }

    /// Whether the thread holds `spare` bytes more than it [may](Self::held_bytes_max), and this connection is one that has to see
    /// to it: none holds twice as much. One that holds less is not to suffer for what its neighbours do.
    #[inline]
    pub fn is_overdrawn_by(&self, holding: &Holding, spare: usize) -> bool {
        self.held.bytes() > self.held_bytes_max.saturating_add(spare)
            && self.held.is_among_the_greediest(holding)
    }

    /// How many bytes are [held](Self::hold).
    pub fn held_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// How many bytes may be [held](Self::hold) before the connections that hold most give their peers no more credit. Default:
    /// [`HELD_MAX_DEFAULT`](Self::HELD_MAX_DEFAULT).
    #[inline]
    pub fn held_bytes_max(&self) -> usize {
        self.held_bytes_max
    }

    /// Sets [`held_bytes_max`](Self::held_bytes_max).
    pub fn set_held_bytes_max(&mut self, bytes: usize) {
        self.held_bytes_max = bytes;
    }

    /// How many bytes wait for reuse.
    pub fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    /// How many bytes of memory for `Bytes` are remembered, in use or not.
    pub fn shared_bytes(&self) -> usize {
        self.shared.retained_bytes()
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("outstanding", &self.outstanding)
            .field("retained_bytes", &self.retained_bytes)
            .field("retained_bytes_max", &self.retained_bytes_max)
            .field("held", &self.held)
            .finish()
    }
}

/// An owned block of bytes: append at the tail, consume at the head.
///
/// A block taken from a [`Pool`] does not go back by itself: its owner gives it back with [`Pool::give`]. Dropping it frees it, and
/// the pool goes on to count it as [outstanding](Pool::outstanding).
///
/// Blocks of 16 KiB and more start half a page past the start of a page. A large allocation starts at one, and so does the scratch
/// a reactor reads into; the frame head and the message prefix then put the bytes of a message 14 bytes past it. Copies of
/// 4 KiB and more between two such places run 15 to 25 times slower on some processors, which mistake the loads for reads of what
/// was just stored (they compare the low twelve bits of addresses only).
#[derive(Default)]
pub struct Block {
    /// The bytes, behind `head` bytes that are padding or were consumed.
    bytes: Vec<u8>,
    head: usize,
    /// Whether a pool counts this block as outstanding.
    pooled: bool,
}

impl Block {
    fn with_capacity(capacity: usize) -> Self {
        let padding_max = if capacity >= PLACED_MIN { PAGE } else { 0 };
        let mut block =
            Self { bytes: Vec::with_capacity(capacity.saturating_add(padding_max)), head: 0, pooled: false };
        block.clear();
        block
    }

    /// Copies bytes to the tail.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Makes room for `additional` more bytes at the tail. A block that must grow at least doubles, with memory of the allocator;
    /// [`Pool::reserve`] takes it from the pool.
    pub fn reserve(&mut self, additional: usize) {
        if self.bytes.capacity() - self.bytes.len() >= additional {
            return;
        }
        let needed = self.len().saturating_add(additional);
        if needed <= self.capacity() && self.len() <= self.head {
            // More was consumed than is left: moving the rest to the front pays.
            return self.move_to_front();
        }
        let capacity = needed.max(self.capacity().saturating_mul(2)).max(class_capacity(0));
        let mut larger = Self::with_capacity(capacity.checked_next_power_of_two().unwrap_or(capacity));
        larger.bytes.extend_from_slice(self);
        larger.pooled = self.pooled;
        *self = larger;
    }

    /// The tail, to append to and for nothing else: what lies in the vector already belongs to the block. Call
    /// [`reserve`](Self::reserve) before; a vector that grows by itself forgets where the block should start.
    pub fn tail_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Drops all bytes and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.head = self.start();
        self.bytes.resize(self.head, 0);
    }

    /// Drops `n` bytes from the head, at most all.
    pub fn consume(&mut self, n: usize) {
        if n >= self.len() {
            self.clear();
        } else {
            self.head += n;
        }
    }

    /// How many bytes the block holds.
    pub fn len(&self) -> usize {
        self.bytes.len().saturating_sub(self.head)
    }

    /// Whether the block holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes the block holds without growing, when it was empty before.
    pub fn capacity(&self) -> usize {
        let held = self.bytes.capacity();
        if held >= PLACED_MIN + PAGE { held - PAGE } else { held }
    }

    /// Bytes of memory held, used or not.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Where in its memory an empty block starts.
    fn start(&self) -> usize {
        if self.bytes.capacity() < PLACED_MIN + PAGE {
            return 0;
        }
        (PAGE / 2).wrapping_sub(self.bytes.as_ptr().addr()) % PAGE
    }

    fn move_to_front(&mut self) {
        let (len, start) = (self.len(), self.start());
        self.bytes.copy_within(self.head.., start);
        self.bytes.truncate(start + len);
        self.head = start;
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(self.head..).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("len", &self.len()).field("capacity", &self.capacity()).finish()
    }
}

/// The smallest class whose blocks hold `capacity` bytes; [`CLASSES`] or more if none does.
fn class_to_hold(capacity: usize) -> usize {
    let bits = capacity.max(1).checked_next_power_of_two().map_or(usize::BITS, usize::trailing_zeros);
    bits.saturating_sub(CLASS_BITS_MIN) as usize
}

/// The largest class that a block of `capacity` serves; `None` if it is too small or too large to be kept.
fn class_to_keep(capacity: usize) -> Option<usize> {
    if capacity > 1 << CLASS_BITS_MAX {
        return None;
    }
    let class = capacity.checked_ilog2()?.checked_sub(CLASS_BITS_MIN)?;
    Some(class as usize)
}

fn class_capacity(class: usize) -> usize {
    1 << (class + CLASS_BITS_MIN as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn offset_in_page(block: &Block) -> usize {
        block.as_ptr().addr() % PAGE
    }

    #[test]
    fn a_block_given_back_is_taken_again() {
        let mut pool = Pool::new();
        let mut block = pool.take(700);
        block.extend_from_slice(&[1; 700]);
        let memory = block.as_ptr();
        pool.give(block);
        let block = pool.take(1024);
        assert_eq!((block.as_ptr(), block.len(), block.capacity()), (memory, 0, 1024));
        assert_ne!(pool.take(1024).as_ptr(), memory);
    }

    #[test]
    fn a_block_that_is_handed_out_is_nobodys_debt_and_welcome_back() {
        let mut pool = Pool::new();
        let mut kept = pool.take(1_000);
        let mut returned = pool.take(1_000);
        pool.hand_out(&mut kept);
        pool.hand_out(&mut returned);
        pool.hand_out(&mut returned);
        assert_eq!(pool.outstanding(), 0);
        pool.give(returned);
        drop(kept);
        let other = pool.take(1_000);
        assert_eq!(pool.outstanding(), 1);
        pool.give(other);
        assert_eq!(pool.outstanding(), 0);
    }

    #[test]
    fn outstanding_counts_what_was_taken_and_not_given_back() {
        let mut pool = Pool::new();
        let (first, second) = (pool.take(0), pool.take(100_000));
        assert_eq!(pool.outstanding(), 2);
        pool.give(first);
        pool.give(Block::default());
        assert_eq!(pool.outstanding(), 1);
        drop(second);
        assert_eq!(pool.outstanding(), 1);
    }

    #[test]
    fn a_block_made_elsewhere_does_not_hide_a_leak() {
        let mut pool = Pool::new();
        let taken = pool.take(10);
        let mut own = Block::default();
        own.extend_from_slice(&[0; 600]);
        pool.give(own);
        assert_eq!(pool.outstanding(), 1);
        assert!(pool.retained_bytes() >= 600);
        pool.give(taken);
        assert_eq!(pool.outstanding(), 0);
    }

    #[test]
    fn retained_bytes_stay_below_their_limit() {
        let mut pool = Pool::with_retained_max(10_000);
        let blocks: Vec<_> = (0..20).map(|_| pool.take(1024)).collect();
        for block in blocks {
            pool.give(block);
        }
        assert_eq!(pool.retained_bytes(), 9 * 1024);
        pool.take(1024);
        assert_eq!(pool.retained_bytes(), 8 * 1024);
    }

    #[test]
    fn blocks_above_the_largest_class_are_freed() {
        let mut pool = Pool::new();
        let block = pool.take((1 << 22) + 1);
        assert!(block.capacity() > 1 << 22);
        pool.give(block);
        assert_eq!((pool.retained_bytes(), pool.outstanding()), (0, 0));
        let block = pool.take(1 << 22);
        pool.give(block);
        assert!(pool.retained_bytes() >= 1 << 22);
    }

    #[test]
    fn large_blocks_start_half_a_page_past_a_page() {
        let mut pool = Pool::new();
        for capacity in [16 * 1024, 20_000, 1 << 20, 3 << 20, 9 << 20] {
            let mut block = pool.take(capacity);
            let held = block.bytes.capacity();
            assert_eq!(offset_in_page(&block), PAGE / 2);
            block.extend_from_slice(&vec![1; capacity]);
            assert_eq!(
                (offset_in_page(&block), block.bytes.capacity()),
                (PAGE / 2, held),
                "no growth needed"
            );
            block.consume(capacity);
            assert_eq!(offset_in_page(&block), PAGE / 2);
            pool.give(block);
        }
    }

    #[test]
    fn a_block_that_grows_keeps_its_place_in_the_page_and_its_bytes() {
        let mut block = Block::default();
        let piece: Vec<u8> = (0..=255).collect();
        for _ in 0..1000 {
            block.extend_from_slice(&piece);
            assert!(block.capacity() < PLACED_MIN || offset_in_page(&block) == PAGE / 2);
        }
        assert!(block.chunks(256).all(|chunk| chunk == piece));
        assert_eq!(block.len(), 256_000);
    }

    #[test]
    fn growing_in_the_pool_reuses_its_blocks() {
        let mut pool = Pool::new();
        let grow = |pool: &mut Pool| {
            let mut block = pool.take(512);
            for n in 0..100u8 {
                pool.reserve(&mut block, 1000);
                block.extend_from_slice(&[n; 1000]);
            }
            assert!(block.chunks(1000).zip(0..).all(|(chunk, n)| chunk == [n; 1000]));
            assert_eq!(pool.outstanding(), 1);
            pool.give(block);
        };
        grow(&mut pool);
        let retained = pool.retained_bytes();
        grow(&mut pool);
        assert_eq!((pool.retained_bytes(), pool.outstanding()), (retained, 0));
    }

    #[test]
    fn a_block_agrees_with_a_plain_vector() {
        for seed in 0..10 {
            let mut random = Random::new(seed);
            let mut pool = Pool::with_retained_max(1 << 20);
            let (mut block, mut model) = (pool.take(random.below(40_000)), Vec::new());
            for _ in 0..400 {
                let n = random.below(5_000);
                match random.below(8) {
                    0..3 => {
                        let bytes = random.bytes(n);
                        block.extend_from_slice(&bytes);
                        model.extend_from_slice(&bytes);
                    }
                    3 => {
                        block.tail_mut().extend_from_slice(&[3; 77]);
                        model.extend_from_slice(&[3; 77]);
                    }
                    4 => pool.reserve(&mut block, n),
                    5 if random.below(10) == 0 => {
                        block.clear();
                        model.clear();
                    }
                    _ => {
                        block.consume(n);
                        model.drain(..n.min(model.len()));
                    }
                }
                assert_eq!(&block[..], model, "seed {seed}");
                assert_eq!(pool.outstanding(), 1);
            }
            pool.give(block);
            assert_eq!(pool.outstanding(), 0);
        }
    }

    #[test]
    fn an_output_given_back_is_taken_again_empty_and_warm() {
        let mut pool = Pool::with_retained_max(100_000);
        let mut output = pool.take_output();
        assert_eq!(output.capacity(), 0);
        output.extend_from_slice(&[1; 60_000]);
        let held = output.capacity();
        pool.give_output(output);
        assert_eq!(pool.retained_bytes(), held);
        let warm = pool.take_output();
        assert_eq!((warm.capacity(), warm.len(), pool.retained_bytes()), (held, 0, 0));
        pool.give_output(warm);
        let mut over = Output::new();
        over.extend_from_slice(&[1; 60_000]);
        pool.give_output(over);
        assert_eq!(pool.retained_bytes(), held, "the second one is over the limit");
    }

    #[test]
    fn sizes_that_no_class_holds_do_not_overflow() {
        assert!(class_to_hold(usize::MAX) >= CLASSES);
        assert_eq!(class_to_hold(0), 0);
        assert_eq!(class_to_hold(513), 1);
        assert_eq!(class_to_keep(511), None);
        assert_eq!(class_to_keep(1023), Some(0));
        assert_eq!(class_to_keep((1 << 22) + 1), None);
    }

    #[test]
    fn a_block_has_no_more_memory_than_is_said_of_it() {
        let mut pool = Pool::new();
        for capacity in [0, 1, 511, 512, 513, 16_383, 16_384, 16_385, 1 << 22, (1 << 22) + 1, 5_000_000] {
            let block = pool.take(capacity);
            let (held, most) = (block.memory_bytes(), Pool::block_bytes(capacity));
            assert!(held <= most && most <= held + 2 * PAGE, "{capacity}: {held}, {most}");
            pool.give(block);
        }
    }

    #[test]
    fn one_thing_of_each_type_is_kept_until_it_is_asked_for() {
        let mut pool = Pool::new();
        pool.keep(Box::new(1_u8));
        pool.keep(Box::new(2_u8));
        pool.keep(Box::new("three".to_owned()));
        assert_eq!(pool.take_kept::<u8>().as_deref(), Some(&2));
        assert_eq!(pool.take_kept::<u8>(), None);
        assert_eq!(pool.take_kept::<String>().as_deref().map(String::as_str), Some("three"));
        assert_eq!(pool.retained_bytes(), 0);
    }
}
