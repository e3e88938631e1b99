//! A lock for many readers or one writer. Like [`crate::Mutex`], a panic does not poison it.
//!
//! With the feature `shuttle` it is made of the checker's mutex and condition variable, since the checker's own lock
//! knows no recursive reading.

#[cfg(not(feature = "shuttle"))]
mod plain {
    pub use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

    /// A lock for many readers or one writer.
    #[derive(Default, Debug)]
    pub struct RwLock<T> {
        inner: parking_lot::RwLock<T>,
    }

    impl<T> RwLock<T> {
        /// A free lock around `value`.
        pub fn new(value: T) -> Self {
            Self {
                inner: parking_lot::RwLock::new(value),
            }
        }

        /// Waits until nobody writes, nor waits to write. Not for a thread that reads already.
        #[inline]
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.inner.read()
        }

        /// Waits until nobody writes. A thread that reads already may call it.
        #[inline]
        pub fn read_recursive(&self) -> RwLockReadGuard<'_, T> {
            self.inner.read_recursive()
        }

        /// Reads if nobody writes, nor waits to write.
        #[inline]
        pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
            self.inner.try_read()
        }

        /// Waits until nobody reads or writes.
        #[inline]
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.inner.write()
        }
    }
}

#[cfg(feature = "shuttle")]
mod checked {
    use shuttle::sync::{Condvar, Mutex, MutexGuard};
    use std::sync::PoisonError;

    #[derive(Default)]
    struct State {
        readers: usize,
        writes: bool,
        waiting: usize,
    }

    /// A lock for many readers or one writer. The checker needs it to protect no data of its own.
    #[derive(Default)]
    pub struct RwLock<T> {
        state: Mutex<State>,
        changed: Condvar,
        value: T,
    }

    /// A reader's hold.
    pub struct RwLockReadGuard<'l, T>(&'l RwLock<T>);
    /// The writer's hold.
    pub struct RwLockWriteGuard<'l, T>(&'l RwLock<T>);

    impl<T> RwLock<T> {
        /// A free lock around `value`.
        pub fn new(value: T) -> Self {
            Self {
                state: Mutex::default(),
                changed: Condvar::new(),
                value,
            }
        }

        fn state(&self) -> MutexGuard<'_, State> {
            self.state.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn wait_while(&self, is_taken: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
            let mut state = self.state();
            while is_taken(&state) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state
        }

        /// Waits until nobody writes, nor waits to write. Not for a thread that reads already.
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.wait_while(|state| state.writes || state.waiting > 0).readers += 1;
            RwLockReadGuard(self)
        }

        /// Waits until nobody writes. A thread that reads already may call it.
        pub fn read_recursive(&self) -> RwLockReadGuard<'_, T> {
            self.wait_while(|state| state.writes).readers += 1;
            RwLockReadGuard(self)
        }

        /// Waits until nobody reads or writes.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.state().waiting += 1;
            let mut state = self.wait_while(|state| state.writes || state.readers > 0);
            state.waiting -= 1;
            state.writes = true;
            RwLockWriteGuard(self)
        }
    }

    impl<T> Drop for RwLockReadGuard<'_, T> {
        fn drop(&mut self) {
            self.0.state().readers -= 1;
            self.0.changed.notify_all();
        }
    }

    impl<T> Drop for RwLockWriteGuard<'_, T> {
        fn drop(&mut self) {
            self.0.state().writes = false;
            self.0.changed.notify_all();
        }
    }

    impl<T> std::ops::Deref for RwLockReadGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0.value
        }
    }

    impl<T> std::ops::Deref for RwLockWriteGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0.value
        }
    }
}

#[cfg(feature = "shuttle")]
pub use checked::{RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(feature = "shuttle"))]
pub use plain::{RwLock, RwLockReadGuard, RwLockWriteGuard};
