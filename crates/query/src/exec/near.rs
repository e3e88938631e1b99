//! GEO_NEAR_2DSPHERE and GEO_NEAR_2D: documents in the order of their distance from a point.
//!
//! The index is searched in rings around the point. When a ring is done all documents up to its outer radius are known:
//! those are given, nearest first, and what lies further out, as cells do not end at radii, waits for its ring. Rings
//! grow while they find little. No key is read twice, but those of cells that rings share with what is inside them.

use super::context::Run;
use super::index_scan::{IndexScan, ScanKind};
use super::row::{Row, RowDocument, as_document};
use super::stage::{Flow, Ran, Receiver, Stage, StageCounters};
use crate::QueryError;
use crate::evaluation::{EvaluationContext, StageMemory};
use crate::matcher::Matcher;
use crate::matcher::near::{Center, NearOutput, NearQuery};
use crate::metadata::{Metadata, MetadataField, MetadataNeeds};
use crate::path::Path;
use crate::plan::access::Access;
use crate::plan::special::of_numbers;
use crate::value::{SharedDocument, Value, with_path};
use bson::RawBson;
use bson::raw::RawBsonRef;
use bytes::Bytes;
use engine::Direction;
use geometry::plane::{self, Region};
use geometry::sphere::{self, Circle};
use keys::FieldKind;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};
use std::f64::consts::PI;
use std::sync::Arc;
use storage::{Index, RecordId};
use wire::ErrorCode;

/// Width of the first ring: 100 m in radians, and as much of the plane's interval.
const FIRST_RING_RADIANS: f64 = 1.6e-5;
const FIRST_RING_OF_INTERVAL: f64 = 1e-5;
/// Documents of a ring from which on the next one is no wider, and narrower.
const ENOUGH: usize = 200;
const TOO_MANY: usize = 2000;
/// What it takes to know a record again, but for its key: a set is between half full and full.
const SEEN_BYTES: usize = 2 * size_of::<RecordId>();
/// Bookkeeping of a document that waits, about.
const FOUND_BYTES: usize = 96;

/// What was searched.
enum Search {
    Sphere(sphere::Search),
    /// Around a point of the plane.
    Plane(plane::Search),
    /// Around a point of the sphere, by longitudes and latitudes.
    Degrees(plane::Search, sphere::Circle),
}

/// A document that is not given yet.
struct Found {
    distance: f64,
    id: RecordId,
    document: Bytes,
}

impl PartialEq for Found {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Found {}

impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Found {
    fn cmp(&self, other: &Self) -> Ordering {
        self.distance.total_cmp(&other.distance).then(self.id.cmp(&other.id))
    }
}

/// See the module.
pub(crate) struct Near {
    access: Access,
    /// The place of the geometry among the index' fields.
    place: usize,
    path: Path,
    pub(crate) query: Arc<NearQuery>,
    filter: Option<Arc<Matcher>>,
    pub(crate) counters: StageCounters,
    /// The ring that is being searched.
    pub(crate) ring: Option<Stage>,
    search: Search,
    /// Outer radius of the last ring that was begun.
    radius: f64,
    width: f64,
    /// Nothing is further away.
    reach: f64,
    /// All documents up to this distance are found; less than zero: none.
    complete: f64,
    found_in_ring: usize,
    found: BTreeSet<Found>,
    /// How many rows are taken at most.
    wanted: Option<u64>,
    seen: HashSet<RecordId>,
    memory: StageMemory,
    needs: MetadataNeeds,
}

impl Near {
    pub(crate) fn new(
        access: Access,
        place: usize,
        path: Path,
        query: Arc<NearQuery>,
        filter: Option<Arc<Matcher>>,
    ) -> Result<Self, QueryError> {
        let kind = access.index.pattern().fields()[place].kind();
        let (least, most) = query.test.search_limits();
        let (search, width, reach) = match (query.test.center(), kind) {
            (
                Center::Sphere {
                    longitude, latitude, ..
                },
                FieldKind::Sphere,
            ) => {
                let center = sphere::point(longitude, latitude);
                let search = sphere::Search::beyond(center, least);
                (Search::Sphere(search), FIRST_RING_RADIANS, PI)
            }
            (
                Center::Sphere {
                    longitude, latitude, ..
                },
                FieldKind::Plane(grid),
            ) => {
                let nearer = Circle::new(sphere::point(longitude, latitude), least);
                let search = Search::Degrees(nearer.search_beyond(grid), nearer);
                (search, FIRST_RING_RADIANS, PI)
            }
            (Center::Plane(center), FieldKind::Plane(grid)) => {
                let (low, high) = grid.interval();
                let search = Search::Plane(plane::Search::beyond(grid, center, least));
                (search, (high - low) * FIRST_RING_OF_INTERVAL, grid.reach(&center))
            }
            _ => {
                return Err(QueryError::new(
                    ErrorCode::InternalError,
                    "the index has no such geometries",
                ));
            }
        };
        Ok(Self {
            access,
            place,
            path,
            filter,
            counters: StageCounters::default(),
            ring: None,
            search,
            radius: least.min(reach),
            width,
            reach: reach.min(most),
            complete: -1.0,
            found_in_ring: 0,
            found: BTreeSet::new(),
            wanted: None,
            seen: HashSet::new(),
            memory: StageMemory::default(),
            needs: MetadataNeeds::default(),
            query,
        })
    }

