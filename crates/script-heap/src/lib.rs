//! The heap that scripts allocate from: bounded, and it tells when that was felt.
//!
//! The engine's own bound makes an exception of a refused request, which a script may catch, and of which nothing is
//! left when not even the exception has room. Here a refusal is remembered until somebody asks, so that what ran out of
//! memory is known whatever became of it. Whoever needs memory at places where the engine does not bear a refusal asks
//! first whether there is room, and may have a reserve opened for them: what goes into that is given, but counts as
//! refused.
//!
//! The engine asks whether to go on between steps of a script alone, and a step may take long. Most of those that do
//! ask for memory again and again: where somebody is to be asked, what is to end gets none.
//!
//! Bytes are counted as the engine asks for them, in blocks: what is free inside of its blocks is not counted as free.

use rquickjs::allocator::{Allocator, RustAllocator};
use std::cell::{Cell, RefCell};
use std::ptr::null_mut;
use std::rc::Rc;

/// Bytes that an allocation takes beside its own.
const OVERHEAD_BYTES: usize = 16;

/// Requests between two questions whether to go on.
const REQUESTS_PER_QUESTION: u32 = 1024;

/// Says whether to end.
type Ends = Box<dyn Fn() -> bool>;

/// What the heap of one engine takes, and may take.
pub struct Heap {
    bytes: Cell<usize>,
    bytes_max: Cell<usize>,
    has_refused: Cell<bool>,
    /// How often the reserve was opened, and not yet closed.
    opened: Cell<usize>,
    reserve_bytes: usize,
    ends: RefCell<Option<Ends>>,
    requests: Cell<u32>,
    has_ended: Cell<bool>,
}

impl Heap {
    /// One of so many bytes.
    pub fn new(bytes_max: usize) -> Rc<Self> {
        Self::with_reserve(bytes_max, 0)
    }

    /// One of so many bytes, and a reserve.
    pub fn with_reserve(bytes_max: usize, reserve_bytes: usize) -> Rc<Self> {
        Rc::new(Self {
            bytes: Cell::new(0),
            bytes_max: Cell::new(bytes_max),
            has_refused: Cell::new(false),
            opened: Cell::new(0),
            reserve_bytes,
            ends: RefCell::new(None),
            requests: Cell::new(0),
            has_ended: Cell::new(false),
        })
    }

    /// Opens the reserve until it is closed as often as it was opened, or until refusals are forgotten.
    pub fn open_reserve(&self) {
        self.opened.set(self.opened.get() + 1);
    }

    /// Closes it.
    pub fn close_reserve(&self) {
        self.opened.set(self.opened.get().saturating_sub(1));
    }

    /// Has somebody asked now and then whether to end. While the reserve is open nobody is.
    pub fn ask(&self, ends: impl Fn() -> bool + 'static) {
        *self.ends.borrow_mut() = Some(Box::new(ends));
    }

    /// Whether to end was said since refusals were forgotten: until then nothing is given any more.
    pub fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// Whether this request is to end, as one of many.
    fn ends(&self) -> bool {
        if self.opened.get() > 0 {
            return false;
        }
        let requests = self.requests.get().wrapping_add(1);
        self.requests.set(requests);
        if !self.has_ended.get()
            && requests.is_multiple_of(REQUESTS_PER_QUESTION)
            && self.ends.borrow().as_ref().is_some_and(|ends| ends())
        {
            self.has_ended.set(true);
        }
        self.has_ended.get()
    }

    /// The allocator of the engine whose heap this is.
    pub fn allocator(self: &Rc<Self>) -> HeapAllocator {
        HeapAllocator(self.clone())
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Bytes that are free.
    pub fn bytes_free(&self) -> usize {
        self.bytes_max.get().saturating_sub(self.bytes.get())
    }

    /// Bounds it anew.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.set(bytes_max);
    }

    /// Whether a request was refused since that was forgotten.
    pub fn has_refused(&self) -> bool {
        self.has_refused.get()
    }

    /// Forgets that requests were refused, for whatever reason, and closes the reserve.
    pub fn forget_refusals(&self) {
        self.has_refused.set(false);
        self.has_ended.set(false);
        self.opened.set(0);
    }

    /// Whether so many bytes more may be taken; notes a refusal.
    fn allows(&self, bytes: usize) -> bool {
        if self.ends() {
            return false;
        }
        let wanted = self.bytes.get().saturating_add(bytes).saturating_add(OVERHEAD_BYTES);
        if wanted <= self.bytes_max.get() {
            return true;
        }
        self.has_refused.set(true);
        self.opened.get() > 0 && wanted <= self.bytes_max.get().saturating_add(self.reserve_bytes)
    }

