//! The writers' lock. A panic while it is held does not poison it: whoever holds one leaves its data consistent at
//! every point where it can panic, or panics for good.

#[cfg(not(feature = "shuttle"))]
pub use parking_lot::MutexGuard;
#[cfg(feature = "shuttle")]
pub use shuttle::sync::MutexGuard;

/// A mutual-exclusion lock.
#[derive(Default, Debug)]
pub struct Mutex<T> {
    #[cfg(not(feature = "shuttle"))]
    inner: parking_lot::Mutex<T>,
    #[cfg(feature = "shuttle")]
    inner: shuttle::sync::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A free lock around `value`.
    pub fn new(value: T) -> Self {
        Self {
            #[cfg(not(feature = "shuttle"))]
            inner: parking_lot::Mutex::new(value),
            #[cfg(feature = "shuttle")]
            inner: shuttle::sync::Mutex::new(value),
        }
    }

    /// Waits for the lock and takes it.
    #[cfg(not(feature = "shuttle"))]
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.inner.lock()
    }

    /// Waits for the lock and takes it.
    #[cfg(feature = "shuttle")]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    /// Takes the lock if nobody has it.
    #[cfg(not(feature = "shuttle"))]
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock()
    }

    /// Takes the lock if nobody has it.
    #[cfg(feature = "shuttle")]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock().ok()
    }
}
