//! Whether the rings of a polygon agree with each other.
//!
//! Queries and new documents have to pass. What is stored may be older than the check: it is read without it, and keeps
//! the keys that it has.

use crate::read::invalid;
use crate::ring::{Arc, clashing_arcs};
use crate::sphere::{Geometry, Polygon};
use crate::{GeometryError, Steps};
use s2::point::Point;
use std::collections::HashSet;

impl Geometry {
    /// Refuses polygons with rings that cross, share an edge or lie in each other's holes, and holes that touch the
    /// outer ring at more than one of its vertices. The outer error is that of `steps`.
    pub fn check_rings<E>(&self, steps: &mut Steps<'_, E>) -> Result<Result<(), GeometryError>, E> {
        for polygon in self.polygons() {
            if let Err(error) = check(polygon, steps)? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }
}

fn check<E>(polygon: &Polygon, steps: &mut Steps<'_, E>) -> Result<Result<(), GeometryError>, E> {
    let Some((outer, holes)) = polygon.rings().split_first() else {
        return Ok(Ok(()));
    };
    if holes.is_empty() {
        return Ok(Ok(()));
    }
    let rings = polygon.rings().iter().enumerate();
    let (places, arcs): (Vec<usize>, Vec<Arc>) = rings
        .flat_map(|(place, ring)| ring.arcs().iter().map(move |arc| (place, *arc)))
        .unzip();
    let clash = |one: usize, other: usize| {
        places[one] != places[other] && (arcs[one].crosses(&arcs[other]) || arcs[one].runs_along(&arcs[other]))
    };
    if let Some((one, other)) = clashing_arcs(&arcs, clash, steps)? {
        let (one, other) = (places[one], places[other]);
        return Ok(Err(invalid(format!(
            "Polygon is not valid: loops {one} and {other} cross or share an edge"
        ))));
    }
    // Zero has two signs.
    let bits = |point: &Point| [point.0.x, point.0.y, point.0.z].map(|number| (number + 0.0).to_bits());
    let of_outer: HashSet<[u64; 3]> = outer.arcs().iter().map(|arc| bits(&arc.a)).collect();
    for (place, hole) in holes.iter().enumerate() {
        steps(hole.arcs().len())?;
        let shared = hole.arcs().iter().filter(|arc| of_outer.contains(&bits(&arc.a)));
        if shared.count() > 1 {
            return Ok(Err(invalid(format!(
                "Loop {} shares more than one vertex with its parent loop 0",
                place + 1
            ))));
        }
        for (other_place, other) in holes.iter().enumerate().filter(|(other, _)| *other != place) {
            // Their arcs do not cross: any vertex tells, but for one at which they touch.
            for vertex in other.arcs().iter().map(|arc| &arc.a) {
                if hole.touches(vertex, steps)? {
                    continue;
                }
                if hole.contains(vertex, steps)? {
                    return Ok(Err(invalid(format!(
                        "Polygon interior loops cannot be nested: loop {} lies in loop {}",
                        other_place + 1,
                        place + 1
                    ))));
                }
                break;
            }
        }
    }
    Ok(Ok(()))
}
