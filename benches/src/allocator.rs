//! A global allocator that counts while it is told to.

#![allow(unsafe_code)] // an allocator cannot be written without; the only unsafe code of the project

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static COUNTING: AtomicBool = AtomicBool::new(false);
/// How many allocations are still to be shown.
static SHOWN_LEFT: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, counting calls of `alloc` and `realloc` of all threads between [`start`] and [`stop`].
///
/// A program installs it with `#[global_allocator]`. While it is not counting it costs one relaxed load, so that a peer
/// that allocates much is not slowed down by being measured.
#[derive(Debug)]
pub struct CountingAllocator;

/// What was allocated between [`start`] and [`stop`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// Calls of `alloc`, `alloc_zeroed` and `realloc`.
    pub calls: u64,
    /// Bytes asked for; a `realloc` counts with what it grows by.
    pub bytes: u64,
}

/// Begins counting at zero.
pub fn start() {
    CALLS.store(0, Relaxed);
    BYTES.store(0, Relaxed);
    FREED.store(0, Relaxed);
    COUNTING.store(true, Relaxed);
}

/// Ends counting and tells what was counted.
pub fn stop() -> Allocations {
    COUNTING.store(false, Relaxed);
    Allocations { calls: CALLS.load(Relaxed), bytes: BYTES.load(Relaxed) }
}

/// By how many bytes the memory in use has grown since [`start`]; less than 0 where more was freed.
pub fn growth() -> i64 {
    BYTES.load(Relaxed) as i64 - FREED.load(Relaxed) as i64
}

/// Prints where the next so many allocations that are counted come from.
pub fn show(allocations: u64) {
    SHOWN_LEFT.store(allocations, Relaxed);
}

fn count(bytes: usize) {
    if COUNTING.load(Relaxed) {
        if SHOWN_LEFT.load(Relaxed) > 0 && !show_one(bytes) {
            return;
        }
        CALLS.fetch_add(1, Relaxed);
        BYTES.fetch_add(bytes as u64, Relaxed);
    }
}

fn count_freed(bytes: usize) {
    if COUNTING.load(Relaxed) {
        FREED.fetch_add(bytes as u64, Relaxed);
    }
}

/// Shows where an allocation comes from. False for one that showing it makes itself.
#[cold]
fn show_one(bytes: usize) -> bool {
    thread_local! {
        static SHOWING: Cell<bool> = const { Cell::new(false) };
    }
    if SHOWING.replace(true) {
        return false;
    }
    if SHOWN_LEFT.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
        eprintln!("{bytes} bytes are allocated\n{}", Backtrace::force_capture());
    }
    SHOWING.set(false);
    true
}

// SAFETY: every method hands its arguments on to `System` unchanged and returns what `System` returned; counting touches
// atomics only and allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps `alloc`'s contract, which is the same for `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above, for `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.saturating_sub(layout.size()));
        count_freed(layout.size().saturating_sub(size));
        // SAFETY: `block` came from one of these methods, so from `System`, with this `layout`.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count_freed(layout.size());
        // SAFETY: `block` came from one of these methods, so from `System`, with this `layout`.
        unsafe { System.dealloc(block, layout) }
    }
}
