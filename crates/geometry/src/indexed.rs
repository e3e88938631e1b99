//! A geometry that many others are tested against, with what makes each test cheap.
//!
//! Points are looked up in cells. The sphere is cut into S2 cells with few arcs in each. Of a cell's centre is known
//! which polygons it is inside of, so that the crossings of the way from there to a point, by the arcs that are near,
//! tell of the point: as counting all crossings from the origin does. For lines and polygons there are the trees of
//! the parts.

use crate::Steps;
use crate::ring::{Arc, TOUCH};
use crate::sphere::{FINEST_LEVEL, Geometry, Known, Part, angle};
use s2::cell::Cell;
use s2::cellid::CellID;
use s2::point::Point;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Arcs from which on cells and trees are worth it.
const INDEXED_ARCS: usize = 200;
/// Points and arcs that are held against all arcs before there are any, which cost as much as some hundred of them.
const LOOKS_WITHOUT: usize = 64;
/// A cell with so few is not cut any more.
const ARCS_OF_CELL: usize = 8;
/// Nor do all cells together take much more than so many times the arcs of the geometry. Long ones are in many.
const SHARES_MAX: usize = 8;
/// What a cell takes beside what is in it, in arcs.
const SHARES_OF_CELL: usize = 4;

/// See the module.
#[derive(Debug)]
pub struct Indexed {
    geometry: Geometry,
    /// How many it has.
    arcs: usize,
    /// About how many points and arcs it was asked, until they are enough.
    looks: AtomicUsize,
    cells: OnceLock<Cells>,
}

#[derive(Debug)]
struct Cells {
    /// Each with the place of its part, and whether that is a polygon. Rising by place.
    arcs: Vec<(usize, bool, Arc)>,
    /// Rising, together the sphere.
    cells: Vec<(CellID, Known)>,
}

impl Indexed {
    /// Of a geometry. Cells and trees are made once it was asked about some points and arcs.
    pub fn new(geometry: Geometry) -> Self {
        Self {
            arcs: geometry.arcs(),
            geometry,
            looks: AtomicUsize::new(0),
            cells: OnceLock::new(),
        }
    }

    /// The geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// As [`Geometry::meets`].
    pub fn meets<E>(&self, other: &Geometry, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        if !self.is_worth_it(other) {
            return self.geometry.meets(other, steps);
        }
        other.any_part(|part| match part {
            Part::Point(point) => self.cells(steps)?.has(point, |_| true, steps),
            _ => self.with_trees(steps)?.meets_part(part, steps),
        })
    }

    /// As [`Geometry::contains`].
    pub fn contains<E>(&self, other: &Geometry, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        if !self.is_worth_it(other) {
            return self.geometry.contains(other, steps);
        }
        other.all_parts(|part| match part {
            Part::Point(point) => self.cells(steps)?.has(point, |is_polygon| is_polygon, steps),
            _ => self.with_trees(steps)?.contains_part(part, steps),
        })
    }

    /// False while looking at all arcs is as good.
    fn is_worth_it(&self, other: &Geometry) -> bool {
        if self.arcs < INDEXED_ARCS {
            return false;
        }
        let mut looks = self.looks.load(Ordering::Relaxed);
        if looks <= LOOKS_WITHOUT {
            looks += other.arcs();
            // Looks of others at the same time may be lost: it is an estimate.
            self.looks.store(looks, Ordering::Relaxed);
        }
        looks > LOOKS_WITHOUT
    }

    fn cells<E>(&self, steps: &mut Steps<'_, E>) -> Result<&Cells, E> {
        if let Some(cells) = self.cells.get() {
            return Ok(cells);
        }
        let cells = Cells::of(&self.geometry, self.arcs, steps)?;
        // Whoever came first has made the same.
        Ok(self.cells.get_or_init(|| cells))
    }

    fn with_trees<E>(&self, steps: &mut Steps<'_, E>) -> Result<&Geometry, E> {
        self.geometry.prepare(LOOKS_WITHOUT, steps)?;
        Ok(&self.geometry)
    }

    /// What the cells take, as it is bounded by [`SHARES_MAX`]; 0 while there are none.
    #[cfg(test)]
    pub(crate) fn shares(&self) -> usize {
        let of_all = |cells: &Cells| cells.cells.iter().map(|(_, known)| shares_of(known)).sum::<usize>();
        self.cells.get().map_or(0, of_all)
    }
}

fn shares_of(known: &Known) -> usize {
    SHARES_OF_CELL + known.near.len() + known.inside.len()
}

impl Cells {
    /// `count` is how many arcs the geometry has.
    fn of<E>(geometry: &Geometry, count: usize, steps: &mut Steps<'_, E>) -> Result<Self, E> {
        let outline = geometry.outline();
        let mut open = VecDeque::new();
        for face in 0..6 {
            let id = CellID::from_face(face);
            open.push_back((id, outline.known(&Cell::from(id), None, steps)?));
        }
        let mut cells = Vec::new();
        let mut shares: usize = open.iter().map(|(_, known)| shares_of(known)).sum();
        // Breadth first: those at the front are the largest.
        while let Some((id, known)) = open.pop_front() {
            let is_whole = known.near.len() <= ARCS_OF_CELL || id.level() >= FINEST_LEVEL;
            if is_whole || shares > SHARES_MAX * (INDEXED_ARCS + count) {
                cells.push((id, known));
                continue;
            }
            shares -= shares_of(&known);
            for child in id.children() {
                let of_child = outline.known(&Cell::from(child), Some(&known), steps)?;
                shares += shares_of(&of_child);
                open.push_back((child, of_child));
            }
        }
        cells.sort_unstable_by_key(|(id, _)| *id);
        let arcs = outline
            .arcs
            .iter()
            .map(|(place, arc)| (*place, outline.is_polygon(*place), *arc));
        Ok(Self {
            arcs: arcs.collect(),
            cells,
        })
    }

    /// Whether a point is inside of a polygon, or touches a part that counts.
    fn has<E>(&self, point: &Point, counts: fn(bool) -> bool, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        let id = CellID::from(point);
        let place = self.cells.partition_point(|(cell, _)| cell.range_max() < id);
        let Some((_, known)) = self.cells.get(place) else {
            return Ok(false);
        };
        steps(1 + known.near.len())?;
        let arc_at = |i: &u32| &self.arcs[*i as usize];
        // Polygons with the centre inside that have arcs here.
        let mut asked = 0;
        for boundary in known.near.chunk_by(|one, next| arc_at(one).0 == arc_at(next).0) {
            let (part, is_polygon, _) = arc_at(&boundary[0]);
            if !*is_polygon {
                continue;
            }
            let mut is_inside = known.inside.binary_search(&(*part as u32)).is_ok();
            asked += usize::from(is_inside);
            if known.center != *point {
                let crossings = boundary.iter().map(|i| arc_at(i).2.is_crossed(&known.center, point));
                crossings.for_each(|is_crossed| is_inside ^= is_crossed);
            }
            if is_inside {
                return Ok(true);
            }
        }
        // All others with the centre inside have the whole cell inside.
        if asked < known.inside.len() {
            return Ok(true);
        }
        let touches = |arc: &Arc| match arc.is_point() {
            true => angle(&arc.a, point) <= TOUCH,
            false => arc.touches_point(point),
        };
        let mut near = known.near.iter().map(arc_at);
        Ok(near.any(|(_, is_polygon, arc)| counts(*is_polygon) && touches(arc)))
    }
}
