//! Closed rings of arcs on the sphere, the boundaries of polygons.
//!
//! Which side of a ring a point is on is found by counting the crossings of an arc from a fixed origin, with S2's rules
//! for arcs that share an end (the published algorithm of S2's `EdgeOrVertexCrossing`): of two polygons that share an
//! edge exactly one contains a point on it.

use crate::Steps;
use crate::sign::{Turn, is_in_order, turn};
use crate::tree::Tree;
use s2::edgeutil::distance_from_segment;
use s2::point::{Point, point_area};
use std::f64::consts::PI;

/// Things that are no further apart than this touch: 0.6 mm on the earth, in radians.
pub(crate) const TOUCH: f64 = 1e-10;
/// Arcs up to which each pair is looked at for crossings: a tree costs as much.
const PAIRED_ARCS: usize = 24;
/// Reach of an arc that may be anywhere, in chords.
const ANYWHERE: f64 = 2.0;

/// An arc with a circle around it, which tells most of those apart that have nothing to do with each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arc {
    pub(crate) a: Point,
    pub(crate) b: Point,
    middle: Point,
    /// See [`Arc::reach`].
    reach: f64,
}

impl Arc {
    pub(crate) fn new(a: Point, b: Point) -> Self {
        let sum = a.0 + b.0;
        // Ends on opposite sides of the sphere: everything is near.
        let (middle, reach) = match sum.norm() < 1e-9 {
            true => (a, ANYWHERE),
            false => {
                let middle = Point(sum.normalize());
                (middle, (middle.0 - a.0).norm() * 1.000_001 + TOUCH)
            }
        };
        Self { a, b, middle, reach }
    }

    /// True of a single point.
    pub(crate) fn is_point(&self) -> bool {
        self.a == self.b
    }

    /// Whether the way from `from` to `to` crosses it, counted so that a way's crossings of a ring tell the side.
    pub(crate) fn is_crossed(&self, from: &Point, to: &Point) -> bool {
        match crossing(from, to, &self.a, &self.b) {
            Crossing::None => false,
            Crossing::Inside => true,
            Crossing::AtEnd => vertex_crossing(from, to, &self.a, &self.b),
        }
    }

    /// False when it is further from the circle around `center` (with that chord) than they could touch.
    pub(crate) fn is_near(&self, center: &Point, chord: f64) -> bool {
        (self.middle.0 - center.0).norm() <= self.reach + chord + TOUCH
    }

    /// False when they are further apart than arcs that touch could be.
    pub(crate) fn may_touch(&self, other: &Arc) -> bool {
        self.is_near(&other.middle, other.reach)
    }

    /// Of one that is not known to be anywhere: between ends on opposite sides of the sphere.
    pub(crate) fn is_anywhere(&self) -> bool {
        self.reach >= ANYWHERE
    }

    /// A chord from the middle to the ends, and a bit.
    pub(crate) fn reach(&self) -> f64 {
        self.reach
    }

    pub(crate) fn distance(&self, point: &Point) -> f64 {
        distance_from_segment(point, &self.a, &self.b).rad()
    }

    pub(crate) fn touches_point(&self, point: &Point) -> bool {
        self.is_near(point, 0.0) && self.distance(point) <= TOUCH
    }

    /// Whether they cross or touch.
    pub(crate) fn meets(&self, other: &Arc) -> bool {
        self.may_touch(other)
            && (crossing(&self.a, &self.b, &other.a, &other.b) != Crossing::None || self.touches_end_of(other))
    }

    /// Whether they cross, and not only touch at the end of one.
    pub(crate) fn crosses(&self, other: &Arc) -> bool {
        self.may_touch(other)
            && crossing(&self.a, &self.b, &other.a, &other.b) == Crossing::Inside
            && !self.touches_end_of(other)
    }

