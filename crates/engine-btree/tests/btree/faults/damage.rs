//! Files whose blocks are damaged, lost or written elsewhere: noticed wherever they are read, and salvaged.

use super::*;

/// What reading a damaged store yields: rows, and whether damage was met. An error of another kind, or a row that was
/// never written, is a failed test.
struct Damaged {
    noticed: bool,
    rows: Content,
}

/// Reads all that can be read, by each key: a scan ends where it meets damage.
fn read_damaged(fs: &SimulatedFs, written: &Written, what: &str) -> Damaged {
    let mut damaged = Damaged {
        noticed: false,
        rows: Content::new(),
    };
    let is_corrupt = |error: EngineError| assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
    let engine = match open(fs) {
        Ok(engine) => engine,
        Err(error) => {
            is_corrupt(error);
            damaged.noticed = true;
            return damaged;
        }
    };
    let expected = written.at(engine.durable_seq());
    let view = engine.snapshot().unwrap();
    for (table, _) in engine.tables().unwrap() {
        for number in 0..ROWS {
            match view.get(table, &key(number)) {
                Ok(found) => {
                    let place = (table, key(number));
                    let right = expected.get(&place);
                    assert_eq!(
                        found.as_ref().map(Bytes::as_ref),
                        right.map(Vec::as_slice),
                        "{what}: row {number} of {table:?}"
                    );
                    damaged.rows.extend(found.map(|value| (place, value.to_vec())));
                }
                Err(error) => {
                    is_corrupt(error);
                    damaged.noticed = true;
                }
            }
        }
        for direction in [Direction::Forward, Direction::Reverse] {
            let range = KeyRange {
                start: Bound::Included(key(0)),
                end: Bound::Excluded(key(ROWS)),
            };
            match check::scan(&view, table, &range, direction, FillLimits::default()) {
                Ok(rows) => {
                    let count = expected.keys().filter(|(at, _)| *at == table).count();
                    assert_eq!(rows.len(), count, "{what}: {table:?} {direction:?}");
                }
                Err(error) => {
                    is_corrupt(error);
                    damaged.noticed = true;
                }
            }
        }
    }
    // The check names it, and does not stop the engine.
    let report = engine.maintain(&Maintenance::Verify(None));
    match report {
        Ok(report) => assert_eq!(
            !report.problems.is_empty(),
            damaged.noticed,
            "{what}: {:?}",
            report.problems
        ),
        Err(error) => {
            is_corrupt(error);
            assert!(damaged.noticed, "{what}: only the check met damage");
        }
    }
    damaged
}

/// Salvages a copy of a damaged store: rows outside of the gaps it reports are right, and there are `rows_min` at
/// least.
fn expect_salvage(fs: &SimulatedFs, written: &Written, rows_min: usize, what: &str) {
    let copy = fs.after_crash(0);
    let report = BtreeEngine::salvage(&env(&copy), Path::new(DIRECTORY), options())
        .and_then(engine_btree::SalvagedStore::put_in_place)
        .unwrap_or_else(|error| panic!("{what}: salvage: {error}"));
    let engine = open(&copy).unwrap_or_else(|error| panic!("{what}: after salvage: {error}"));
    let found = read_all(&engine).unwrap();
    assert!(
        found.len() >= rows_min,
        "{what}: {} rows were salvaged, {rows_min} could be read\n{report}",
        found.len()
    );
    for (place, value) in &found {
        let is_right = written.states.values().any(|state| state.get(place) == Some(value));
        assert!(is_right, "{what}: {place:02x?} was never written\n{report}");
    }
    expect_sound(&engine, what);
}

fn name_of(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Leaf => "leaf",
        BlockKind::Inner => "inner page",
        BlockKind::Large => "large value",
        BlockKind::Map => "map of used sectors",
        BlockKind::Meta => "directory of the store",
    }
}

