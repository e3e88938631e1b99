//! What happens in a run: options and sizes from one seed, and the event at each position.

use crate::dice::{Dice, scrambled};
use crate::model::Model;
use codec::Codec;
use engine::{Batch, KeyRange, Seq, TableId, TableKind, TableSpec};
use engine_betree::BetreeOptions;
use engine_btree::BtreeOptions;
use std::ops::Bound;

/// Longest value.
const LARGE_BYTES_MAX: u64 = 30 << 10;

/// Options of the engine and sizes of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where all of it came from.
    pub seed: u64,
    /// How the engine is opened.
    pub options: BtreeOptions,
    /// The engine is betree instead, opened so.
    pub betree: Option<BetreeOptions>,
    /// Tables at one time, at most.
    pub tables_max: u64,
    /// Different keys of a table.
    pub keys: u64,
    /// Operations of a batch, at most.
    pub batch_ops_max: u64,
    /// Bytes of a usual value, at most.
    pub value_bytes_max: u64,
    /// Values that get blocks of their own, in percent.
    pub large_percent: u64,
    /// Rows of a load, at most.
    pub load_rows_max: u64,
    /// A load becomes visible before its rows are there, so that a crash may leave a table without them.
    pub late_loads: bool,
}

impl Plan {
    /// Everything small: many structural changes for few rows.
    pub fn tiny(seed: u64) -> Self {
        let dice = Dice::new(seed);
        Self {
            seed,
            options: BtreeOptions {
                cache_bytes: 1 << 20,
                collection_compressor: random_codec(&dice),
                index_compressor: random_codec(&dice),
                record_leaf_bytes: dice.one_of(&[300, 512, 1024]),
                index_leaf_bytes: dice.one_of(&[300, 512, 1024]),
                large_value_bytes: dice.one_of(&[500, 2048]),
                directory_per_db: dice.percent(30),
                threads: Some(0),
                segment_bytes: 32 << 10,
                direct_io: dice.percent(50),
                ..BtreeOptions::default()
            },
            betree: None,
            tables_max: 4,
            keys: dice.one_of(&[20, 200, 600]),
            batch_ops_max: dice.one_of(&[3, 30]),
            value_bytes_max: dice.one_of(&[12, 60, 200]),
            large_percent: dice.one_of(&[0, 2, 10]),
            load_rows_max: 200,
            late_loads: true,
        }
    }

    /// Anything from small to usual sizes.
    pub fn wide(seed: u64) -> Self {
        let dice = Dice::new(scrambled(seed));
        let tiny = Self::tiny(seed);
        Self {
            options: BtreeOptions {
                cache_bytes: dice.one_of(&[1 << 20, 2 << 20, 16 << 20]),
                record_leaf_bytes: dice.one_of(&[400, 2 << 10, 16 << 10, 64 << 10]),
                index_leaf_bytes: dice.one_of(&[400, 2 << 10, 16 << 10]),
                large_value_bytes: dice.one_of(&[1 << 10, 4 << 10, 32 << 10]),
                threads: dice.one_of(&[Some(0), Some(1), Some(2), None]),
                segment_bytes: dice.one_of(&[32 << 10, 256 << 10, 1 << 20]),
                ..tiny.options
            },
            tables_max: dice.one_of(&[1, 3, 12]),
            keys: dice.one_of(&[50, 2000, 20_000]),
            batch_ops_max: dice.one_of(&[4, 40, 400]),
            value_bytes_max: dice.one_of(&[10, 100, 1000]),
            large_percent: dice.one_of(&[0, 1, 5]),
            load_rows_max: 3000,
            ..tiny
        }
    }
}

impl Plan {
    /// The same for the engine betree, with sizes in proportion.
    pub fn for_betree(self) -> Self {
        let dice = Dice::new(scrambled(self.seed ^ 7));
        let options = &self.options;
        let basement_bytes = options.record_leaf_bytes.max(300) as u32;
        Self {
            betree: Some(BetreeOptions {
                cache_bytes: options.cache_bytes,
                collection_compressor: options.collection_compressor,
                index_compressor: options.index_compressor,
                basement_bytes,
                node_bytes: basement_bytes * dice.one_of(&[2, 6, 16]),
                buffer_bytes: basement_bytes * dice.one_of(&[2, 8]),
                fanout: dice.one_of(&[4, 5, 16]),
                threads: options.threads,
                segment_bytes: options.segment_bytes,
                direct_io: options.direct_io,
                memtable_bytes: dice.one_of(&[None, Some(2 << 10), Some(20 << 10)]),
            }),
            ..self
        }
    }
}

fn random_codec(dice: &Dice) -> Codec {
    dice.one_of(&[Codec::None, Codec::Snappy, Codec::Lz4, Codec::Zlib, Codec::Zstd])
}

/// What happens at one position.
pub enum Event {
    /// Operations.
    Batch(Batch),
    /// A table is made and filled.
    Load {
        /// Makes it.
        create: Batch,
        /// The table.
        table: TableId,
        /// Rising keys.
        rows: Vec<(Vec<u8>, Vec<u8>)>,
    },
}

/// The key of a number. Keys of records rise with it; keys of indexes are of many lengths and share beginnings.
pub fn key_of(kind: TableKind, number: u64) -> Vec<u8> {
    if kind == TableKind::Records {
        return number.to_be_bytes().to_vec();
    }
    let chance = scrambled(number);
    let mut key = match chance % 8 {
        0 => vec![],
        1 => vec![b'a'; (chance >> 8) as usize % 60],
        2..=4 => format!("person/{}/", (chance >> 8) % 5).into_bytes(),
        _ => b"\xff\xff".to_vec(),
    };
    if number > 0 {
        key.extend_from_slice(&scrambled(number * 7).to_be_bytes()[..1 + (chance >> 20) as usize % 8]);
    }
    key
}