    /// Whether they have more in common than a point: they touch each other at ends that are apart.
    pub(crate) fn runs_along(&self, other: &Arc) -> bool {
        let ends = [(self, &other.a), (self, &other.b), (other, &self.a), (other, &self.b)];
        let mut touching = ends.into_iter().filter(|(arc, end)| arc.touches_point(end));
        touching
            .next()
            .is_some_and(|(_, first)| touching.any(|(_, end)| (end.0 - first.0).norm() > 4.0 * TOUCH))
    }

    fn touches_end_of(&self, other: &Arc) -> bool {
        let near = |arc: &Arc, point: &Point| arc.distance(point) <= TOUCH;
        near(self, &other.a) || near(self, &other.b) || near(other, &self.a) || near(other, &self.b)
    }

    /// A point beside the middle, so many radians to the left.
    pub(crate) fn beside(&self, radians: f64) -> Point {
        let left = self.a.0.cross(&self.b.0).normalize();
        Point((self.middle.0 + left * radians).normalize())
    }

    pub(crate) fn midpoint(&self) -> &Point {
        &self.middle
    }
}

/// How two arcs cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crossing {
    None,
    /// They share an end.
    AtEnd,
    /// At a point inside both.
    Inside,
}

fn crossing(a: &Point, b: &Point, c: &Point, d: &Point) -> Crossing {
    if a == c || a == d || b == c || b == d {
        return Crossing::AtEnd;
    }
    let side = turn(a, b, c);
    if side == turn(a, b, d) || turn(c, d, a) == turn(c, d, b) {
        return Crossing::None;
    }
    match side == turn(c, d, b) {
        true => Crossing::Inside,
        false => Crossing::None,
    }
}

/// Whether arcs that share an end count as crossing: for the chain of arcs through a point exactly one does.
fn vertex_crossing(a: &Point, b: &Point, c: &Point, d: &Point) -> bool {
    match () {
        () if a == b || c == d => false,
        () if a == d => is_in_order(&a.ortho(), c, b, a),
        () if b == c => is_in_order(&b.ortho(), d, a, b),
        () if a == c => is_in_order(&a.ortho(), d, b, a),
        () if b == d => is_in_order(&b.ortho(), c, a, b),
        () => false,
    }
}

/// Why points are no ring.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RingFault {
    TooFew,
    Twice(usize, usize),
    Cross(usize, usize),
}

/// See the module. At least three vertices, all different, whose arcs do not cross.
#[derive(Clone, Debug)]
pub struct Ring {
    arcs: Vec<Arc>,
    /// Whether S2's origin is inside.
    holds_origin: bool,
}

impl Ring {
    /// From its vertices, the first not repeated at the end. `as_wound`: what is to the left of the arcs is inside,
    /// even if that is more than half of the sphere; otherwise the smaller part is inside, however the ring is wound.
    pub(crate) fn new<E>(
        mut vertices: Vec<Point>,
        as_wound: bool,
        steps: &mut Steps<'_, E>,
    ) -> Result<Result<Self, RingFault>, E> {
        if vertices.len() < 3 {
            return Ok(Err(RingFault::TooFew));
        }
        if let Some((first, second)) = same_vertex(&vertices) {
            return Ok(Err(RingFault::Twice(first, second)));
        }
        if !as_wound && turning(&vertices) < 0.0 {
            vertices.reverse();
        }
        let next = |i: usize| vertices[(i + 1) % vertices.len()];
        let arcs: Vec<Arc> = (0..vertices.len()).map(|i| Arc::new(vertices[i], next(i))).collect();
        if let Some((first, second)) = crossing_arcs(&arcs, steps)? {
            return Ok(Err(RingFault::Cross(first, second)));
        }
        let mut ring = Self {
            arcs,
            holds_origin: false,
        };
        // The corner at the second vertex says what is inside there; if counting says otherwise the origin is inside.
        let corner = vertices[1];
        let corner_inside = is_in_order(&corner.ortho(), &vertices[0], &vertices[2], &corner);
        ring.holds_origin = corner_inside != ring.contains(&corner, steps)?;
        Ok(Ok(ring))
    }

