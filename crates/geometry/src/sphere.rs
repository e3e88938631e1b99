//! Geometries on the unit sphere: predicates, distances, and coverings by S2 cells.
//!
//! What lies within [`TOUCH`] of each other touches. A cell key is the 64-bit number of an S2 cell as a signed integer;
//! the cells inside a cell have the keys of one interval, so that a covering of at most a few cells is as many
//! intervals.

mod circle;

pub use circle::{Circle, Search};

use crate::ring::{Arc, Ring, TOUCH};
use crate::tree::Tree;
use crate::{Steps, uncounted};
use s2::cell::Cell;
use s2::cellid::CellID;
use s2::latlng::LatLng;
use s2::point::Point;
use s2::region::Region;
use std::collections::VecDeque;
use std::sync::OnceLock;

/// Most cells of a covering. A geometry around a corner of the cube of cells may have a few more.
const CELLS_MAX: usize = 20;
/// Level of the smallest cells of coverings, about a metre wide. Points have cells of the last level.
pub(crate) const FINEST_LEVEL: u64 = 23;

/// Looks for what is near in one part, and arcs that it has, from which on a tree is made: that costs as much as some
/// looks at all arcs.
const TREE_LOOKS: usize = 64;
const TREE_ARCS: usize = 64;
/// Arcs up to which debug builds hold what cells inherit against counting it anew.
const AUDITED_ARCS: usize = 200;

/// The point at a longitude and latitude, in degrees.
pub fn point(longitude: f64, latitude: f64) -> Point {
    Point::from(LatLng::from_degrees(latitude, longitude))
}

/// The angle between two points, in radians.
pub fn angle(a: &Point, b: &Point) -> f64 {
    a.distance(b).rad()
}

/// A geometry without parts of its own.
#[derive(Clone, Debug)]
pub enum Part {
    /// A point.
    Point(Point),
    /// A chain of at least one arc.
    Line(Line),
    /// A ring less the rings inside of it.
    Polygon(Polygon),
}

// A document may have a million points, each of which is a part.
const _: () = assert!(size_of::<Part>() <= 48);

/// A chain of arcs.
#[derive(Clone, Debug)]
pub struct Line {
    arcs: Vec<Arc>,
    /// Boxed, as few parts have one and a document may have a million parts.
    tree: OnceLock<Box<Tree>>,
}

impl Line {
    /// From its vertices, of which no two neighbours are the same; `None` when there are fewer than two.
    pub(crate) fn new(vertices: &[Point]) -> Option<Self> {
        let arcs: Vec<Arc> = vertices.windows(2).map(|ends| Arc::new(ends[0], ends[1])).collect();
        (!arcs.is_empty()).then_some(Self {
            arcs,
            tree: OnceLock::new(),
        })
    }
}

/// A ring less its holes.
#[derive(Clone, Debug)]
pub struct Polygon {
    /// The outer ring, then the holes.
    rings: Vec<Ring>,
    /// How many arcs all rings have together. Kept, as it is asked for each pair of parts, and there may be a hundred
    /// thousand rings.
    arc_count: u32,
    /// Whether S2's origin is inside.
    holds_origin: bool,
    /// See [`Line`].
    tree: OnceLock<Box<Tree>>,
}

impl Polygon {
    pub(crate) fn new(rings: Vec<Ring>) -> Self {
        Self {
            arc_count: rings.iter().map(|ring| ring.arcs().len() as u32).sum(),
            holds_origin: rings.iter().fold(false, |inside, ring| inside ^ ring.holds_origin()),
            rings,
            tree: OnceLock::new(),
        }
    }

    pub(crate) fn rings(&self) -> &[Ring] {
        &self.rings
    }

    pub(crate) fn arcs(&self) -> impl Iterator<Item = &Arc> {
        self.rings.iter().flat_map(Ring::arcs)
    }

    /// Whether a point is inside; of points on the boundary those that the rings contain.
    fn contains<E>(&self, point: &Point, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        if let Some(tree) = self.tree.get() {
            let mut inside = self.holds_origin;
            tree.crossed(point, steps, |_| inside = !inside)?;
            return Ok(inside);
        }
        let mut inside = false;
        for ring in &self.rings {
            inside ^= ring.contains(point, steps)?;
        }
        Ok(inside)
    }

