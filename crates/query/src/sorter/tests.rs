//! Sorting with little memory gives what a stable sort in memory gives, and leaves nothing behind however it ends.

use super::{Payload, SortedRow, Sorter};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::limits::BlockingLimits;
use spill::SpillSpace;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::{MemoryBudget, Operation, Spilling};
use vfs::{Fault, FaultKind, FileSystem, Random, SeededRandom, SimulatedClock, SimulatedFs};
use wire::ErrorCode;

const DIRECTORY: &str = "/db/_tmp";

struct Numbered {
    number: u64,
    body: Vec<u8>,
}

impl Payload for Numbered {
    fn memory_bytes(&self) -> usize {
        self.body.len() + 8
    }

    fn append_head(&self, head: &mut Vec<u8>) {
        head.extend_from_slice(&self.number.to_le_bytes());
    }

    fn body(&self) -> &[u8] {
        &self.body
    }
}

struct Bench {
    fs: SimulatedFs,
    operation: Operation,
    limits: BlockingLimits,
}

impl Bench {
    fn new(seed: u64, memory_bytes: u64) -> Self {
        let fs = SimulatedFs::new(seed);
        let disk = SpillSpace::open(Arc::new(fs.clone()), PathBuf::from(DIRECTORY)).expect("opened");
        Self {
            fs,
            operation: Operation::new(Arc::new(SimulatedClock::new(0)), 1),
            limits: BlockingLimits {
                sort_bytes: memory_bytes,
                disk: Some(disk),
                ..BlockingLimits::IN_MEMORY
            },
        }
    }

    /// Sorts; the numbers of the rows in order, each checked for its body.
    fn sort(&self, rows: &[(Vec<u8>, Vec<u8>)], limit: Option<u64>) -> Result<Vec<u64>, QueryError> {
        let evaluation = EvaluationContext::new(&self.operation);
        let mut sorter = Sorter::new(Spilling::Sort, limit, &self.limits);
        for (number, (key, body)) in rows.iter().enumerate() {
            sorter.push(&evaluation, key, || Numbered {
                number: number as u64,
                body: body.clone(),
            })?;
        }
        let mut sorted = sorter.finish(&evaluation)?;
        let mut numbers = Vec::new();
        while let Some(row) = sorted.next(&evaluation)? {
            let (number, body) = match row {
                SortedRow::Kept(payload) => (payload.number, payload.body),
                SortedRow::Spilled(payload) => {
                    let (number, body) = payload.split_first_chunk().expect("it has a head");
                    (u64::from_le_bytes(*number), body.to_vec())
                }
            };
            assert_eq!(body, rows[number as usize].1, "row {number}");
            numbers.push(number);
        }
        assert!(self.files().is_empty(), "the files go with the last row");
        Ok(numbers)
    }

    fn files(&self) -> Vec<PathBuf> {
        self.fs.list(Path::new(DIRECTORY)).expect("listed")
    }
}

/// Rows with keys that often tie, and bodies that do not compress.
fn rows(random: &SeededRandom, count: u64, body_bytes_max: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let keys = 1 + random.next_u64() % (2 * count);
    let row = |_| {
        let key = (random.next_u64() % keys).to_string().into_bytes();
        let mut body = vec![0; (random.next_u64() % body_bytes_max) as usize];
        random.fill(&mut body);
        (key, body)
    };
    (0..count).map(row).collect()
}

fn reference(rows: &[(Vec<u8>, Vec<u8>)], limit: Option<u64>) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..rows.len() as u64).collect();
    numbers.sort_by_key(|number| &rows[*number as usize].0);
    numbers.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
    numbers
}

#[test]
fn random_rows_come_out_as_of_a_stable_sort() {
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let first = first.unwrap_or_else(|| vfs::SystemRandom::new().next_u64() >> 16);
    let mut spilled = 0;
    for seed in first..first + 60 {
        println!("SEED={seed}");
        let random = SeededRandom::new(seed);
        let memory_bytes = 1 << (8 + random.next_u64() % 14);
        let bench = Bench::new(seed, memory_bytes);
        let count = 1 + random.next_u64() % 3000;
        let rows = rows(&random, count, 600);
        let limit = random
            .next_u64()
            .is_multiple_of(2)
            .then(|| 1 + random.next_u64() % (2 * count));
        let sorted = bench
            .sort(&rows, limit)
            .unwrap_or_else(|error| panic!("SEED={seed}: {error}"));
        let wanted = reference(&rows, limit);
        let differs = sorted.iter().zip(&wanted).position(|(one, other)| one != other);
        assert_eq!(
            (differs, sorted.len()),
            (None, wanted.len()),
            "SEED={seed}, limit {limit:?}"
        );
        assert_eq!(bench.operation.memory().used(), 0, "SEED={seed}");
        spilled += u64::from(bench.operation.counters().has_spilled());
    }
    assert!(spilled > 10, "{spilled} of 60 sorts spilled");
}