    pub(crate) fn arcs(&self) -> &[Arc] {
        &self.arcs
    }

    pub(crate) fn holds_origin(&self) -> bool {
        self.holds_origin
    }

    /// Whether a point is inside. Points on the boundary are inside of one of the polygons that share it.
    pub(crate) fn contains<E>(&self, point: &Point, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        steps(self.arcs.len())?;
        let origin = Point::origin();
        if *point == origin {
            return Ok(self.holds_origin);
        }
        let mut inside = self.holds_origin;
        let mut before = turn(&origin, point, &self.arcs[0].a);
        for arc in &self.arcs {
            let after = turn(&origin, point, &arc.b);
            // Both ends on one side of the arc from the origin: the commonest case by far.
            if before != after || after == Turn::None {
                inside ^= arc.is_crossed(&origin, point);
            }
            before = after;
        }
        Ok(inside)
    }

    /// Whether a point is inside or on the boundary.
    pub(crate) fn contains_or_touches<E>(&self, point: &Point, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        Ok(self.contains(point, steps)? || self.touches(point, steps)?)
    }

    /// Whether a point is on the boundary.
    pub(crate) fn touches<E>(&self, point: &Point, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        steps(self.arcs.len())?;
        Ok(self.arcs.iter().any(|arc| arc.touches_point(point)))
    }
}

/// Two places with the same vertex.
fn same_vertex(vertices: &[Point]) -> Option<(usize, usize)> {
    let mut order: Vec<usize> = (0..vertices.len()).collect();
    let place = |i: &usize| (vertices[*i].0.x, vertices[*i].0.y, vertices[*i].0.z);
    order.sort_by(|a, b| {
        place(a)
            .partial_cmp(&place(b))
            .unwrap_or(std::cmp::Ordering::Equal)
            .then(a.cmp(b))
    });
    let same = order.windows(2).find(|pair| vertices[pair[0]] == vertices[pair[1]])?;
    Some((same[0], same[1]))
}

/// Two arcs that cross, by their places.
fn crossing_arcs<E>(arcs: &[Arc], steps: &mut Steps<'_, E>) -> Result<Option<(usize, usize)>, E> {
    let cross = |one: &Arc, other: &Arc| crossing(&one.a, &one.b, &other.a, &other.b) == Crossing::Inside;
    if arcs.len() > PAIRED_ARCS {
        let tree = Tree::of(arcs.iter(), steps)?;
        return tree.clashing(|one, other| cross(&arcs[one], &arcs[other]), steps);
    }
    for (first, arc) in arcs.iter().enumerate() {
        steps(arcs.len() - first)?;
        let mut later = arcs.iter().enumerate().skip(first + 1);
        if let Some((second, _)) = later.find(|(_, other)| arc.may_touch(other) && cross(arc, other)) {
            return Ok(Some((first, second)));
        }
    }
    Ok(None)
}

/// Sum of the turns at all vertices, in radians: 2π less what is to the left of the ring (Gauss and Bonnet).
fn turning(vertices: &[Point]) -> f64 {
    if let [a, b, c] = vertices {
        let area = point_area(a, b, c);
        return match turn(a, b, c) {
            Turn::Right => area - 2.0 * PI,
            _ => 2.0 * PI - area,
        };
    }
    let count = vertices.len();
    (0..count)
        .map(|i| turn_angle(&vertices[i], &vertices[(i + 1) % count], &vertices[(i + 2) % count]))
        .sum()
}

/// The turn at `b` on the way from `a` to `c`: positive to the left.
fn turn_angle(a: &Point, b: &Point, c: &Point) -> f64 {
    let angle = a.0.cross(&b.0).angle(&b.0.cross(&c.0)).rad();
    match turn(a, b, c) {
        Turn::Left => angle,
        _ => -angle,
    }
}