/// What happens at `seq`, given the state at the position before it.
pub fn event_at(plan: &Plan, model: &Model, seq: Seq) -> Event {
    let dice = Dice::new(scrambled(plan.seed ^ scrambled(seq.0)));
    random_event(plan, model, seq, &dice)
}

/// An event that `dice` choose.
pub fn random_event(plan: &Plan, model: &Model, seq: Seq, dice: &Dice) -> Event {
    let tables = model.tables_at(model.newest());
    let mut batch = Batch::new();
    let makes = tables.is_empty() || ((tables.len() as u64) < plan.tables_max && dice.percent(4));
    if makes {
        // Ids rise with positions and are never used twice.
        let table = TableId(1 + seq.0 as u32);
        let kind = dice.one_of(&[
            TableKind::Records,
            TableKind::Records,
            TableKind::Clustered,
            TableKind::Index,
            TableKind::Index,
            TableKind::Small,
        ]);
        batch.create_table(table, spec(dice, kind));
        if dice.percent(40) {
            let rows = sorted_rows(plan, kind, dice);
            return Event::Load {
                create: batch,
                table,
                rows,
            };
        }
        if dice.percent(50) {
            some_operations(plan, model, &[(table, kind)], &mut batch, dice);
        }
        return Event::Batch(batch);
    }
    some_operations(plan, model, &tables, &mut batch, dice);
    if dice.percent(2) {
        batch.drop_table(dice.one_of(&tables).0);
    }
    Event::Batch(batch)
}

fn spec(dice: &Dice, kind: TableKind) -> TableSpec {
    TableSpec {
        kind,
        name: dice.one_of(&["one.rows", "two.rows", "one.more"]).into(),
        compressor: dice
            .one_of(&[None, None, Some("none"), Some("zstd"), Some("lz4")])
            .map(str::to_owned),
    }
}

fn value(plan: &Plan, dice: &Dice) -> Vec<u8> {
    let large = plan.options.large_value_bytes as u64;
    let length = if dice.percent(plan.large_percent) {
        match dice.below(8) {
            0 => dice.within(large, large * 200).min(LARGE_BYTES_MAX),
            _ => dice.within(large - 1, large * 2),
        }
    } else {
        dice.below(plan.value_bytes_max + 1)
    };
    dice.bytes(length as usize)
}

fn sorted_rows(plan: &Plan, kind: TableKind, dice: &Dice) -> Vec<(Vec<u8>, Vec<u8>)> {
    let count = dice.below(plan.load_rows_max + 1);
    let keys: std::collections::BTreeSet<Vec<u8>> = (0..count).map(|_| key_of(kind, dice.below(plan.keys))).collect();
    keys.into_iter().map(|key| (key, value(plan, dice))).collect()
}

/// Operations of one manner on some tables.
fn some_operations(plan: &Plan, model: &Model, tables: &[(TableId, TableKind)], batch: &mut Batch, dice: &Dice) {
    let manner = dice.below(100);
    let count = dice.within(1, plan.batch_ops_max);
    let centre = dice.below(plan.keys);
    let (mut table, mut kind) = dice.one_of(tables);
    for step in 0..count {
        if dice.percent(10) {
            (table, kind) = dice.one_of(tables);
        }
        let any = key_of(kind, dice.below(plan.keys));
        match manner {
            // Appends, where keys are numbers.
            0..20 => {
                let last = model
                    .last_key(table)
                    .and_then(|key| Some(u64::from_be_bytes(key.try_into().ok()?)));
                let next = last.map_or(0, |last| last.wrapping_add(1 + step)) % plan.keys.max(1);
                batch.put(table, key_of(kind, next), value(plan, dice));
            }
            // One neighbourhood.
            20..35 => batch.put(
                table,
                key_of(kind, (centre + dice.below(8)) % plan.keys),
                value(plan, dice),
            ),
            35..55 => batch.put(table, any, value(plan, dice)),
            55..70 => batch.delete(table, any),
            70..80 => batch.add(table, any, dice.next() as i64 >> dice.below(64)),
            80..83 => {
                batch.delete_range(table, range(plan, kind, dice));
                if step >= 2 {
                    break;
                }
            }
            // Everything, twice on some keys.
            _ => {
                let key = if dice.percent(30) { key_of(kind, centre) } else { any };
                match dice.below(20) {
                    0..9 => batch.put(table, key, value(plan, dice)),
                    9..15 => batch.delete(table, key),
                    15..19 => batch.add(table, key, 1 + dice.below(1000) as i64),
                    _ => batch.delete_range(table, range(plan, kind, dice)),
                }
            }
        }
    }
}

/// A range to delete: most often short.
fn range(plan: &Plan, kind: TableKind, dice: &Dice) -> KeyRange {
    if dice.percent(30) || kind != TableKind::Records {
        let range = crate::check::random_range(dice, kind, plan.keys);
        let is_all = range == KeyRange::all();
        if !is_all || dice.percent(20) {
            return range;
        }
    }
    let start = dice.below(plan.keys);
    let end = start + dice.below(plan.keys / 8 + 2);
    KeyRange {
        start: Bound::Included(key_of(TableKind::Records, start)),
        end: Bound::Excluded(key_of(TableKind::Records, end)),
    }
}
