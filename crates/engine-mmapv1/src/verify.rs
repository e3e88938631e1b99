//! Verification: every page on disk against its checksum, every row against the structures that lead to it, every
//! byte of a table's extents against who uses it.

use crate::loc::{Loc, PAGE_BYTES};
use crate::pager::Pager;
use crate::shared::Shared;
use crate::store::{FREE, SlotHeader, Store, TreePart, Visit};
use crate::table::{State, Table};
use engine::{Direction, EngineError, ErrorKind, MaintenanceReport, Result};
use std::ops::Bound;

/// Checks a table; what is wrong with it goes to the report. Errors are those of reading at all.
pub(crate) fn verify_table(shared: &Shared, table: &Table, report: &mut MaintenanceReport) -> Result<()> {
    let state = table.state.read();
    let problem = |text: String| format!("{}: {text}", table.spec.name);
    let mut rows = 0;
    let mut checked = check_rows(shared, table, &state, &mut rows);
    if checked.is_ok() {
        checked = check_space(&table.pager(shared), &state.store);
    }
    report.rows_checked += rows;
    match checked {
        Ok(problems) => report.problems.extend(problems.into_iter().map(problem)),
        Err(error) if error.kind() == ErrorKind::Corrupt => report.problems.push(problem(error.to_string())),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Checks the pages of a table's extents that are on disk. No checkpoint writes meanwhile.
pub(crate) fn verify_disk(table: &Table, report: &mut MaintenanceReport) -> Result<()> {
    let extents = table.state.read().store.extents.clone();
    let files = table.database.files();
    for at in extents.iter().flat_map(|extent| extent.page_locs()) {
        let Some(file) = files.get(at.file() as usize) else {
            continue;
        };
        let is_written = file
            .checksums
            .read()
            .get(at.page() as usize)
            .is_some_and(|&sum| sum != 0);
        match is_written.then(|| file.read_page(at.page())) {
            Some(Err(error)) if error.kind() == ErrorKind::Corrupt => report.problems.push(error.to_string()),
            Some(Err(error)) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn check_rows(shared: &Shared, table: &Table, state: &State, rows: &mut u64) -> Result<Vec<String>> {
    let pager = table.pager(shared);
    let mut problems = Vec::new();
    let mut bytes = 0;
    let mut last: Option<Vec<u8>> = None;
    state
        .store
        .scan(&pager, Bound::Unbounded, Direction::Forward, &mut |key, value| {
            if last.as_ref().is_some_and(|last| last[..] >= *key) {
                problems.push(format!("key {key:02x?} does not follow the one before it"));
            }
            bytes += (key.len() + value.with(&pager, <[u8]>::len)?) as u64;
            *rows += 1;
            last = Some(key.to_vec());
            Ok(Visit::More)
        })?;
    if (*rows, bytes) != (state.store.rows, state.store.data_bytes) {
        problems.push(format!(
            "{rows} rows of {bytes} bytes are there, {} of {} are counted",
            state.store.rows, state.store.data_bytes
        ));
    }
    Ok(problems)
}

/// A stretch of bytes and what it is used for.
type Stretch = (Loc, u64, &'static str);

/// Every byte of the extents is used once, or free.
fn check_space(pager: &Pager<'_>, store: &Store) -> Result<Vec<String>> {
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut used = 0;
    let page = PAGE_BYTES as u64;
    store.array_pages(pager, &mut |at| stretches.push((at, page, "a page of the array")))?;
    let mut stored = Vec::new();
    let mut problems = store.tree_check(pager, &mut |part| match part {
        TreePart::Page(at) => stretches.push((at, page, "a page of the tree")),
        TreePart::Stored(at) => stored.push(at),
    })?;
    store.array_scan(pager, 0, Direction::Forward, &mut |_, at| {
        stored.push(at);
        Ok(Visit::More)
    })?;
    for at in stored {
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