/// A bit of each kind of block: some blocks of a kind, some places in each.
#[test]
fn a_flipped_bit_in_every_kind_of_block_is_noticed() {
    for seed in seeds(1) {
        println!("TENON_SEED={seed}");
        let dice = Dice::new(seed);
        let (fs, written) = one_checkpoint();
        let mut kinds: BTreeMap<&str, Vec<SalvagedBlock>> = BTreeMap::new();
        for block in blocks_of(&fs) {
            // The table of tables is a tree of leaves, too.
            let name = if block.owner == u32::MAX && block.kind == BlockKind::Leaf {
                "table of tables"
            } else {
                name_of(block.kind)
            };
            kinds.entry(name).or_default().push(block);
        }
        let names: Vec<&str> = kinds.keys().copied().collect();
        assert_eq!(
            names,
            [
                "directory of the store",
                "inner page",
                "large value",
                "leaf",
                "map of used sectors",
                "table of tables"
            ]
        );
        for (name, blocks) in kinds {
            let mut noticed = 0;
            // Of the store's own blocks, those of the last checkpoint count.
            let newest = blocks.iter().map(|block| block.checkpoint).max().unwrap();
            let live: Vec<_> = blocks.iter().filter(|block| block.checkpoint == newest).collect();
            for round in 0..live.len().min(6) {
                let block = live[dice.below(live.len() as u64) as usize];
                // The header, the content, anywhere: the zeros at the end are covered, too.
                let offset = match round {
                    0 => dice.below(40),
                    1 => block.addr.bytes() - 1,
                    _ => dice.below(block.addr.bytes()),
                };
                let at = block.addr.sector() * SECTOR_BYTES + offset;
                let what = format!("{name} at sector {}, byte {offset}", block.addr.sector());
                let path = Path::new(DIRECTORY).join("main.blocks");
                let bit = dice.below(8) as u8;
                fs.flip_bit(&path, at, bit).unwrap();
                let damaged = read_damaged(&fs, &written, &what);
                noticed += usize::from(damaged.noticed);
                assert!(damaged.noticed, "{what}: nobody noticed");
                // Whatever the damage, nearly all rows lie elsewhere; only the names of tables are nowhere else.
                let all = written.at(written.newest()).len();
                let rows_min = if name == "table of tables" {
                    damaged.rows.len()
                } else {
                    all * 19 / 20
                };
                expect_salvage(&fs, &written, rows_min, &what);
                fs.flip_bit(&path, at, bit).unwrap();
            }
            assert!(noticed > 0, "{name}: there was none");
        }
        expect_content(
            &open(&fs).unwrap(),
            written.at(written.newest()),
            "with all bits as they were",
        );
    }
}

/// A cursor that met damage tells of it as often as it is asked, and leaves out no row: neither those that it had taken
/// in the same call, nor the one whose value is damaged.
#[test]
fn a_cursor_stays_where_it_met_damage() {
    let (fs, written) = one_checkpoint();
    let path = Path::new(DIRECTORY).join("main.blocks");
    let blocks = blocks_of(&fs).into_iter();
    let mut large: Vec<_> = blocks.filter(|block| block.kind == BlockKind::Large).collect();
    large.sort_by_key(|block| block.addr.sector());
    let damaged = large[large.len() / 2].addr.sector() * SECTOR_BYTES + 60;
    let newest = written.at(written.newest());
    let expected: Vec<_> = newest.iter().filter(|((table, _), _)| *table == LARGE).collect();
    for (direction, rows_max) in [Direction::Forward, Direction::Reverse]
        .into_iter()
        .flat_map(|direction| [7, 100].map(|rows_max| (direction, rows_max)))
    {
        let what = format!("{direction:?}, {rows_max} rows");
        // Leaves of a long walk come from disk: nobody has read them.
        let threaded = BtreeOptions {
            threads: Some(1),
            ..options()
        };
        let engine = open_with(&fs, threaded).unwrap();
        let view = engine.snapshot().unwrap();
        let mut cursor = view.cursor(LARGE, KeyRange::all(), direction).unwrap();
        let limits = FillLimits {
            rows_max,
            bytes_max: 1 << 20,
        };
        let (mut rows, mut found) = (Rows::new(), Vec::new());
        let mut take = |rows: &Rows| {
            found.extend((0..rows.len()).map(|index| (rows.key(index).to_vec(), rows.value(index).to_vec())));
            found.len()
        };
        fs.flip_bit(&path, damaged, 1).unwrap();
        let mut seen = 0;
        let told = loop {
            match cursor.fill(&mut rows, limits) {
                Ok(more) => assert!(more, "{what}: nobody noticed"),
                Err(error) => break error,
            }
            seen = take(&rows);
        };
        assert!(seen > 200, "{what}: the walk is long: {seen}");
        for _ in 0..2 {
            let again = cursor.fill(&mut rows, limits).expect_err(&what);
            assert_eq!(again.kind(), ErrorKind::Corrupt, "{what}");
            assert_eq!(again.to_string(), told.to_string(), "{what}");
        }
        fs.flip_bit(&path, damaged, 1).unwrap();
        while cursor.fill(&mut rows, limits).unwrap() {
            take(&rows);
        }
        let mut wanted: Vec<_> = expected
            .iter()
            .map(|((_, key), value)| (key.clone(), value.to_vec()))
            .collect();
        if direction == Direction::Reverse {
            wanted.reverse();
        }
        assert!(found == wanted, "{what}: {} of {} rows", found.len(), wanted.len());
    }
}

