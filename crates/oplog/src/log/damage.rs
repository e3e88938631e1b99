//! Damage that is met while the log is open, in entries that only readers of history want.

use super::Log;
use crate::recovery::behind_damage;
use crate::scan::{Scanner, SegmentFile};
use crate::{EngineAhead, Result};
use engine::Seq;
use std::sync::atomic::Ordering;
use vfs::Access;

impl Log {
    /// Has history begin behind the damage that a reader met on its way to the entry `wanted`, as behind one that was
    /// stepped over at opening. `durable` is the engine's mark: where an entry behind it may lie in the damage, all
    /// stays as it is. Answers the first entry behind the damage; `None` where there is none to be stepped over.
    ///
    /// Errors: `Corrupt`, where an entry is needed that lies in the damage; `NoDescriptors`, `Io`.
    pub fn step_over_damage(&self, wanted: Seq, durable: Seq) -> Result<Option<Seq>> {
        let shared = &*self.shared;
        shared.check_open()?;
        let durable = durable.min(self.durable_seq());
        let Some(segment) = shared.catalog.find(wanted) else {
            return Ok(None);
        };
        let (first, offset) = segment.nearest(wanted);
        let file = SegmentFile::open(&*shared.disk.fs, &segment.path, Access::Read)?;
        let mut scanner = Scanner::starting(file, first, offset);
        while scanner.next_seq() <= wanted && scanner.next_frame()?.is_some() {}
        if scanner.next_seq() > wanted {
            return Ok(None);
        }
        let first = match behind_damage(&mut scanner, durable, EngineAhead::Refuse)? {
            Some((offset, first)) => {
                segment.mark_behind_damage(first, offset);
                Some(first)
            }
            // Nothing good stands behind it in its segment.
            None => shared
                .catalog
                .end_of(segment.header.number)
                .filter(|next| *next > wanted && *next <= durable.next()),
        };
        if let Some(first) = first {
            shared.readable_from.fetch_max(first.0, Ordering::AcqRel);
        }
        Ok(first)
    }
}
