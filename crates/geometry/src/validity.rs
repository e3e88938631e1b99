//! Whether the rings of a polygon agree with each other.
//!
//! Queries and new documents have to pass. What is stored may be older than the check: it is read without it, and keeps
//! the keys that it has.

use crate::read::invalid;
use crate::ring::{Arc, Ring};
use crate::sphere::{Geometry, Polygon, toggled};
use crate::tree::Tree;
use crate::{GeometryError, Steps};
use s2::point::Point;
use std::collections::{BTreeSet, HashSet};

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
    let tree = Tree::of(arcs.iter(), steps)?;
    if let Some((one, other)) = tree.clashing(clash, steps)? {
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
    }
    nested(polygon.rings(), &places, &tree, steps)
}

/// Refuses a hole that lies in another one. Of the arcs, which do not cross, the places of their rings are known.
fn nested<E>(
    rings: &[Ring],
    places: &[usize],
    tree: &Tree,
    steps: &mut Steps<'_, E>,
) -> Result<Result<(), GeometryError>, E> {
    let around_origin: Vec<u32> = (0..)
        .zip(rings)
        .filter_map(|(place, ring)| ring.holds_origin().then_some(place))
        .collect();
    for (place, hole) in rings.iter().enumerate().skip(1) {
        let vertex = &hole.arcs()[0].a;
        // In order, so that of several holes the message names the same one each time.
        let (mut crossed, mut touched) = (Vec::new(), BTreeSet::new());
        tree.crossed(vertex, steps, |arc| crossed.push(places[arc as usize] as u32))?;
        tree.any_touching(vertex, steps, |arc| {
            touched.insert(places[arc as usize]);
            false
        })?;
        steps(around_origin.len() + crossed.len())?;
        let around = toggled(&around_origin, crossed.into_iter());
        let mut around = around.into_iter().map(|ring| ring as usize);
        let is_hole = |other: &usize| *other != 0 && *other != place;
        let mut found = around.find(|other| is_hole(other) && !touched.contains(other));
        // Where they touch the vertex tells nothing.
        for other in touched.into_iter().filter(is_hole) {
            if found.is_none() && lies_in(hole, &rings[other], steps)? {
                found = Some(other);
            }
        }
        if let Some(other) = found {
            return Ok(Err(invalid(format!(
                "Polygon interior loops cannot be nested: loop {place} lies in loop {other}"
            ))));
        }
    }
    Ok(Ok(()))
}

/// Whether a ring lies in another, of which it crosses no arc: any vertex tells but for those at which they touch.
fn lies_in<E>(ring: &Ring, other: &Ring, steps: &mut Steps<'_, E>) -> Result<bool, E> {
    for arc in ring.arcs() {
        if !other.touches(&arc.a, steps)? {
            return other.contains(&arc.a, steps);
        }
    }
    Ok(false)
}