    fn touches<E>(&self, point: &Point, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        if let Some(tree) = self.tree.get() {
            return tree.any_touching(point, steps, |_| true);
        }
        for ring in &self.rings {
            if ring.touches(point, steps)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn contains_or_touches<E>(&self, point: &Point, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        Ok(self.contains(point, steps)? || self.touches(point, steps)?)
    }

    /// Of each ring a point that is just outside of the polygon, beside an arc of it; none of a ring that has no room
    /// beside its arcs. The holes and what is around the polygon each have one.
    fn points_outside<E>(&self, steps: &mut Steps<'_, E>) -> Result<Vec<Point>, E> {
        let mut found = Vec::with_capacity(self.rings.len());
        for ring in &self.rings {
            let beside = ring
                .arcs()
                .iter()
                .flat_map(|arc| [-1.0, 1.0].map(|side| arc.beside(side * 3.0 * TOUCH)));
            for point in beside {
                if !self.contains_or_touches(&point, steps)? {
                    found.push(point);
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Whether arcs lie inside, the boundary with it.
    fn contains_arcs<'a, E>(&self, arcs: impl Iterator<Item = &'a Arc>, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        let tree = self.tree.get().map(Box::as_ref);
        for arc in arcs {
            if !self.contains_or_touches(&arc.a, steps)? || !self.contains_or_touches(&arc.b, steps)? {
                return Ok(false);
            }
            if any_near(tree, self.arcs(), arc, steps, |own| own.crosses(arc))? {
                return Ok(false);
            }
            // From boundary to boundary it may go outside without crossing anything.
            if self.touches(&arc.a, steps)?
                && self.touches(&arc.b, steps)?
                && !self.contains_or_touches(arc.midpoint(), steps)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether `found` says yes to one of some arcs: only to those that may touch another if they have a tree.
fn any_near<'a, E>(
    tree: Option<&Tree>,
    arcs: impl Iterator<Item = &'a Arc>,
    near: &Arc,
    steps: &mut Steps<'_, E>,
    found: impl Fn(&Arc) -> bool,
) -> Result<bool, E> {
    if let Some(tree) = tree {
        return tree.any_near(near, steps, |_, arc| found(arc));
    }
    for arc in arcs {
        steps(1)?;
        if found(arc) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Part {
    /// Makes the tree of the arcs, if it is worth it for so many looks.
    fn prepare<E>(&self, looks: usize, steps: &mut Steps<'_, E>) -> Result<(), E> {
        if looks >= TREE_LOOKS
            && self.arc_count() >= TREE_ARCS
            && let Some(tree) = self.tree_cell()
            && tree.get().is_none()
        {
            let made = Tree::of(self.arcs(), steps)?;
            // Whoever came first has made the same.
            tree.get_or_init(|| Box::new(made));
        }
        Ok(())
    }

    fn tree(&self) -> Option<&Tree> {
        self.tree_cell()?.get().map(Box::as_ref)
    }

    fn tree_cell(&self) -> Option<&OnceLock<Box<Tree>>> {
        match self {
            Part::Point(_) => None,
            Part::Line(line) => Some(&line.tree),
            Part::Polygon(polygon) => Some(&polygon.tree),
        }
    }

    /// How many [`Part::arcs`] gives.
    fn arc_count(&self) -> usize {
        match self {
            Part::Point(_) => 0,
            Part::Line(line) => line.arcs.len(),
            Part::Polygon(polygon) => polygon.arc_count as usize,
        }
    }

    fn arcs(&self) -> Box<dyn Iterator<Item = &Arc> + '_> {
        match self {
            Part::Point(_) => Box::new(std::iter::empty()),
            Part::Line(line) => Box::new(line.arcs.iter()),
            Part::Polygon(polygon) => Box::new(polygon.arcs()),
        }
    }

    /// A point of it.
    fn any_point(&self) -> &Point {
        match self {
            Part::Point(point) => point,
            Part::Line(line) => &line.arcs[0].a,
            Part::Polygon(polygon) => &polygon.rings[0].arcs()[0].a,
        }
    }

    fn meets<E>(&self, other: &Part, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        match (self, other) {
            (Part::Point(one), Part::Point(other)) => Ok(angle(one, other) <= TOUCH),
            (Part::Point(point), Part::Line(line)) | (Part::Line(line), Part::Point(point)) => {
                steps(line.arcs.len())?;
                Ok(line.arcs.iter().any(|arc| arc.touches_point(point)))
            }
            (Part::Point(point), Part::Polygon(polygon)) | (Part::Polygon(polygon), Part::Point(point)) => {
                polygon.contains_or_touches(point, steps)
            }
            (one, other) => {
                // Where there is a tree already, or else where there is more to look through.
                let rank = |part: &Part| (part.tree().is_some(), part.arc_count());
                let (few, many) = match rank(one) <= rank(other) {
                    true => (one, other),
                    false => (other, one),
                };
                many.prepare(few.arc_count(), steps)?;
                for arc in few.arcs() {
                    if any_near(many.tree(), many.arcs(), arc, steps, |beside| arc.meets(beside))? {
                        return Ok(true);
                    }
                }
                // Their boundaries are apart: one is inside of the other as a whole, or not at all.
                let has = |whole: &Part, part: &Part, steps: &mut Steps<'_, E>| match whole {
                    Part::Polygon(polygon) => polygon.contains(part.any_point(), steps),
                    _ => Ok(false),
                };
                Ok(has(one, other, steps)? || has(other, one, steps)?)
            }
        }
    }

    fn contains<E>(&self, other: &Part, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        let Part::Polygon(polygon) = self else {
            return Ok(false);
        };
        match other {
            Part::Point(point) => polygon.contains_or_touches(point, steps),
            Part::Line(line) => {
                self.prepare(other.arc_count(), steps)?;
                polygon.contains_arcs(line.arcs.iter(), steps)
            }
            Part::Polygon(inner) => {
                self.prepare(other.arc_count() + polygon.rings.len(), steps)?;
                if !polygon.contains_arcs(inner.arcs(), steps)? {
                    return Ok(false);
                }
                other.prepare(self.arc_count(), steps)?;
                // No hole lies in the other's inside, nor does what is around the polygon, if that is the smaller part.
                for vertex in polygon.arcs().map(|arc| &arc.a) {
                    if inner.contains(vertex, steps)? && !inner.touches(vertex, steps)? {
                        return Ok(false);
                    }
                }
                // One whose vertices are all on the other's boundary may.
                for point in polygon.points_outside(steps)? {
                    if inner.contains(&point, steps)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    fn distance<E>(&self, point: &Point, steps: &mut Steps<'_, E>) -> Result<f64, E> {
        let nearest = |arcs: &mut dyn Iterator<Item = &Arc>, steps: &mut Steps<'_, E>| {
            let mut nearest = f64::INFINITY;
            for arc in arcs {
                steps(1)?;
                nearest = nearest.min(arc.distance(point));
            }
            Ok(nearest)
        };
        match self {
            Part::Point(other) => Ok(angle(point, other)),
            Part::Line(line) => nearest(&mut line.arcs.iter(), steps),
            Part::Polygon(polygon) if polygon.contains(point, steps)? => Ok(0.0),
            Part::Polygon(polygon) => nearest(&mut polygon.arcs(), steps),
        }
    }
}

/// How a region and a cell lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overlap {
    None,
    /// They may have points in common.
    Some,
    /// The cell lies in the region.
    All,
}

/// A geometry: one part, or many.
#[derive(Clone, Debug)]
pub struct Geometry {
    parts: Vec<Part>,
    /// A polygon that may be larger than half of the sphere: only queries have those.
    pub is_as_wound: bool,
}

impl Geometry {
    /// From its parts, at least one.
    pub(crate) fn new(parts: Vec<Part>) -> Self {
        Self {
            parts,
            is_as_wound: false,
        }
    }

    /// Of a single point.
    pub fn of_point(point: Point) -> Self {
        Self::new(vec![Part::Point(point)])
    }

    /// The point, where it is one, for tests.
    #[cfg(test)]
    pub(crate) fn as_point(&self) -> Option<&Point> {
        match self.parts.as_slice() {
            [Part::Point(point)] => Some(point),
            _ => None,
        }
    }

    /// True when there is a polygon among the parts: nothing else contains anything.
    pub fn has_polygons(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Polygon(_)))
    }

    pub(crate) fn polygons(&self) -> impl Iterator<Item = &Polygon> {
        self.parts.iter().filter_map(|part| match part {
            Part::Polygon(polygon) => Some(polygon),
            _ => None,
        })
    }

    /// How many arcs it has; a point counts as one.
    pub fn arcs(&self) -> usize {
        self.parts.iter().map(|part| part.arc_count().max(1)).sum()
    }

    pub(crate) fn outline(&self) -> Outline<'_> {
        Outline::of(self.parts.iter().collect())
    }

    /// Whether `has` says yes to one of the parts.
    pub(crate) fn any_part<E>(&self, mut has: impl FnMut(&Part) -> Result<bool, E>) -> Result<bool, E> {
        for part in &self.parts {
            if has(part)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether `has` says yes to all of the parts.
    pub(crate) fn all_parts<E>(&self, mut has: impl FnMut(&Part) -> Result<bool, E>) -> Result<bool, E> {
        Ok(!self.any_part(|part| has(part).map(|is_so| !is_so))?)
    }

    /// Makes whatever is worth it for that many looks for what is near.
    pub(crate) fn prepare<E>(&self, looks: usize, steps: &mut Steps<'_, E>) -> Result<(), E> {
        self.parts.iter().try_for_each(|part| part.prepare(looks, steps))
    }

    /// Whether they have a point in common.
    pub fn meets<E>(&self, other: &Geometry, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        other.any_part(|part| self.meets_part(part, steps))
    }

    pub(crate) fn meets_part<E>(&self, part: &Part, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        self.any_part(|own| {
            // Of two points as well, of which a document may have a million.
            steps(1)?;
            own.meets(part, steps)
        })
    }

    /// Whether each part of another lies in one of the polygons of this one.
    pub fn contains<E>(&self, other: &Geometry, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        other.all_parts(|part| self.contains_part(part, steps))
    }

    pub(crate) fn contains_part<E>(&self, part: &Part, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        self.any_part(|own| {
            steps(1)?;
            own.contains(part, steps)
        })
    }

    /// The angle between a point and the nearest point of the geometry, in radians.
    pub fn distance<E>(&self, point: &Point, steps: &mut Steps<'_, E>) -> Result<f64, E> {
        let mut nearest = f64::INFINITY;
        for part in &self.parts {
            nearest = nearest.min(part.distance(point, steps)?);
        }
        Ok(nearest)
    }

    /// The keys that an index has of it: the cell of a point, a covering of anything else.
    pub fn keys<E>(&self, steps: &mut Steps<'_, E>) -> Result<Vec<i64>, E> {
        let (points, others): (Vec<&Part>, Vec<&Part>) =
            self.parts.iter().partition(|part| matches!(part, Part::Point(_)));
        let mut keys: Vec<i64> = points
            .iter()
            .map(|part| cell_key(CellID::from(part.any_point())))
            .collect();
        if !others.is_empty() {
            let cells = Outline::of(others).covering(steps)?;
            keys.extend(cells.into_iter().map(cell_key));
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// The intervals of keys that whatever meets it has one of.
    pub fn key_intervals<E>(&self, steps: &mut Steps<'_, E>) -> Result<Vec<(i64, i64)>, E> {
        Ok(intervals(&self.outline().covering(steps)?))
    }
}

/// What a covering is made of: the arcs of all parts, points as arcs without length.
pub(crate) struct Outline<'p> {
    parts: Vec<&'p Part>,
    /// Each with the place of its part.
    pub(crate) arcs: Vec<(usize, Arc)>,
}

/// What is known of a cell, from which what its children are follows without a look at everything.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The arcs that may be in it, or touch what is in it.
    pub(crate) near: Vec<u32>,
    pub(crate) center: Point,
    /// The places of the polygons that have the centre inside, rising.
    pub(crate) inside: Vec<u32>,
}

impl<'p> Outline<'p> {
    fn of(parts: Vec<&'p Part>) -> Self {
        let mut arcs = Vec::new();
        for (place, part) in parts.iter().enumerate() {
            match part {
                Part::Point(point) => arcs.push((place, Arc::new(*point, *point))),
                part => arcs.extend(part.arcs().map(|arc| (place, *arc))),
            }
        }
        Self { parts, arcs }
    }

    fn covering<E>(&self, steps: &mut Steps<'_, E>) -> Result<Vec<CellID>, E> {
        covering(|cell, parent| self.overlap(cell, parent, steps))
    }

    /// Whether the part at a place is a polygon: others have no inside.
    pub(crate) fn is_polygon(&self, place: usize) -> bool {
        matches!(self.parts[place], Part::Polygon(_))
    }

    /// What is known of a cell, from what is known of the one around it.
    pub(crate) fn known<E>(&self, cell: &Cell, parent: Option<&Known>, steps: &mut Steps<'_, E>) -> Result<Known, E> {
        let center = cell.center();
        let inside = match parent {
            None => self.with_inside(&center, steps)?,
            Some(parent) => {
                // The way from centre to centre stays in the parent.
                let near = parent.near.iter().map(|i| &self.arcs[*i as usize]);
                let crossed = near
                    .filter(|(place, arc)| self.is_polygon(*place) && arc.is_crossed(&parent.center, &center))
                    .map(|(place, _)| *place as u32);
                toggled(&parent.inside, crossed)
            }
        };
        debug_assert!(
            self.arcs.len() > AUDITED_ARCS || self.with_inside(&center, &mut uncounted) == Ok(inside.clone()),
            "what is inherited is what counting from the origin says"
        );
        let around = cell.cap_bound();
        let chord = 2.0 * (around.radius().rad() / 2.0).sin();
        let is_near = |i: &u32| self.arcs[*i as usize].1.is_near(around.center(), chord);
        let near: Vec<u32> = match parent {
            None => (0..self.arcs.len() as u32).filter(is_near).collect(),
            Some(parent) => parent.near.iter().copied().filter(is_near).collect(),
        };
        steps(parent.map_or(self.arcs.len(), |parent| parent.near.len() + parent.inside.len()))?;
        Ok(Known { near, center, inside })
    }

    fn overlap<E>(&self, cell: &Cell, parent: Option<&Known>, steps: &mut Steps<'_, E>) -> Result<(Overlap, Known), E> {
        let known = self.known(cell, parent, steps)?;
        let corners = cell.vertices();
        let sides: [Arc; 4] = std::array::from_fn(|i| Arc::new(corners[i], corners[(i + 1) % 4]));
        let is_here = |arc: &Arc| {
            cell.contains_point(&arc.a)
                || match arc.is_point() {
                    true => sides.iter().any(|side| side.touches_point(&arc.a)),
                    false => sides.iter().any(|side| side.meets(arc)),
                }
        };
        let overlap = match () {
            () if known.near.iter().any(|i| is_here(&self.arcs[*i as usize].1)) => Overlap::Some,
            () if !known.inside.is_empty() => Overlap::All,
            () => Overlap::None,
        };
        Ok((overlap, known))
    }

    /// The places of the polygons that have a point inside, rising.
    fn with_inside<E>(&self, point: &Point, steps: &mut Steps<'_, E>) -> Result<Vec<u32>, E> {
        let mut inside = Vec::new();
        for (place, part) in self.parts.iter().enumerate() {
            if let Part::Polygon(polygon) = part
                && polygon.contains(point, steps)?
            {
                inside.push(place as u32);
            }
        }
        Ok(inside)
    }
}

/// Which polygons a point is inside of, rising, from those of another point and those whose boundary is crossed on the
/// way, once for each crossing.
pub(crate) fn toggled(inside: &[u32], crossed: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut places: Vec<u32> = inside.iter().copied().chain(crossed).collect();
    places.sort_unstable();
    let mut odd: Vec<u32> = Vec::new();
    for place in places {
        // Two of the same cancel each other.
        if odd.pop_if(|last| *last == place).is_none() {
            odd.push(place);
        }
    }
    odd
}

/// Cells that together have all of a region, about [`CELLS_MAX`], by taking the largest ones apart first that lie only
/// partly in it. `overlap` is told what it knew of the cell around.
fn covering<K, E>(mut overlap: impl FnMut(&Cell, Option<&K>) -> Result<(Overlap, K), E>) -> Result<Vec<CellID>, E> {
    let mut done = Vec::new();
    let mut open = VecDeque::new();
    let mut sort = |id: CellID, around: Option<&K>, done: &mut Vec<CellID>, open: &mut VecDeque<(CellID, K)>| {
        match overlap(&Cell::from(id), around)? {
            (Overlap::None, _) => {}
            (Overlap::Some, known) if id.level() < FINEST_LEVEL => open.push_back((id, known)),
            (Overlap::Some | Overlap::All, _) => done.push(id),
        }
        Ok(())
    };
    for face in 0..6 {
        sort(CellID::from_face(face), None, &mut done, &mut open)?;
    }
    // Breadth first: those at the front are the largest.
    while let Some((cell, known)) = open.pop_front() {
        let (done_before, open_before) = (done.len(), open.len());
        for child in cell.children() {
            sort(child, Some(&known), &mut done, &mut open)?;
        }
        let children = done.len() - done_before + open.len() - open_before;
        if done_before + open_before + children > CELLS_MAX && children > 1 {
            // No room for its children: it stays as a whole, and so do all that are left.
            done.truncate(done_before);
            open.truncate(open_before);
            done.push(cell);
        }
    }
    done.sort_unstable();
    Ok(done)
}

fn cell_key(cell: CellID) -> i64 {
    cell.0 as i64
}

/// The keys of the cells inside these, and of the cells that these are inside of.
fn intervals(cells: &[CellID]) -> Vec<(i64, i64)> {
    let mut intervals: Vec<(i64, i64)> = Vec::new();
    for cell in cells {
        intervals.push((cell_key(cell.range_min()), cell_key(cell.range_max())));
        for level in 0..cell.level() {
            let ancestor = cell_key(cell.parent(level));
            intervals.push((ancestor, ancestor));
        }
    }
    intervals.sort_unstable();
    intervals.dedup();
    intervals
}

#[cfg(test)]
mod many_arcs;
