//! With little memory and a disk, sorts and groups give what they give in memory: random documents of all types.

use super::fixture::{Fixture, ns, pick, times};
use super::generate::{document, raw};
use crate::QueryError;
use crate::exec::{PlanExecutor, aggregate, find};
use crate::limits::BlockingLimits;
use crate::plan::{AggregateRequest, FindRequest};
use bson::{Bson, Document, RawArrayBuf, RawDocumentBuf, doc, rawdoc};
use spill::SpillSpace;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::{Operation, Spilling};
use vfs::{Random, SeededRandom, SystemRandom};

const DIRECTORY: &str = "/db/_tmp";

struct Bench {
    fixture: Fixture,
    disk: Arc<SpillSpace>,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let fixture = Fixture::new(seed);
        fixture.create("c", rawdoc! {});
        let fs = fixture.storage.env().fs.clone();
        let disk = SpillSpace::open(fs, PathBuf::from(DIRECTORY)).expect("opened");
        Self { fixture, disk }
    }

    fn small(&self, bytes: u64) -> BlockingLimits {
        BlockingLimits {
            sort_bytes: bytes,
            group_bytes: bytes,
            bucket_auto_bytes: bytes,
            window_bytes: bytes.max(1 << 14),
            densify_bytes: bytes,
            disk: Some(self.disk.clone()),
        }
    }

    fn files(&self) -> usize {
        let fs = &self.fixture.storage.env().fs;
        fs.list(Path::new(DIRECTORY)).expect("listed").len()
    }

    /// The documents of a pipeline, and the operation that gave them.
    fn aggregate(
        &self,
        stages: &[Document],
        blocking: BlockingLimits,
    ) -> Result<(Vec<RawDocumentBuf>, Arc<Operation>), QueryError> {
        let mut pipeline = RawArrayBuf::new();
        stages.iter().for_each(|stage| pipeline.push(raw(stage)));
        let request = AggregateRequest {
            blocking,
            ..AggregateRequest::new(ns("c"), "test", &pipeline)
        };
        self.run(|op| aggregate(&self.fixture.context(op), &request))
    }

    fn run(
        &self,
        open: impl FnOnce(&Arc<Operation>) -> Result<PlanExecutor, QueryError>,
    ) -> Result<(Vec<RawDocumentBuf>, Arc<Operation>), QueryError> {
        let op = self.fixture.op();
        let mut executor = open(&op)?;
        let mut documents: Vec<RawDocumentBuf> = Vec::new();
        while executor.next_documents(&self.fixture.context(&op), &mut documents)? == crate::ExecState::More {}
        drop(executor);
        assert_eq!(self.files(), 0, "the files go with what they were made for");
        Ok((documents, op))
    }
}

/// Of each kind.
fn all_accumulators() -> Vec<Document> {
    vec![
        doc! { "$sum": "$a"},
        doc! { "$avg": "$a"},
        doc! { "$min": "$b"},
        doc! { "$max": "$b"},
        doc! { "$first": "$c"},
        doc! { "$last": "$c"},
        doc! { "$push": "$b"},
        doc! { "$push": "$$ROOT"},
        doc! { "$addToSet": "$a"},
        doc! { "$stdDevPop": "$a"},
        doc! { "$stdDevSamp": "$b"},
        doc! { "$firstN": {"n": 3, "input": "$a"}},
        doc! { "$lastN": {"n": 3, "input": "$b"}},
        doc! { "$minN": {"n": 2, "input": "$a"}},
        doc! { "$maxN": {"n": 4, "input": "$a"}},
        doc! { "$top": {"sortBy": {"n": -1}, "output": "$a"}},
        doc! { "$topN": {"n": 3, "sortBy": {"k": 1}, "output": "$n"}},
        doc! { "$bottomN": {"n": 3, "sortBy": {"k": -1}, "output": ["$n", "$c"]}},
        doc! { "$percentile": {"input": "$a", "p": [0.1, 0.9], "method": "approximate"}},
        doc! { "$mergeObjects": "$m"},
        doc! { "$count": {}},
        doc! { "$push": { "$meta": "recordId" } },
    ]
}