#[test]
fn a_limit_that_outgrows_the_memory_lets_no_worse_rows_onto_the_disk() {
    let bench = Bench::new(1, 64 << 10);
    // 40,000 rows in falling and then in rising order: of the second half none is wanted.
    let key = |n: u32| n.to_be_bytes().to_vec();
    let falling = (0..20_000_u32).rev().map(|n| (key(n), vec![7; 100]));
    let rows: Vec<_> = falling.chain((1000..21_000).map(|n| (key(n), vec![8; 100]))).collect();
    assert_eq!(
        bench.sort(&rows, Some(1000)).expect("sorted"),
        reference(&rows, Some(1000))
    );
    let spilled = bench.operation.counters().spilled(Spilling::Sort).records.get();
    assert!((1000..=20_500).contains(&spilled), "{spilled} rows were written");
}

#[test]
fn an_operation_that_gets_no_more_memory_goes_on_on_disk() {
    let mut bench = Bench::new(8, 100 << 20);
    let budget = MemoryBudget::new(1 << 20, 1 << 20);
    bench.operation = Operation::within(Arc::new(SimulatedClock::new(0)), 1, &budget);
    let rows = rows(&SeededRandom::new(8), 8000, 1000);
    let wanted = reference(&rows, None);
    assert!(bench.sort(&rows, None).expect("sorted") == wanted, "another order");
    assert!(bench.operation.counters().has_spilled());
    bench.limits.disk = None;
    assert!(matches!(bench.sort(&rows, None), Err(QueryError::Storage(_))));
    assert_eq!(budget.used(), 0);
}

#[test]
fn what_fits_touches_no_file_and_what_does_not_fails_without_one() {
    let mut bench = Bench::new(1, 1 << 20);
    let rows = rows(&SeededRandom::new(5), 2000, 300);
    bench.sort(&rows, None).expect("sorted");
    assert!(!bench.operation.counters().has_spilled());
    bench.limits.sort_bytes = 100 << 10;
    bench.limits.disk = None;
    let error = bench.sort(&rows, None).expect_err("it does not fit");
    assert_eq!(error.code(), Some(ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed));
    assert_eq!(
        bench.sort(&rows, Some(20)).expect("few fit"),
        reference(&rows, Some(20))
    );
}

#[test]
fn a_sort_that_fails_or_is_killed_leaves_no_file() {
    let rows = rows(&SeededRandom::new(6), 4000, 500);
    let bench = Bench::new(2, 64 << 10);
    let code = |bench: &Bench| bench.sort(&rows, None).expect_err("it fails").code().map(|code| code.0);
    bench.fs.set_free_bytes(Some(500_000));
    assert_eq!(code(&bench), Some(14031));
    bench.fs.set_free_bytes(None);
    bench.fs.inject(Fault::new(FaultKind::WriteError));
    assert_eq!(code(&bench), Some(16821));
    bench.fs.inject(Fault::new(FaultKind::ReadError));
    assert_eq!(code(&bench), Some(16817));
    bench.fs.inject(Fault::new(FaultKind::NoDescriptors));
    assert_eq!(code(&bench), Some(264));
    assert!(bench.files().is_empty());
    bench.sort(&rows, None).expect("all is well again");
    // Killed while it gathers, and while it gives its rows.
    let evaluation = EvaluationContext::new(&bench.operation);
    let mut sorter = Sorter::new(Spilling::Sort, None, &bench.limits);
    for (number, (key, body)) in rows.iter().enumerate() {
        let payload = || Numbered {
            number: number as u64,
            body: body.clone(),
        };
        sorter.push(&evaluation, key, payload).expect("taken in");
    }
    let mut sorted = sorter.finish(&evaluation).expect("sorted");
    assert!(sorted.next(&evaluation).expect("a row").is_some());
    assert!(!bench.files().is_empty());
    bench.operation.kill();
    let ended = (0..4000).find_map(|_| sorted.next(&evaluation).err());
    assert!(matches!(ended, Some(QueryError::Storage(_))), "{ended:?}");
    drop(sorted);
    assert!(bench.files().is_empty());
    assert!(matches!(bench.sort(&rows, None), Err(QueryError::Storage(_))));
    assert!(bench.files().is_empty());
}

#[test]
fn a_damaged_file_is_found() {
    let rows = rows(&SeededRandom::new(7), 2000, 500);
    let bench = Bench::new(3, 64 << 10);
    let evaluation = EvaluationContext::new(&bench.operation);
    let mut sorter = Sorter::new(Spilling::Sort, None, &bench.limits);
    for (key, body) in &rows {
        let payload = || Numbered {
            number: 0,
            body: body.clone(),
        };
        sorter.push(&evaluation, key, payload).expect("taken in");
    }
    let mut sorted = sorter.finish(&evaluation).expect("sorted");
    let path = Path::new(DIRECTORY).join(&bench.files()[0]);
    let bytes = bench
        .fs
        .open(&path, vfs::Access::Read)
        .expect("opened")
        .len()
        .expect("a length");
    // The last block has not been read yet.
    bench.fs.flip_bit(&path, bytes - 10, 3).expect("flipped");
    let error = std::iter::repeat_with(|| sorted.next(&evaluation).map(|row| row.is_some()))
        .take_while(|row| !matches!(row, Ok(false)))
        .find_map(Result::err)
        .expect("it is found");
    assert_eq!(error.code(), Some(ErrorCode(31182)));
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
}
