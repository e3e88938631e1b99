//! A value that has left its cell.
//!
//! Like a `Box` whose type was forgotten: dropping it drops the value. It must be kept until no guard is left under
//! which the value can have been loaded, see `epoch`.

use crate::cell::RcuOption;
use crate::waiting::Weight;

/// See the module.
pub(crate) struct Retired {
    value: *mut (),
    /// A cell inside the value that is to be emptied first; null for none.
    link: *const (),
    free: unsafe fn(*mut (), *const ()),
    bytes: usize,
}

// SAFETY: it owns a value of a type that is `Send` (`new` and `without_link` demand it), and `link` points into that.
unsafe impl Send for Retired {}

impl Retired {
    /// Of a pointer from `Box::into_raw` that nobody else will free; `bytes` go with it besides the value itself.
    ///
    /// # Safety
    ///
    /// The pointer is the only one by which the value can be reached from now on, but for references loaded under
    /// guards that live now.
    #[inline]
    pub(crate) unsafe fn new<T: Send + Sync + 'static>(value: *mut T, bytes: usize) -> Self {
        /// # Safety
        ///
        /// `value` is as for `Retired::new`, and no reference is left.
        unsafe fn free<T>(value: *mut (), _: *const ()) {
            // SAFETY: as demanded, it came from a `Box` of that type, and this is the one time.
            drop(unsafe { Box::from_raw(value.cast::<T>()) });
        }
        Self::weighed(value.cast(), std::ptr::null(), free::<T>, size_of::<T>() + bytes)
    }

    /// As [`Retired::new`], for a value that has left a chain whose rest stays: `link` is the cell inside it that
    /// points to the rest.
    ///
    /// # Safety
    ///
    /// As for [`Retired::new`]; `link` lies inside the value, and what it points to is in another cell.
    #[inline]
    pub(crate) unsafe fn without_link<T: Send + Sync + 'static>(value: *mut T, link: *const RcuOption<T>) -> Self {
        /// # Safety
        ///
        /// `value` and `link` are as for `Retired::without_link`, and no reference is left.
        unsafe fn free<T: Send + Sync + 'static>(value: *mut (), link: *const ()) {
            // SAFETY: as demanded, `link` lies inside the value, which is dropped only behind this; nobody else can
            // reach it.
            unsafe { (*link.cast::<RcuOption<T>>()).forget() };
            // SAFETY: as in `new`.
            drop(unsafe { Box::from_raw(value.cast::<T>()) });
        }
        Self::weighed(value.cast(), link.cast(), free::<T>, size_of::<T>())
    }

    #[inline]
    fn weighed(value: *mut (), link: *const (), free: unsafe fn(*mut (), *const ()), bytes: usize) -> Self {
        Weight::of(bytes).retired();
        Self {
            value,
            link,
            free,
            bytes,
        }
    }

    /// What it is said to take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: whoever made it has promised that nobody else frees the value; it is kept until no guard is left
        // under which it can have been loaded.
        unsafe { (self.free)(self.value, self.link) };
        Weight::of(self.bytes).freed();
    }
}
