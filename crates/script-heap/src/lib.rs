//! The heap that scripts allocate from: bounded, and it tells when that was felt.
//!
//! The engine's own bound makes an exception of a refused request, which a script may catch, and of which nothing is
//! left when not even the exception has room. Here a refusal is remembered until somebody asks, so that what ran out of
//! memory is known whatever became of it. Whoever needs memory at places where the engine does not bear a refusal asks
//! first whether there is room, and may have a reserve opened for them: what goes into that is given, but counts as
//! refused.
//!
//! Bytes are counted as the engine asks for them, in blocks: what is free inside of its blocks is not counted as free.

use rquickjs::allocator::{Allocator, RustAllocator};
use std::cell::Cell;
use std::ptr::null_mut;
use std::rc::Rc;

/// Bytes that an allocation takes beside its own.
const OVERHEAD_BYTES: usize = 16;

/// What the heap of one engine takes, and may take.
#[derive(Debug)]
pub struct Heap {
    bytes: Cell<usize>,
    bytes_max: Cell<usize>,
    has_refused: Cell<bool>,
    /// How often the reserve was opened, and not yet closed.
    opened: Cell<usize>,
    reserve_bytes: usize,
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

    /// Forgets that requests were refused, and closes the reserve.
    pub fn forget_refusals(&self) {
        self.has_refused.set(false);
        self.opened.set(0);
    }

    /// Whether so many bytes more may be taken; notes a refusal.
    fn allows(&self, bytes: usize) -> bool {
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
