//! Verification: every page on disk against its checksum, every row against the structures that lead to it, every
//! byte of a table's extents against who uses it.

use crate::loc::{Loc, PAGE_BYTES};
use crate::pager::Pager;
use crate::shared::Shared;
use crate::store::{FREE, SlotHeader, Store, TreePart, Visit};
use crate::table::Table;
use engine::{Direction, EngineError, MaintenanceReport, Result, check_wanted};
use parking_lot::Mutex;
use std::ops::Bound;

/// Rows that are checked under one lock of a table, and pages under one lock of the disk.
const SLICE: usize = 256;
/// No row is begun under one lock of a table beyond this many bytes.
const SLICE_BYTES: u64 = 1 << 20;
/// How often the room of a table is looked at anew after somebody came who writes to it.
const SPACE_ATTEMPTS: usize = 5;

/// Checks a table; what is wrong with it goes to the report. Errors are those of reading at all.
///
/// A batch that waits for a table keeps all others waiting, and all that begins to read. So rows are checked in
/// slices, and the check of the room, which needs a table that stands still, gives way to whoever writes: of a table
/// that is written to all the time the room is not checked.
pub(crate) fn verify_table(
    shared: &Shared,
    table: &Table,
    goes_on: &dyn Fn() -> bool,
    report: &mut MaintenanceReport,
) -> Result<()> {
    let problem = |text: String| format!("{}: {text}", table.spec.name);
    let mut rows = 0;
    let checked = check_rows(shared, table, goes_on, &mut rows).and_then(|mut problems| {
        for _ in 0..SPACE_ATTEMPTS {
            if let Some(found) = check_space(shared, table)? {
                problems.extend(found);
                break;
            }
        }
        Ok(problems)
    });
    report.rows_checked += rows;
    match checked {
        Ok(problems) => report.problems.extend(problems.into_iter().map(problem)),
        Err(error) if error.is_of_disk() => report.problems.push(problem(error.to_string())),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Checks the pages of a table's extents that are on disk. Under `disk` no checkpoint writes; it is let go now and
/// then.
pub(crate) fn verify_disk<T>(
    table: &Table,
    disk: &Mutex<T>,
    goes_on: &dyn Fn() -> bool,
    report: &mut MaintenanceReport,
) -> Result<()> {
    let extents = table.state.read().store.extents.clone();
    let mut pages = extents.iter().flat_map(|extent| extent.page_locs()).peekable();
    while pages.peek().is_some() {
        check_wanted(goes_on)?;
        let _no_checkpoint_writes = disk.lock();
        let files = table.database.files();
        for at in pages.by_ref().take(SLICE) {
            let Some(file) = files.get(at.file() as usize) else {
                continue;
            };
            let is_written = file
                .checksums
                .read()
                .get(at.page() as usize)
                .is_some_and(|&sum| sum != 0);
            match is_written.then(|| file.read_page(at.page())) {
                Some(Err(error)) if error.is_of_disk() => report.problems.push(error.to_string()),
                Some(Err(error)) => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Every row, in order and readable. The counts are compared if nobody changed the table meanwhile.
fn check_rows(shared: &Shared, table: &Table, goes_on: &dyn Fn() -> bool, rows: &mut u64) -> Result<Vec<String>> {
    let pager = table.pager(shared);
    let mut problems = Vec::new();
    let mut bytes = 0;
    let mut last: Option<Vec<u8>> = None;
    let changes = table.state.read().changes;
    loop {
        check_wanted(goes_on)?;
        let state = table.state.read();
        let from = last.clone();
        let (mut left, bytes_max) = (SLICE, bytes + SLICE_BYTES);
        let bound = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        state.store.scan(&pager, bound, Direction::Forward, &mut |key, value| {
            if last.as_ref().is_some_and(|last| last[..] >= *key) {
                problems.push(format!("key {key:02x?} does not follow the one before it"));
            }
            bytes += (key.len() + value.with(&pager, <[u8]>::len)?) as u64;
            *rows += 1;
            last = Some(key.to_vec());
            left -= 1;
            if bytes >= bytes_max || table.has_writers_waiting() {
                left = 0;
            }
            Ok(if left == 0 { Visit::Enough } else { Visit::More })
        })?;
        if left == 0 {
            continue;
        }
        let is_same = state.changes == changes && table.is_live();
        if is_same && (*rows, bytes) != (state.store.rows, state.store.data_bytes) {
            problems.push(format!(
                "{rows} rows of {bytes} bytes are there, {} of {} are counted",
                state.store.rows, state.store.data_bytes
            ));
        }
        return Ok(problems);
    }
}

/// A stretch of bytes and what it is used for.
type Stretch = (Loc, u64, &'static str);

/// Every byte of the extents is used once, or free. `None` when somebody came who writes.
fn check_space(shared: &Shared, table: &Table) -> Result<Option<Vec<String>>> {
    let state = table.state.read();
    let mut gave_way = false;
    let mut go_on = || {
        gave_way |= table.has_writers_waiting();
        match gave_way {
            true => Err(EngineError::Closed),
            false => Ok(()),
        }
    };
    let checked = check_still_space(&table.pager(shared), &state.store, &mut go_on);
    match gave_way {
        true => Ok(None),
        false => checked.map(Some),
    }
}

/// As [`check_space`], until `go_on` answers an error.
pub(crate) fn check_still_space(
    pager: &Pager<'_>,
    store: &Store,
    go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<Vec<String>> {
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut used = 0;
    let page = PAGE_BYTES as u64;
    store.array_pages(pager, &mut |at| {
        stretches.push((at, page, "a page of the array"));
        go_on()
    })?;
    let mut stored = Vec::new();
    let mut problems = store.tree_check(pager, &mut |part| {
        match part {
            TreePart::Page(at) => stretches.push((at, page, "a page of the tree")),
            TreePart::Stored(at) => stored.push(at),
        }
        go_on()
    })?;
    store.array_scan(pager, 0, Direction::Forward, &mut |_, at| {
        stored.push(at);
        go_on()?;
        Ok(Visit::More)
    })?;
    for at in stored {
        go_on()?;
        let header = SlotHeader::read(pager, &*pager.read(at)?, at)?;
        stretches.push((at, header.slot_bytes.into(), "a record"));
    }
    used += stretches.iter().map(|stretch| stretch.1).sum::<u64>();
    if used != store.used_bytes {
        problems.push(format!("{used} bytes are used, {} are counted", store.used_bytes));
    }
    let fresh = store.fresh;
    if fresh.end > fresh.next {
        let bytes = u64::from(fresh.end - fresh.next) * page;
        stretches.push((Loc::of_page(fresh.file, fresh.next), bytes, "pages never used"));
    }
    if !store.small.is_null() {
        stretches.push((store.small, page - store.small.offset() as u64, "a page's unused rest"));
    }
    let storage = store.storage_bytes();
    for &head in &store.buckets {
        let mut at = head;
        while !at.is_null() {
            go_on()?;
            let header = SlotHeader::read(pager, &*pager.read(at)?, at)?;
            stretches.push((at, header.slot_bytes.into(), "a free slot"));
            if header.record_bytes != FREE || stretches.len() as u64 > storage {
                return Err(unsound(
                    pager,
                    at,
                    "a list of free slots leads to a record, or in a circle",
                ));
            }
            at = Loc(header.word);
        }
    }
    problems.extend(check_cover(store, stretches));
    Ok(problems)
}

fn unsound(pager: &Pager<'_>, at: Loc, what: &str) -> EngineError {
    pager.corrupt(at, what)
}

fn check_cover(store: &Store, mut stretches: Vec<Stretch>) -> Option<String> {
    stretches.sort_unstable();
    let mut extents = store.extents.clone();
    extents.sort_unstable();
    let mut left = stretches.into_iter().peekable();
    for extent in extents {
        let start = Loc::of_page(extent.file, extent.start);
        let mut expected = start;
        let end = start.plus(extent.bytes() as usize);
        while expected < end {
            match left.next() {
                Some((at, bytes, _)) if at == expected => expected = at.plus(bytes as usize),
                Some((at, _, what)) => {
                    return Some(format!(
                        "{what} at {at:?} overlaps or leaves a hole before {expected:?}"
                    ));
                }
                None => return Some(format!("nothing is known of what is at {expected:?}")),
            }
        }
    }
    let outside = left.next()?;
    Some(format!("{} at {:?} lies outside of the extents", outside.2, outside.0))
}