/// A document of all kinds of values, with a number, a key of few values and something to merge.
fn random_document(random: &SeededRandom, number: i32) -> RawDocumentBuf {
    let mut whole = document(random, number);
    whole.insert("n", number);
    whole.insert("k", pick(random, 40) as i32);
    whole.insert("m", doc! { format!("f{}", pick(random, 5)): number });
    whole.insert("pad", "p".repeat(pick(random, 300) as usize));
    raw(&whole)
}

fn accumulators(random: &SeededRandom) -> Document {
    let (all, mut fields) = (all_accumulators(), Document::new());
    for position in 0..=pick(random, 4) {
        let accumulator = all[pick(random, all.len() as u64) as usize].clone();
        fields.insert(format!("f{position}"), accumulator);
    }
    fields
}

fn sorted(mut documents: Vec<RawDocumentBuf>) -> Vec<RawDocumentBuf> {
    documents.sort_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
    documents
}

fn first_seed() -> u64 {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    seed.unwrap_or_else(|| SystemRandom::new().next_u64() >> 16)
}

#[test]
fn spilled_is_as_in_memory() {
    let first = first_seed();
    let mut spilled = [0_u64; 5];
    for seed in first..first + times(15) {
        println!("SEED={seed}");
        let random = SeededRandom::new(seed);
        let bench = Bench::new(seed);
        for number in 0..200 + pick(&random, 1500) {
            bench
                .fixture
                .insert("c", &random_document(&random, number as i32))
                .expect("inserted");
        }
        let keys = ["a", "b", "c", "d.x", "k"];
        let key = || keys[pick(&random, 5) as usize];
        let direction = || [1, -1][pick(&random, 2) as usize];
        let id: Bson = match pick(&random, 4) {
            0 => Bson::from(doc! { "a": "$a", "k": "$k" }),
            1 => Bson::Null,
            _ => Bson::from(format!("${}", key())),
        };
        let mut sort = vec![doc! { "$sort": { key(): direction(), "k": direction() } }];
        if pick(&random, 3) == 0 {
            sort.push(doc! { "$limit": 1 + pick(&random, 800) as i32 });
        }
        let mut group = doc! { "_id": id };
        group.extend(accumulators(&random));
        let bucket = doc! { "groupBy": "$k", "buckets": 7, "output": accumulators(&random) };
        let by = match pick(&random, 3) {
            0 => Bson::from(doc! { "$add": ["$k", 1] }),
            1 => Bson::from("$k"),
            _ => Bson::Null,
        };
        let frame = match pick(&random, 3) {
            0 => doc! { "documents": [-3, 5] },
            1 => doc! { "documents": ["unbounded", "current"] },
            _ => doc! { "documents": ["unbounded", "unbounded"] },
        };
        let window = doc! {
            "partitionBy": by,
            "sortBy": { "b": 1 },
            "output": {
                "sum": { "$sum": "$n", "window": frame },
                "two": { "$push": { "$meta": "recordId" }, "window": { "documents": [-9, -8] } },
                "before": { "$shift": { "output": "$a", "by": -7 } },
                "rank": { "$documentNumber": {} },
            },
        };
        let mut unsorted = sort.clone();
        // What a plan cannot sort.
        unsorted.insert(0, doc! { "$set": { "k": { "$add": ["$k", 1] } } });
        let bounds = match pick(&random, 3) {
            0 => Bson::from("full"),
            1 => Bson::from("partition"),
            _ => bson::bson!([500, 900]),
        };
        let range = doc! { "step": 150 + pick(&random, 100) as i32, "bounds": bounds };
        // Values of all types partition; one in twenty has nothing to step by.
        let densify = [
            doc! { "$set": { "n": { "$cond": [{ "$eq": [{ "$mod": ["$n", 20] }, 3] }, null, "$n"] } } },
            doc! { "$densify": { "field": "n", "partitionByFields": ["k", key()], "range": range } },
        ];
        let cases: [&[Document]; 6] = [
            &sort,
            &unsorted,
            &[doc! { "$group": group }],
            &[doc! { "$bucketAuto": bucket }],
            &[doc! { "$setWindowFields": window }],
            &densify,
        ];
        for (case, stages) in cases.into_iter().enumerate() {
            let wanted = bench.aggregate(stages, BlockingLimits::IN_MEMORY);
            let bytes = 1 << (9 + pick(&random, 9));
            let found = bench.aggregate(stages, bench.small(bytes));
            let ((wanted, _), (found, op)) = match (wanted, found) {
                (Err(wanted), Err(found)) => {
                    assert!(case == 2 || case == 3, "SEED={seed}: {stages:?}: {wanted}");
                    assert_eq!(
                        wanted.code(),
                        found.code(),
                        "SEED={seed}: {stages:?}: {wanted}, {found}"
                    );
                    continue;
                }
                (wanted, found) => (wanted.expect("in memory"), found.expect("spilled")),
            };
            match case {
                2 | 5 => assert_eq!(sorted(found), sorted(wanted), "SEED={seed}: {stages:?}"),
                _ => assert_eq!(found, wanted, "SEED={seed}: {stages:?}"),
            }
            for (what, spilled) in [
                Spilling::Sort,
                Spilling::Group,
                Spilling::BucketAuto,
                Spilling::SetWindowFields,
                Spilling::Densify,
            ]
            .into_iter()
            .zip(&mut spilled)
            {
                *spilled += op.counters().spilled(what).spills.get();
            }
        }
    }
    assert!(spilled.iter().all(|spills| *spills > 10), "{spilled:?}");
}