    fn take(&self, pointer: *mut u8) -> *mut u8 {
        match pointer.is_null() {
            true => self.has_refused.set(true),
            false => self.bytes.set(self.bytes.get() + taken(pointer)),
        }
        pointer
    }

    fn give_back(&self, bytes: usize) {
        debug_assert!(bytes <= self.bytes.get(), "no more is given back than was taken");
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
    }
}

/// What an allocation of [`RustAllocator`] takes.
fn taken(pointer: *mut u8) -> usize {
    // SAFETY: all pointers that get here, null apart, are the ones that `RustAllocator` has given.
    unsafe { RustAllocator::usable_size(pointer) + OVERHEAD_BYTES }
}

/// Allocates within the bound of a [`Heap`].
pub struct HeapAllocator(Rc<Heap>);

// SAFETY: all memory is that of `RustAllocator`, whose pointers are handed on as they are; a refusal is a null pointer.
unsafe impl Allocator for HeapAllocator {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        match self.0.allows(size) {
            true => self.0.take(RustAllocator.alloc(size)),
            false => null_mut(),
        }
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        match self.0.allows(count.saturating_mul(size)) {
            true => self.0.take(RustAllocator.calloc(count, size)),
            false => null_mut(),
        }
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        self.0.give_back(taken(ptr));
        // SAFETY: the caller has it from here, and so it is one of `RustAllocator`.
        unsafe { RustAllocator.dealloc(ptr) }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        if ptr.is_null() {
            return self.alloc(new_size);
        }
        let bytes = taken(ptr);
        // Less than there is needs no room.
        if new_size > bytes && !self.0.allows(new_size - bytes) {
            return null_mut();
        }
        // SAFETY: the caller has it from here, and so it is one of `RustAllocator`.
        let moved = unsafe { RustAllocator.realloc(ptr, new_size) };
        if !moved.is_null() {
            self.0.give_back(bytes);
        }
        self.0.take(moved)
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: the caller has it from here, and so it is one of `RustAllocator`.
        unsafe { RustAllocator::usable_size(ptr) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_bounded_and_given_back() {
        let heap = Heap::new(1000);
        let mut allocator = heap.allocator();
        let first = allocator.alloc(400);
        assert!(!first.is_null() && heap.bytes() >= 400 && !heap.has_refused());
        assert!(allocator.calloc(1, 600).is_null() && heap.has_refused());
        heap.forget_refusals();
        assert!(!heap.has_refused());
        assert!(allocator.calloc(usize::MAX, usize::MAX).is_null());
        // SAFETY: each pointer is the allocator's, and is not used after it was given back.
        unsafe {
            let moved = allocator.realloc(first, 700);
            assert!(!moved.is_null() && heap.bytes() >= 700);
            assert!(allocator.realloc(moved, 2000).is_null());
            allocator.dealloc(moved);
        }
        assert_eq!(heap.bytes(), 0);
    }

    #[test]
    fn what_is_to_end_gets_nothing_until_that_is_forgotten() {
        let heap = Heap::with_reserve(1 << 20, 1 << 20);
        let ended = Rc::new(Cell::new(false));
        let asked = ended.clone();
        heap.ask(move || asked.get());
        let mut allocator = heap.allocator();
        let mut many = || {
            (0..2 * REQUESTS_PER_QUESTION).all(|_| {
                let given = allocator.alloc(8);
                let is_given = !given.is_null();
                if is_given {
                    // SAFETY: the pointer is the allocator's, and is not used any more.
                    unsafe { allocator.dealloc(given) };
                }
                is_given
            })
        };
        assert!(many() && !heap.has_ended());
        ended.set(true);
        heap.open_reserve();
        assert!(many() && !heap.has_ended());
        heap.close_reserve();
        assert!(!many() && heap.has_ended() && !heap.has_refused());
        ended.set(false);
        assert!(!many());
        heap.forget_refusals();
        assert!(many() && !heap.has_ended());
        assert_eq!(heap.bytes(), 0);
    }

    #[test]
    fn what_goes_into_the_reserve_is_given_and_counts_as_refused() {
        let heap = Heap::with_reserve(1000, 1000);
        let mut allocator = heap.allocator();
        assert!(allocator.alloc(1500).is_null());
        heap.forget_refusals();
        heap.open_reserve();
        let given = allocator.alloc(1500);
        assert!(!given.is_null() && heap.has_refused());
        assert!(allocator.alloc(1000).is_null());
        heap.close_reserve();
        assert!(allocator.alloc(100).is_null());
        // SAFETY: the pointer is the allocator's, and is not used any more.
        unsafe { allocator.dealloc(given) };
        assert_eq!(heap.bytes(), 0);
    }
}