/// A checkpoint that meets damage and cannot save what was written to the leaf, which may have large values, stops the
/// engine, and every later call tells what it met and where: at a start that is all there is.
#[test]
fn a_stopped_engine_tells_what_failed() {
    let (fs, written) = one_checkpoint();
    let path = Path::new(DIRECTORY).join("main.blocks");
    for block in blocks_of(&fs) {
        if block.kind == BlockKind::Leaf && block.owner == LARGE.0 {
            fs.flip_bit(&path, block.addr.sector() * SECTOR_BYTES + 60, 1).unwrap();
        }
    }
    let engine = open(&fs).unwrap();
    let mut batch = Batch::new();
    // Writing needs no page.
    (0..100).for_each(|number| batch.put(LARGE, key(number), vec![7; 200]));
    let seq = written.newest().next();
    engine.apply(&batch, seq).unwrap();
    engine.publish(seq);
    assert_eq!(engine.checkpoint().unwrap_err().kind(), ErrorKind::Corrupt);
    expect_everything_closed(&engine, "damage");
    let told = engine.checkpoint().unwrap_err().to_string();
    for part in ["main.blocks: at offset ", "checksum is ", " expected"] {
        assert!(told.contains(part), "{told}");
    }
}

/// Superblocks: one copy of a slot changes nothing; all copies of both are damage, and salvage finds the tables all the
/// same.
#[test]
fn flipped_bits_of_superblocks_are_noticed_or_change_nothing() {
    let (fs, written) = one_checkpoint();
    let path = Path::new(DIRECTORY).join("main.blocks");
    // Opening writes damaged copies anew: each look has a disk of its own.
    let damaged = |copies: std::ops::Range<u64>| {
        let fs = fs.after_crash(1);
        copies.for_each(|copy| fs.flip_bit(&path, copy * 2048 + 70, 3).unwrap());
        fs
    };
    for copy in 0..4 {
        let read = read_damaged(&damaged(copy..copy + 1), &written, &format!("copy {copy}"));
        assert!(!read.noticed, "copy {copy}: another copy is whole");
    }
    assert!(read_damaged(&damaged(0..4), &written, "no copy").noticed);
    expect_salvage(&damaged(0..4), &written, written.at(written.newest()).len(), "no copy");
    expect_content(&open(&fs).unwrap(), written.at(written.newest()), "all copies");
}

/// Each of many writes of the second checkpoint is lost, or goes elsewhere: what was overwritten there, or is missing
/// here, is damage and never read as something else.
fn lying_writes(kind: FaultKind) {
    let (mut struck, mut noticed) = (0, 0);
    for skipped in (0..400).step_by(29) {
        let what = format!("{kind:?} {skipped}");
        let fs = disk(skipped);
        let engine = open(&fs).unwrap();
        let mut written = begin(&engine);
        write(&engine, &mut written, 1, all, none);
        engine.checkpoint().unwrap();
        write(&engine, &mut written, 2, |number| number % 2 == 0, none);
        let before = fs.faults_struck();
        fs.inject(Fault::new(kind).after(skipped));
        engine.checkpoint().unwrap();
        drop(engine);
        if fs.faults_struck() == before {
            break;
        }
        struck += 1;
        fs.restart();
        let damaged = read_damaged(&fs, &written, &what);
        noticed += usize::from(damaged.noticed);
        if damaged.noticed {
            expect_salvage(&fs, &written, damaged.rows.len(), &what);
        }
    }
    assert!(struck > 3, "{kind:?} struck {struck} writes");
    assert!(noticed > 1, "{kind:?}: {noticed} of {struck} were noticed");
}

#[test]
fn lost_writes_are_noticed() {
    lying_writes(FaultKind::LostWrite);
}

#[test]
fn misdirected_writes_are_noticed() {
    lying_writes(FaultKind::MisdirectedWrite { by: 512 });
    lying_writes(FaultKind::MisdirectedWrite { by: 48 << 10 });
}
