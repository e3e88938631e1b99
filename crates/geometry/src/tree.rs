//! Arcs among which much is looked for: those that something may touch are found without a look at all of them.
//!
//! A packed R-tree (Kamel and Faloutsos, *On Packing R-trees*, 1993). The arcs lie in the order of S2's Hilbert curve
//! through their middles; each has a box, and so have each [`FANOUT`] neighbours on each level. The boxes' sides run
//! as most of the arcs do, so that those of long arcs beside each other are thin. A box holds all that may touch its
//! arcs: what is told of arcs is decided by the arcs, and is the same with a tree and without.

use crate::Steps;
use crate::ring::{Arc, TOUCH};
use s2::cellid::CellID;
use s2::point::Point;
use s2::r3::vector::Vector;

/// Children of a node.
const FANOUT: usize = 8;
/// What computed middles of arcs may be off by, as a part of the arcs' length. Much less for all but those that reach
/// around half of the sphere.
const SLACK: f64 = 1e-6;
/// Sine of the angle between an arc's ends from which on the plane that it lies in is known well enough.
const PLANE_SINE: f64 = 1e-4;

/// A box in the directions of a tree's axes.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    low: [f64; 3],
    high: [f64; 3],
}

impl Bounds {
    fn around(&self, other: &Bounds) -> Self {
        Self {
            low: std::array::from_fn(|axis| self.low[axis].min(other.low[axis])),
            high: std::array::from_fn(|axis| self.high[axis].max(other.high[axis])),
        }
    }

    fn holds(&self, other: &Bounds) -> bool {
        (0..3).all(|axis| self.low[axis] <= other.low[axis] && other.high[axis] <= self.high[axis])
    }

    fn overlaps(&self, other: &Bounds) -> bool {
        (0..3).all(|axis| self.low[axis] <= other.high[axis] && other.low[axis] <= self.high[axis])
    }

    /// Whether the plane through the sphere's centre with this normal goes through it.
    fn is_cut(&self, normal: &[f64; 3]) -> bool {
        let middle: f64 = (0..3)
            .map(|axis| normal[axis] * (self.low[axis] + self.high[axis]))
            .sum();
        let half: f64 = (0..3)
            .map(|axis| normal[axis].abs() * (self.high[axis] - self.low[axis]))
            .sum();
        middle.abs() <= half
    }
}

/// Three directions at right angles.
#[derive(Clone, Copy, Debug)]
struct Axes([Vector; 3]);

impl Axes {
    /// Such that arcs run along one of the first two rather than between them, the long ones above all.
    fn along(arcs: &[(u32, Arc)]) -> Self {
        let zero = Vector::new(0.0, 0.0, 0.0);
        let sum = arcs.iter().fold(zero, |sum, (_, arc)| sum + arc.midpoint().0);
        let up = match sum.norm() < 1e-9 {
            true => Vector::new(0.0, 0.0, 1.0),
            false => sum.normalize(),
        };
        let east = up.ortho();
        let north = up.cross(&east);
        // Forth, back and to both sides are the same: four times the angle is what counts.
        let (mut cosine, mut sine) = (0.0, 0.0);
        for (_, arc) in arcs {
            let way = arc.b.0 - arc.a.0;
            let (x, y) = (way.dot(&east), way.dot(&north));
            let (twice_x, twice_y) = (x * x - y * y, 2.0 * x * y);
            let length_squared = x * x + y * y;
            if length_squared > 0.0 {
                cosine += (twice_x * twice_x - twice_y * twice_y) / length_squared;
                sine += 2.0 * twice_x * twice_y / length_squared;
            }
        }
        let (sine, cosine) = (sine.atan2(cosine) / 4.0).sin_cos();
        Self([east * cosine + north * sine, north * cosine - east * sine, up])
    }

    fn place(&self, vector: &Vector) -> [f64; 3] {
        self.0.map(|axis| axis.dot(vector))
    }

    /// A box around all that may touch an arc, with some room.
    fn bounds(&self, arc: &Arc) -> Bounds {
        if arc.is_anywhere() {
            return Bounds {
                low: [-2.0; 3],
                high: [2.0; 3],
            };
        }
        let (a, b) = (self.place(&arc.a.0), self.place(&arc.b.0));
        // An arc lies between the chord of its ends and the same chord moved out to the arc's middle.
        let rise = self.place(&(arc.midpoint().0 - (arc.a.0 + arc.b.0) * 0.5));
        let room = 2.0 * TOUCH + arc.reach() * SLACK;
        Bounds {
            low: std::array::from_fn(|axis| a[axis].min(b[axis]) + rise[axis].min(0.0) - room),
            high: std::array::from_fn(|axis| a[axis].max(b[axis]) + rise[axis].max(0.0) + room),
        }
    }
}

/// Where an arc is that others are looked for at.
struct Probe {
    bounds: Bounds,
    /// Of the plane that it lies in, where that is known well enough.
    normal: Option<[f64; 3]>,
}

