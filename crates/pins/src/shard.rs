//! A part of the register, under a lock of its own.

use crate::register::Holder;
use engine::Seq;
use std::collections::VecDeque;

/// How many hold a position.
#[derive(Clone, Copy, Debug)]
struct Open {
    seq: Seq,
    readers: u32,
    engine: u32,
}

impl Open {
    fn count(&mut self, holder: Holder) -> &mut u32 {
        match holder {
            Holder::Reader => &mut self.readers,
            Holder::Engine => &mut self.engine,
        }
    }

    fn is_over(&self) -> bool {
        self.readers == 0 && self.engine == 0
    }

    /// How many of them count, readers below `expired` not among them.
    fn held(&self, expired: Seq) -> u32 {
        if self.seq < expired {
            self.engine
        } else {
            self.readers + self.engine
        }
    }
}

/// See the module.
///
/// Invariants: positions rise; the first and the last are held; of the others at most half are over.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    open: VecDeque<Open>,
    over: usize,
}

impl Shard {
    /// `seq` is no older than any that was pinned here before.
    pub(crate) fn pin(&mut self, seq: Seq, holder: Holder) {
        match self.open.back_mut() {
            Some(last) if last.seq == seq => *last.count(holder) += 1,
            last => {
                debug_assert!(last.is_none_or(|last| last.seq < seq), "positions rise");
                let mut open = Open {
                    seq,
                    readers: 0,
                    engine: 0,
                };
                *open.count(holder) = 1;
                self.open.push_back(open);
            }
        }
    }

    pub(crate) fn unpin(&mut self, seq: Seq, holder: Holder) {
        let index = self
            .open
            .binary_search_by_key(&seq, |open| open.seq)
            .expect("an open snapshot is registered");
        let open = &mut self.open[index];
        *open.count(holder) -= 1;
        if !open.is_over() {
            return;
        }
        self.over += 1;
        // Most are at one of the ends. Those in the middle go together: each that ends pays for itself and one that
        // stays.
        while self.open.front().is_some_and(Open::is_over) {
            self.open.pop_front();
            self.over -= 1;
        }
        while self.open.back().is_some_and(Open::is_over) {
            self.open.pop_back();
            self.over -= 1;
        }
        if self.over > self.open.len() / 2 {
            self.open.retain(|open| !open.is_over());
            self.over = 0;
        }
        self.check_invariants();
    }

    /// The held positions, rising, and how many hold each.
    pub(crate) fn held(&self, expired: Seq) -> impl Iterator<Item = (Seq, u32)> {
        let held = self.open.iter().map(move |open| (open.seq, open.held(expired)));
        held.filter(|&(_, count)| count > 0)
    }

    /// The oldest position that such a holder has, readers below `expired` left out.
    pub(crate) fn oldest_of(&self, holder: Holder, expired: Seq) -> Option<Seq> {
        let is_held = |open: &&Open| match holder {
            Holder::Reader => open.readers > 0 && open.seq >= expired,
            Holder::Engine => open.engine > 0,
        };
        self.open.iter().find(is_held).map(|open| open.seq)
    }

    fn check_invariants(&self) {
        debug_assert_eq!(self.over, self.open.iter().filter(|open| open.is_over()).count());
        debug_assert!(self.over <= self.open.len() / 2);
        debug_assert!(!self.open.front().is_some_and(Open::is_over) && !self.open.back().is_some_and(Open::is_over));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_does_not_pile_up_behind_an_open_snapshot() {
        let mut shard = Shard::default();
        shard.pin(Seq(1), Holder::Reader);
        for seq in 2..1000 {
            shard.pin(Seq(seq), Holder::Reader);
            if seq > 10 {
                shard.unpin(Seq(seq - 5), Holder::Reader);
            }
            assert!(shard.open.len() <= 24, "{} after {seq}", shard.open.len());
        }
        let held: Vec<_> = shard.held(Seq::ZERO).map(|(seq, _)| seq.0).collect();
        assert_eq!(held, [1, 2, 3, 4, 5, 995, 996, 997, 998, 999]);
    }
}
