//! What befalls the machine.

use super::run::Simulator;
use super::{Checked, ensure};
use vfs::{Fault, FaultKind};

impl Simulator {
    pub(super) fn harm(&mut self) -> Checked {
        match self.pick(12) {
            0 | 1 => {
                self.say(" power");
                self.machine.fs.crash();
                self.is_down = true;
            }
            2 | 3 => {
                let at = 1 + self.pick(12);
                self.say(format_args!(" power in {at} operations"));
                self.machine.fs.crash_at(self.machine.fs.operations() + at);
                self.is_harmed = true;
            }
            4 => {
                let (kind, after) = match self.pick(3) {
                    0 => (FaultKind::WriteError, self.pick(4)),
                    _ => (FaultKind::SyncError, self.pick(3)),
                };
                self.say(format_args!(" {kind:?} after {after}"));
                self.machine.fs.inject(Fault::new(kind).after(after));
                self.is_harmed = true;
            }
            5 | 6 if !self.is_full => {
                let bytes = self.pick(30_000);
                self.say(format_args!(" {bytes} bytes are free"));
                self.machine.fs.set_free_bytes(Some(bytes));
                self.is_full = true;
            }
            5..=8 => {
                self.say(" room");
                self.machine.fs.set_free_bytes(None);
                self.is_full = false;
            }
            9 | 10 => return self.end_cleanly(),
            _ => {
                // The process dies, the machine goes on: what was written is there, synced or not.
                self.say(" power");
                self.machine.fs.crash();
                self.is_down = true;
            }
        }
        Ok(())
    }

    fn end_cleanly(&mut self) -> Checked {
        let storage = self.storage();
        if !self.settle(40)? {
            return Ok(());
        }
        self.say(" close");
        self.is_down = true;
        if let Err(error) = storage.close(true) {
            return self.failed(&error);
        }
        let last = storage.log().last_seq().0;
        ensure!(
            storage.log().durable_seq().0 == last,
            "closed cleanly, and {last} is not durable"
        );
        self.acknowledged = last;
        drop(storage);
        self.restart()?;
        // A start that was cut off can have begun a term.
        let replayed = self.storage().stats().replayed_entries;
        ensure!(
            replayed <= self.starts_cut_off,
            "{replayed} entries replayed after a clean end"
        );
        Ok(())
    }
}
