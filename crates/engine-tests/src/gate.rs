//! A gate before the machine's files: while it is shut, nobody changes anything.
//!
//! It shows one moment of a directory in which an engine's threads go on writing. Files that an engine opens by itself
//! do not pass the gate.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use vfs::Watch;

/// Who holds it shared may change one thing.
#[derive(Default)]
pub(crate) struct Gate(RwLock<()>);

impl Gate {
    /// Nothing changes until the guard goes.
    pub(crate) fn shut(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch for Gate {
    type Held<'w> = Option<RwLockReadGuard<'w, ()>>;

    fn change(&self) -> Self::Held<'_> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A sync changes nothing that a copy would show.
    fn sync(&self) -> Self::Held<'_> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use vfs::{Access, FileSystem, RealFs, WatchedFs};

    #[test]
    fn nothing_changes_while_the_gate_is_shut() {
        let directory = tempfile::TempDir::new().unwrap();
        let fs = WatchedFs::new(Arc::new(RealFs::new()), Gate::default());
        let files = ["a", "b"].map(|name| fs.open(&directory.path().join(name), Access::CreateNew).unwrap());
        files.iter().for_each(|file| file.write_all_at(&[0; 8], 0).unwrap());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let _stop = scopeguard::guard(&done, |done| done.store(true, Ordering::Relaxed));
            scope.spawn(|| {
                let mut round = 0u64;
                while !done.load(Ordering::Relaxed) {
                    round += 1;
                    files
                        .iter()
                        .for_each(|file| file.write_all_at(&round.to_le_bytes(), 0).unwrap());
                }
            });
            let mut last = 0;
            while last < 1000 {
                let shut = fs.watch().shut();
                let read = |index: usize| {
                    let mut bytes = [0; 8];
                    files[index].read_exact_at(&mut bytes, 0).unwrap();
                    u64::from_le_bytes(bytes)
                };
                let (first, second, again) = (read(0), read(1), read(0));
                assert_eq!(first, again);
                assert!(first == second || first == second + 1, "{first} {second}");
                last = second;
                drop(shut);
                thread::yield_now();
            }
        });
    }
}
