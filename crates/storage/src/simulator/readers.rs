//! Who reads: the newest state, what a majority has, and a state that stays.

use super::model::{Docs, State};
use super::run::Simulator;
use super::{Checked, Violation, ensure};
use crate::testing::{ns, number_of};
use crate::{Collection, Direction, FillLimits, IndexBatch, PinnedView, ReadView, RecordBatch};
use engine::KeyRange;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// A state that is read later.
pub(super) struct Pin {
    view: PinnedView,
    state: State,
    collections: Vec<(u64, Arc<Collection>)>,
}

/// A view shows these documents and no others, by records and by `indexes` (`_id_` apart).
pub(super) fn compare(view: &ReadView, collection: &Collection, docs: &Docs, indexes: &BTreeSet<&str>) -> Checked {
    let name = collection.namespace().collection();
    let failed = |error| Violation(format!("reading {name}: {error}"));
    let mut cursor = view
        .records(collection, Bound::Unbounded, Bound::Unbounded, Direction::Forward)
        .map_err(failed)?;
    let (mut batch, mut expected) = (RecordBatch::new(), docs.iter());
    while cursor.fill(&mut batch, FillLimits::default()).map_err(failed)? {
        for row in 0..batch.len() {
            let (id, document) = (number_of(&batch.id(row)), batch.document(row));
            let next = expected.next();
            let fits = next.is_some_and(|(record, doc)| *record == id && doc.bytes.as_bytes() == document);
            let shown = bson::RawDocument::from_bytes(document);
            ensure!(
                fits,
                "{name} at {:?} has record {id} {shown:?}, expected {next:?}",
                view.seq()
            );
        }
    }
    let missing = expected.next();
    ensure!(missing.is_none(), "{name} at {:?} lacks {missing:?}", view.seq());
    let have_all = collection
        .access_paths()
        .iter()
        .filter(|index| index.is_id() || index.name() == "n_1" && indexes.contains("n_1"));
    for index in have_all {
        let mut cursor = view
            .index_entries(index, KeyRange::all(), Direction::Forward)
            .map_err(failed)?;
        let (mut batch, mut found) = (IndexBatch::new(), BTreeSet::new());
        while cursor.fill(&mut batch, FillLimits::default()).map_err(failed)? {
            found.extend((0..batch.len()).map(|row| number_of(&batch.id(row))));
            for row in (0..batch.len()).filter(|_| index.clustering()) {
                let (id, carried) = (number_of(&batch.id(row)), batch.document(row));
                let expected = docs.get(&id).map(|doc| doc.bytes.as_bytes());
                ensure!(
                    carried == expected,
                    "{} of {name} carries another document of record {id}",
                    index.name()
                );
            }
        }
        ensure!(
            found.iter().eq(docs.keys()),
            "{} of {name} leads to {found:?}, expected {:?}",
            index.name(),
            docs.keys()
        );
    }
    Ok(())
}

impl Simulator {
    pub(super) fn read(&mut self) -> Checked {
        let all: Vec<_> = self.model.applied.collections.keys().copied().collect();
        let Some(uid) = all.get(self.pick(all.len().max(1) as u64) as usize).copied() else {
            return Ok(());
        };
        let name = self.model.applied.collections[&uid].name;
        self.say(format_args!(" {name}"));
        let found = self.found(name)?;
        self.check_documents(&found, uid)?;
        if self.one_in(2) {
            // What a majority has: who reads it is answered when all that it shows is durable.
            let seen = self.storage().last_seq();
            self.say(" of a majority");
            self.acknowledge(seen.0)?;
        }
        Ok(())
    }

    /// Begins to read a state, or goes on reading one.
    pub(super) fn pin_or_read_pinned(&mut self) -> Checked {
        if self.pins.len() > 2 || !self.pins.is_empty() && self.one_in(2) {
            let place = self.pick(self.pins.len() as u64) as usize;
            let pin = &self.pins[place];
            for (uid, collection) in &pin.collections {
                let expected = &pin.state.collections[uid];
                compare(pin.view.view(), collection, &expected.docs, &expected.indexes)?;
            }
            if self.one_in(2) {
                self.pins.swap_remove(place);
            }
            return Ok(());
        }
        let storage = self.storage();
        let view = storage.read_pinned();
        let view = view.map_err(|error| Violation(format!("no view: {error}")))?;
        let state = self.model.applied.clone();
        let collections = state.collections.iter().map(|(uid, coll)| {
            let found = storage.catalog().collection(&ns(coll.name));
            found
                .map(|found| (*uid, found))
                .ok_or_else(|| Violation(format!("{} is not there", coll.name)))
        });
        let collections = collections.collect::<Checked<_>>()?;
        self.say(format_args!(" {:?}", view.view().seq()));
        self.pins.push(Pin {
            view,
            state,
            collections,
        });
        Ok(())
    }
}