impl Probe {
    fn may_touch(&self, bounds: &Bounds) -> bool {
        self.bounds.overlaps(bounds) && self.normal.is_none_or(|normal| bounds.is_cut(&normal))
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    axes: Axes,
    /// In the order of the curve, each with its number.
    arcs: Vec<(u32, Arc)>,
    /// Of the arcs, of groups of arcs, of groups of groups and so on, until there are at most [`FANOUT`].
    levels: Vec<Vec<Bounds>>,
}

impl Tree {
    /// Of arcs that are numbered as they come.
    pub(crate) fn of<'a, E>(arcs: impl Iterator<Item = &'a Arc>, steps: &mut Steps<'_, E>) -> Result<Self, E> {
        let mut in_order: Vec<(CellID, u32, &Arc)> = arcs
            .zip(0..)
            .map(|(arc, number)| (CellID::from(arc.midpoint()), number, arc))
            .collect();
        steps(in_order.len())?;
        in_order.sort_unstable_by_key(|(cell, number, _)| (*cell, *number));
        let arcs: Vec<(u32, Arc)> = in_order.iter().map(|(_, number, arc)| (*number, **arc)).collect();
        let axes = Axes::along(&arcs);
        let mut boxes: Vec<Bounds> = arcs.iter().map(|(_, arc)| axes.bounds(arc)).collect();
        let mut levels = Vec::new();
        while boxes.len() > FANOUT {
            let groups = boxes.chunks(FANOUT);
            let above = groups
                .map(|group| group.iter().fold(group[0], |all, bounds| all.around(bounds)))
                .collect();
            levels.push(std::mem::replace(&mut boxes, above));
        }
        levels.push(boxes);
        let tree = Self { axes, arcs, levels };
        if cfg!(debug_assertions) {
            tree.check_invariants();
        }
        Ok(tree)
    }

    /// What lets a search pass over a box that does not overlap: each holds all that is below it.
    fn check_invariants(&self) {
        assert!(
            self.levels.last().is_some_and(|top| top.len() <= FANOUT),
            "one group on top"
        );
        assert_eq!(self.levels[0].len(), self.arcs.len(), "each arc has a box");
        for (bounds, (_, arc)) in self.levels[0].iter().zip(&self.arcs) {
            for point in [&arc.a, arc.midpoint(), &arc.b] {
                let place = self.axes.place(&point.0);
                let (low, high) = (place, place);
                assert!(bounds.holds(&Bounds { low, high }), "{bounds:?} holds {arc:?}");
            }
        }
        for pair in self.levels.windows(2) {
            let (below, above) = (&pair[0], &pair[1]);
            assert_eq!(above.len(), below.len().div_ceil(FANOUT), "each group has a box");
            for (group, around) in below.chunks(FANOUT).zip(above) {
                assert!(
                    group.iter().all(|bounds| around.holds(bounds)),
                    "{around:?} holds {group:?}"
                );
            }
        }
    }

    /// Whether `found` says yes to one of the arcs, with their numbers, that may touch another, or cross it.
    pub(crate) fn any_near<E>(
        &self,
        near: &Arc,
        steps: &mut Steps<'_, E>,
        mut found: impl FnMut(u32, &Arc) -> bool,
    ) -> Result<bool, E> {
        let normal = near.a.0.cross(&near.b.0);
        let sine = normal.norm();
        let probe = Probe {
            bounds: self.axes.bounds(near),
            normal: (sine > PLANE_SINE).then(|| self.axes.place(&(normal * (1.0 / sine)))),
        };
        self.any_of(self.levels.len() - 1, 0, &probe, steps, &mut found)
    }

    /// Among the boxes of a level from one on that have the same parent.
    fn any_of<E>(
        &self,
        level: usize,
        first: usize,
        probe: &Probe,
        steps: &mut Steps<'_, E>,
        found: &mut dyn FnMut(u32, &Arc) -> bool,
    ) -> Result<bool, E> {
        steps(1)?;
        let siblings = self.levels[level].iter().enumerate().skip(first).take(FANOUT);
        for (place, _) in siblings.filter(|(_, bounds)| probe.may_touch(bounds)) {
            let is_found = match level.checked_sub(1) {
                Some(below) => self.any_of(below, place * FANOUT, probe, steps, found)?,
                None => found(self.arcs[place].0, &self.arcs[place].1),
            };
            if is_found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives the numbers of the arcs that the way from S2's origin to a point crosses: what has an odd number of them
    /// around has one of the two inside.
    pub(crate) fn crossed<E>(
        &self,
        point: &Point,
        steps: &mut Steps<'_, E>,
        mut each: impl FnMut(u32),
    ) -> Result<(), E> {
        let origin = Point::origin();
        if *point == origin {
            return Ok(());
        }
        self.any_near(&Arc::new(origin, *point), steps, |number, arc| {
            if arc.is_crossed(&origin, point) {
                each(number);
            }
            false
        })?;
        Ok(())
    }

    /// Whether `found` says yes to the number of one of the arcs that touch a point.
    pub(crate) fn any_touching<E>(
        &self,
        point: &Point,
        steps: &mut Steps<'_, E>,
        mut found: impl FnMut(u32) -> bool,
    ) -> Result<bool, E> {
        self.any_near(&Arc::new(*point, *point), steps, |number, arc| {
            arc.touches_point(point) && found(number)
        })
    }

    /// The numbers of two arcs that `clash`, which is asked about those that may touch.
    pub(crate) fn clashing<E>(
        &self,
        clash: impl Fn(usize, usize) -> bool,
        steps: &mut Steps<'_, E>,
    ) -> Result<Option<(usize, usize)>, E> {
        for (one, arc) in &self.arcs {
            let mut clashing = None;
            self.any_near(arc, steps, |other, beside| {
                let (first, second) = (*one as usize, other as usize);
                if first < second && arc.may_touch(beside) && clash(first, second) {
                    clashing = Some((first, second));
                }
                clashing.is_some()
            })?;
            if clashing.is_some() {
                return Ok(clashing);
            }
        }
        Ok(None)
    }
}