    /// The same, with what has to be known of its rows.
    pub(crate) fn knowing(self, needs: MetadataNeeds) -> Self {
        Self { needs, ..self }
    }

    /// The same, of which no more than so many rows are taken: others need not wait.
    pub(crate) fn wanting(self, wanted: Option<u64>) -> Self {
        Self { wanted, ..self }
    }

    pub(crate) fn index(&self) -> &Arc<Index> {
        &self.access.index
    }

    /// `GEO_NEAR_2DSPHERE` or `GEO_NEAR_2D`.
    pub(crate) fn name(&self) -> &'static str {
        match self.search {
            Search::Sphere(_) => "GEO_NEAR_2DSPHERE",
            Search::Plane(_) | Search::Degrees(..) => "GEO_NEAR_2D",
        }
    }

    /// Begins the next ring; false when there is none.
    fn begin_ring(&mut self, run: &Run<'_>) -> Result<bool, QueryError> {
        let is_done = |near: &Self| near.complete >= near.reach;
        while !is_done(self) {
            self.radius = (self.radius + self.width).min(self.reach);
            let mut steps = |count| run.evaluation.steps(count);
            let numbers = match (&mut self.search, self.query.test.center()) {
                (Search::Sphere(search), _) => search.grow(self.radius, &mut steps)?,
                (Search::Plane(search), Center::Plane(center)) => search.grow(&Region::Circle {
                    center,
                    radius: self.radius,
                }),
                (Search::Degrees(search, center), _) => {
                    let rectangles = center.with_radius(self.radius).rectangles();
                    let regions = rectangles.into_iter().map(Region::Rectangle);
                    regions.flat_map(|region| search.grow(&region)).collect()
                }
                (Search::Plane(_), Center::Sphere { .. }) => Vec::new(),
            };
            if numbers.is_empty() {
                // Cells that were searched already reach so far.
                self.complete = self.radius;
                self.width *= 2.0;
                if self.gives_next() {
                    return Ok(true);
                }
                continue;
            }
            let bounds = self.access.bounds_with(self.place, of_numbers(&numbers));
            let mut scan = IndexScan::new(
                self.access.index.clone(),
                bounds,
                Direction::Forward,
                ScanKind::Entries,
                true,
            );
            let ring = match scan.gives_documents() {
                true => {
                    scan.filter.clone_from(&self.filter);
                    Stage::IndexScan(Box::new(scan))
                }
                false => Stage::fetch(Stage::IndexScan(Box::new(scan)), self.filter.clone()),
            };
            self.ring = Some(ring);
            self.found_in_ring = 0;
            return Ok(true);
        }
        Ok(false)
    }

    /// The ring is searched: everything up to its radius is found.
    fn end_ring(&mut self) {
        if let Some(ring) = self.ring.take() {
            let (keys, documents) = ring.totals();
            self.counters.keys_examined += keys;
            self.counters.docs_examined += documents;
        }
        self.complete = self.radius;
        match self.found_in_ring {
            found if found > TOO_MANY => self.width /= 2.0,
            0 => self.width *= 4.0,
            found if found < ENOUGH => self.width *= 2.0,
            _ => {}
        }
    }

