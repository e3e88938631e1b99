//! Geometries that many points are held against.
//!
//! The sphere is cut into S2 cells with few arcs in each. Of a cell's centre is known which polygons it is inside of,
//! so that the crossings of the way from there to a point, by the arcs that are near, tell of the point: as counting
//! all crossings from the origin does.

use crate::Steps;
use crate::ring::{Arc, TOUCH};
use crate::sphere::{FINEST_LEVEL, Geometry, Known, angle};
use s2::cell::Cell;
use s2::cellid::CellID;
use s2::point::Point;
use std::collections::VecDeque;

/// Arcs from which on cells are worth it.
const INDEXED_ARCS: usize = 200;
/// A cell with so few is not cut any more.
const ARCS_OF_CELL: usize = 8;
/// Nor are there more arcs in all cells together than so many times those of the geometry. Long ones are in many.
const SHARES_MAX: usize = 8;

/// See the module.
#[derive(Clone, Debug)]
pub struct Indexed {
    geometry: Geometry,
    /// Each with the place of its part, and whether that is a polygon.
    arcs: Vec<(usize, bool, Arc)>,
    /// Rising, together the sphere; none where counting all is as good.
    cells: Vec<(CellID, Known)>,
}

impl Indexed {
    /// Of a geometry.
    pub fn new<E>(geometry: Geometry, steps: &mut Steps<'_, E>) -> Result<Self, E> {
        let count = geometry.arcs();
        if count < INDEXED_ARCS {
            return Ok(Self {
                geometry,
                arcs: Vec::new(),
                cells: Vec::new(),
            });
        }
        let outline = geometry.outline();
        let mut open = VecDeque::new();
        for face in 0..6 {
            let id = CellID::from_face(face);
            open.push_back((id, outline.known(&Cell::from(id), None, steps)?));
        }
        let mut cells = Vec::new();
        let mut shares: usize = open.iter().map(|(_, known)| known.near.len()).sum();
        // Breadth first: those at the front are the largest.
        while let Some((id, known)) = open.pop_front() {
            let is_whole = known.near.len() <= ARCS_OF_CELL || id.level() >= FINEST_LEVEL;
            if is_whole || shares > SHARES_MAX * count {
                cells.push((id, known));
                continue;
            }
            shares -= known.near.len();
            for child in id.children() {
                let of_child = outline.known(&Cell::from(child), Some(&known), steps)?;
                shares += of_child.near.len();
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
            geometry,
        })
    }

    /// The geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// As [`Geometry::meets`].
    pub fn meets<E>(&self, other: &Geometry, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        match other.as_point() {
            Some(point) if !self.cells.is_empty() => self.has(point, |_| true, steps),
            _ => self.geometry.meets(other, steps),
        }
    }

    /// As [`Geometry::contains`].
    pub fn contains<E>(&self, other: &Geometry, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        match other.as_point() {
            Some(point) if !self.cells.is_empty() => self.has(point, |is_polygon| is_polygon, steps),
            _ => self.geometry.contains(other, steps),
        }
    }

    /// Whether a point is inside of a polygon, or touches a part that counts.
    fn has<E>(&self, point: &Point, counts: fn(bool) -> bool, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        let id = CellID::from(point);
        let place = self.cells.partition_point(|(cell, _)| cell.range_max() < id);
        let Some((_, known)) = self.cells.get(place) else {
            return Ok(false);
        };
        steps(1 + known.near.len())?;
        let near = || known.near.iter().map(|i| &self.arcs[*i as usize]);
        let mut inside = known.inside.iter().copied().enumerate();
        let is_inside = |(part, mut inside): (usize, bool)| {
            let boundary = near().filter(|(place, is_polygon, _)| *is_polygon && *place == part);
            if known.center != *point {
                boundary.for_each(|(_, _, arc)| inside ^= arc.is_crossed(&known.center, point));
            }
            inside
        };
        let touches = |arc: &Arc| match arc.is_point() {
            true => angle(&arc.a, point) <= TOUCH,
            false => arc.touches_point(point),
        };
        Ok(inside.any(is_inside) || near().any(|(_, is_polygon, arc)| counts(*is_polygon) && touches(arc)))
    }
}