#[test]
fn find_sorts_on_disk_and_says_so() {
    let bench = Bench::new(1);
    let pad = "x".repeat(400);
    for number in 0..3000_i32 {
        let document = rawdoc! { "_id": number, "k": (number * 7919) % 3001, "pad": &*pad };
        bench.fixture.insert("c", &document).expect("inserted");
    }
    let (filter, sort) = (rawdoc! {}, rawdoc! { "k": 1 });
    let request = FindRequest {
        sort: Some(&sort),
        blocking: bench.small(200_000),
        ..FindRequest::new(ns("c"), &filter)
    };
    let (found, op) = bench
        .run(|op| find(&bench.fixture.context(op), &request))
        .expect("found");
    assert_eq!(found.len(), 3000);
    let keys: Vec<i32> = found.iter().map(|document| document.get_i32("k").expect("k")).collect();
    assert!(keys.is_sorted(), "in order");
    let counters = op.counters();
    assert!(counters.spilled(Spilling::Sort).spills.get() >= 5);
    assert_eq!(counters.spilled(Spilling::Sort).records.get(), 3000);
    assert_eq!(counters.keys_sorted.get(), 3000);
    assert_eq!(counters.has_sort_stage.get(), 1);
    let forbidden = FindRequest {
        blocking: BlockingLimits {
            disk: None,
            ..bench.small(200_000)
        },
        ..request.clone()
    };
    let error = bench
        .run(|op| find(&bench.fixture.context(op), &forbidden))
        .map(drop)
        .expect_err("refused");
    assert_eq!(error.code().map(|code| code.0), Some(292));
    let few = FindRequest {
        limit: Some(10),
        ..forbidden.clone()
    };
    assert_eq!(
        bench
            .run(|op| find(&bench.fixture.context(op), &few))
            .expect("found")
            .0
            .len(),
        10
    );
}

#[test]
fn groups_go_on_in_partitions_of_partitions() {
    let bench = Bench::new(2);
    for number in 0..6000_i32 {
        let document = rawdoc! { "_id": number, "k": number % 3000, "pad": "some text" };
        bench.fixture.insert("c", &document).expect("inserted");
    }
    let stages = [
        doc! { "$group": { "_id": "$k", "all": { "$push": "$_id" } } },
        doc! { "$sort": { "_id": 1 } },
    ];
    let (found, op) = bench.aggregate(&stages, bench.small(4000)).expect("grouped");
    assert_eq!(found.len(), 3000);
    for (k, group) in found.iter().enumerate() {
        let k = k as i32;
        assert_eq!(*group, raw(&doc! { "_id": k, "all": [k, k + 3000] }));
    }
    let spills = op.counters().spilled(Spilling::Group).spills.get();
    assert!(spills >= 33, "{spills} spills: tables in tables");
    let one = [doc! { "$group": { "_id": 1, "all": { "$push": "$pad" } } }];
    let (found, _) = bench
        .aggregate(&one, bench.small(4000))
        .expect("a single group stays in memory");
    assert_eq!(found.len(), 1);
}