    fn search_ring(&mut self, run: &Run<'_>) -> Result<Ran, QueryError> {
        let Self {
            ring,
            query,
            path,
            found,
            found_in_ring,
            seen,
            memory,
            counters,
            wanted,
            ..
        } = self;
        let Some(ring) = ring else {
            return Ok(Ran::Exhausted);
        };
        let mut receive = |row: Row<'_>| {
            counters.works += 1;
            if !seen.insert(row.id.clone()) {
                return Ok(Flow::Continue);
            }
            let key_bytes = match &row.id {
                RecordId::Number(_) => 0,
                RecordId::Key(key) => key.len(),
            };
            memory.grow(run.evaluation, SEEN_BYTES + key_bytes)?;
            let measured = query
                .test
                .measure(as_document(row.document.bytes())?, path, run.evaluation)?;
            let Some((distance, _)) = measured.filter(|(distance, _)| query.test.is_within_limits(*distance)) else {
                return Ok(Flow::Continue);
            };
            *found_in_ring += 1;
            let left = wanted.map(|wanted| wanted.saturating_sub(counters.advanced));
            let is_full = left.is_some_and(|left| found.len() as u64 >= left);
            if is_full {
                match found.last() {
                    Some(last) if (distance, &row.id) < (last.distance, &last.id) => {}
                    _ => return Ok(Flow::Continue),
                }
                if let Some(last) = found.pop_last() {
                    memory.shrink(last.document.len() + FOUND_BYTES);
                }
            }
            let document = row.document.to_kept_bytes();
            memory.grow(run.evaluation, document.len() + FOUND_BYTES)?;
            found.insert(Found {
                distance,
                id: row.id,
                document,
            });
            Ok(Flow::Continue)
        };
        run.wanting(u64::MAX, || ring.run(run, &mut receive))
    }

    fn gives_next(&self) -> bool {
        self.found.first().is_some_and(|next| next.distance <= self.complete)
    }

    pub(crate) fn run(&mut self, run: &Run<'_>, receive: &mut Receiver<'_>) -> Result<Ran, QueryError> {
        loop {
            while self.gives_next() {
                let Some(next) = self.found.pop_first() else { break };
                self.memory.shrink(next.document.len() + FOUND_BYTES);
                self.counters.advanced += 1;
                let made = match &self.query.output {
                    Some(output) => Some(self.with_output(output, &next, run.evaluation)?),
                    None => None,
                };
                let document = match &made {
                    Some(made) => RowDocument::Made(made.as_raw().as_bytes()),
                    None => RowDocument::Shared(&next.document),
                };
                let metadata = match self.needs.is_empty() {
                    true => None,
                    false => Some(Arc::new(self.metadata(&next, run.evaluation)?)),
                };
                let flow = receive(Row {
                    id: next.id,
                    document,
                    key: None,
                    metadata: metadata.as_ref(),
                })?;
                if flow == Flow::Stop {
                    return Ok(Ran::Stopped);
                }
            }
            if self.ring.is_none() && !self.begin_ring(run)? {
                self.counters.exhausted = true;
                return Ok(Ran::Exhausted);
            }
            if self.ring.is_none() {
                continue;
            }
            match self.search_ring(run)? {
                Ran::Exhausted | Ran::CaughtUp => self.end_ring(),
                ran => return Ok(ran),
            }
        }
    }

    /// What `$meta` tells of a document.
    fn metadata(&self, found: &Found, context: &EvaluationContext<'_>) -> Result<Metadata, QueryError> {
        let mut metadata = Metadata {
            near_distance: Some(found.distance * self.query.test.unit()),
            ..Metadata::default()
        };
        if self.needs.has(MetadataField::NearPoint) {
            let measured = self
                .query
                .test
                .measure(as_document(&found.document)?, &self.path, context)?;
            if let Some((_, point)) = measured {
                metadata.set(MetadataField::NearPoint, RawBson::from(point));
            }
        }
        Ok(metadata)
    }

    /// The document with what `$geoNear` adds.
    fn with_output(
        &self,
        output: &NearOutput,
        found: &Found,
        context: &EvaluationContext<'_>,
    ) -> Result<SharedDocument, QueryError> {
        let mut document = SharedDocument::new(found.document.clone())?;
        if let Some(path) = &output.distance {
            let distance = found.distance * self.query.test.unit() * output.multiplier;
            let distance = Value::from_raw(RawBsonRef::Double(distance));
            document = with_path(document.as_raw(), &names(path), &distance)?;
        }
        if let Some(path) = &output.location
            && let Some((_, location)) = self
                .query
                .test
                .measure(as_document(&found.document)?, &self.path, context)?
        {
            document = with_path(document.as_raw(), &names(path), &Value::from_raw(location))?;
        }
        Ok(document)
    }
}

fn names(path: &Path) -> Vec<Box<str>> {
    path.parts().iter().map(|part| part.name().into()).collect()
}
