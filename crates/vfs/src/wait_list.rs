//! Requests that wait for an event without a thread: each is called once when it may have come.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Calls somebody once, by whichever of several events comes first.
pub struct Waker(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Waker {
    /// `call` is called by the thread that brings the event about, without locks of lists; it must not wait.
    pub fn new(call: Box<dyn FnOnce() + Send>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(call))))
    }

    /// Calls, the first time.
    pub fn wake(&self) {
        let call = self.0.lock().take();
        if let Some(call) = call {
            call();
        }
    }
}

/// Those who wait for an event that comes again and again.
#[derive(Default)]
pub struct WaitList {
    /// By the address of the waker.
    waiting: Mutex<HashMap<usize, Arc<Waker>>>,
    /// As many as `waiting` has.
    count: AtomicUsize,
}

impl WaitList {
    /// `waker` is called by the next event. Who looks afterwards whether the event has come, and does not find it, is
    /// called by it.
    pub fn enter(self: &Arc<Self>, waker: &Arc<Waker>) -> Registration {
        let mut waiting = self.waiting.lock();
        waiting.insert(address(waker), waker.clone());
        self.count.store(waiting.len(), Ordering::SeqCst);
        drop(waiting);
        // Pairs with the one in `wake_all`: either the event is seen now, or whoever brought it about sees the count.
        fence(Ordering::SeqCst);
        Registration {
            list: self.clone(),
            waker: waker.clone(),
        }
    }

    /// The event has come, and was stored where it is looked for. Costs a fence and a load when nobody waits.
    pub fn wake_all(&self) {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let woken = {
            let mut waiting = self.waiting.lock();
            self.count.store(0, Ordering::SeqCst);
            std::mem::take(&mut *waiting)
        };
        woken.values().for_each(|waker| waker.wake());
    }

    fn leave(&self, waker: &Arc<Waker>) {
        let mut waiting = self.waiting.lock();
        waiting.remove(&address(waker));
        self.count.store(waiting.len(), Ordering::SeqCst);
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn address(waker: &Arc<Waker>) -> usize {
    Arc::as_ptr(waker).addr()
}

/// What becomes of a request that wants to wait for an event.
pub enum Await {
    /// It waits, and its waker is called.
    Later(Registration),
    /// The event may have come.
    Now,
    /// The event will not come.
    Never,
}

/// A place on a list, left when this is dropped.
pub struct Registration {
    list: Arc<WaitList>,
    waker: Arc<Waker>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.list.is_empty() {
            self.list.leave(&self.waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted() -> (Arc<Waker>, Arc<AtomicUsize>) {
        let calls = Arc::new(AtomicUsize::new(0));
        let count = calls.clone();
        let call = Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        (Waker::new(call), calls)
    }

    #[test]
    fn each_is_called_once_by_what_comes_first() {
        let (data, change) = (Arc::new(WaitList::default()), Arc::new(WaitList::default()));
        let ((first, first_calls), (second, second_calls)) = (counted(), counted());
        let _places = [data.enter(&first), change.enter(&first), data.enter(&second)];
        assert_eq!((data.len(), change.len()), (2, 1));
        let calls = || [&first_calls, &second_calls].map(|calls| calls.load(Ordering::SeqCst));
        change.wake_all();
        assert_eq!(calls(), [1, 0]);
        data.wake_all();
        data.wake_all();
        assert_eq!(calls(), [1, 1]);
        assert!(data.is_empty() && change.is_empty());
    }

    #[test]
    fn who_leaves_is_not_called() {
        let list = Arc::new(WaitList::default());
        let ((first, first_calls), (second, second_calls)) = (counted(), counted());
        let place = list.enter(&first);
        let _other = list.enter(&second);
        drop(place);
        assert_eq!(list.len(), 1);
        list.wake_all();
        assert_eq!(
            (first_calls.load(Ordering::SeqCst), second_calls.load(Ordering::SeqCst)),
            (0, 1)
        );
    }
}
