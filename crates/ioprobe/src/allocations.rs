//! A counting allocator for tests: timed code must not allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // The counter of an ending thread is gone.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: all calls go to the system allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        System.alloc(layout)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count();
        System.dealloc(memory, layout);
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        System.realloc(memory, layout, size)
    }
}

/// Count how often this thread allocates or frees memory while doing something.
pub fn during<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = COUNT.with(Cell::get);
    let done = work();
    (COUNT.with(Cell::get) - before, done)
}

#[test]
fn an_allocation_is_seen() {
    assert_eq!(during(|| Box::new(1)).0, 1);
    assert_eq!(during(|| drop(vec![1])).0, 2);
    assert_eq!(during(|| 1).0, 0);
}
