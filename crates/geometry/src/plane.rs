//! Shapes in the plane of legacy coordinates, and the grid of `2d` indexes.
//!
//! A grid halves the interval of each axis `bits` times. A key is the number of a point's square along the Z-order
//! curve (Morton, 1966), moved to the top of 64 bits, as a signed integer: the squares inside a square have the keys
//! of one interval.

use crate::Steps;
use std::collections::VecDeque;

/// Most squares of a covering.
const SQUARES_MAX: usize = 20;
/// Most squares that a search does without: many, as what is left between them and the circle is read in vain.
const INTERIOR_SQUARES_MAX: usize = 128;

/// A point in the plane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanePoint {
    /// First coordinate: the longitude.
    pub x: f64,
    /// Second coordinate: the latitude.
    pub y: f64,
}

impl PlanePoint {
    /// The distance between two points.
    pub fn distance(&self, other: &PlanePoint) -> f64 {
        (self.x - other.x).hypot(self.y - other.y)
    }
}

/// A rectangle along the axes, its boundary with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rectangle {
    /// The least coordinates.
    pub low: PlanePoint,
    /// The greatest coordinates.
    pub high: PlanePoint,
}

impl Rectangle {
    /// With these as opposite corners.
    pub fn of_corners(a: PlanePoint, b: PlanePoint) -> Self {
        Self {
            low: PlanePoint {
                x: a.x.min(b.x),
                y: a.y.min(b.y),
            },
            high: PlanePoint {
                x: a.x.max(b.x),
                y: a.y.max(b.y),
            },
        }
    }

    fn contains(&self, point: &PlanePoint) -> bool {
        (self.low.x..=self.high.x).contains(&point.x) && (self.low.y..=self.high.y).contains(&point.y)
    }

    pub(crate) fn overlaps(&self, other: &Rectangle) -> bool {
        self.low.x <= other.high.x
            && other.low.x <= self.high.x
            && self.low.y <= other.high.y
            && other.low.y <= self.high.y
    }

    fn corners(&self) -> [PlanePoint; 4] {
        let (low, high) = (self.low, self.high);
        [
            low,
            PlanePoint { x: high.x, y: low.y },
            high,
            PlanePoint { x: low.x, y: high.y },
        ]
    }
}

/// A region of the plane, its boundary with it.
#[derive(Clone, Debug, PartialEq)]
pub enum Region {
    /// `$box`
    Rectangle(Rectangle),
    /// `$center`
    Circle {
        /// Its centre.
        center: PlanePoint,
        /// Its radius.
        radius: f64,
    },
    /// `$polygon`: its corners, at least three, the first not repeated.
    Polygon(Vec<PlanePoint>),
}

impl Region {
    /// Whether a point is in it.
    pub fn contains<E>(&self, point: &PlanePoint, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        match self {
            Region::Rectangle(rectangle) => Ok(rectangle.contains(point)),
            Region::Circle { center, radius } => Ok(center.distance(point) <= *radius),
            Region::Polygon(corners) => {
                steps(corners.len())?;
                Ok(is_in_polygon(corners, point))
            }
        }
    }

    /// The smallest rectangle around it.
    fn bound(&self) -> Rectangle {
        match self {
            Region::Rectangle(rectangle) => *rectangle,
            Region::Circle { center, radius } => Rectangle {
                low: PlanePoint {
                    x: center.x - radius,
                    y: center.y - radius,
                },
                high: PlanePoint {
                    x: center.x + radius,
                    y: center.y + radius,
                },
            },
            Region::Polygon(corners) => {
                corners
                    .iter()
                    .fold(Rectangle::of_corners(corners[0], corners[0]), |bound, corner| {
                        Rectangle {
                            low: PlanePoint {
                                x: bound.low.x.min(corner.x),
                                y: bound.low.y.min(corner.y),
                            },
                            high: PlanePoint {
                                x: bound.high.x.max(corner.x),
                                y: bound.high.y.max(corner.y),
                            },
                        }
                    })
            }
        }
    }

    /// Whether a square lies in it as a whole. May say no where it does.
    fn contains_all(&self, square: &Rectangle) -> bool {
        match self {
            Region::Rectangle(rectangle) => square.corners().iter().all(|corner| rectangle.contains(corner)),
            Region::Circle { center, radius } => {
                square.corners().iter().all(|corner| center.distance(corner) <= *radius)
            }
            Region::Polygon(_) => false,
        }
    }
}

/// By the crossings of a ray to the right, as MongoDB counts them: corners and points on horizontal and vertical edges
/// are inside, those on slanting ones as if the edge lay a bit further to the right.
fn is_in_polygon(corners: &[PlanePoint], point: &PlanePoint) -> bool {
    let mut inside = false;
    let mut a = corners[corners.len() - 1];
    for &b in corners {
        if b == *point {
            return true;
        }
        if (a.x == b.x || a.y == b.y) && Rectangle::of_corners(a, b).contains(point) {
            return true;
        }
        // The lower end of an edge does not belong to it, the upper one does.
        if a.y.min(b.y) < point.y && point.y <= a.y.max(b.y) {
            let x = (point.y - a.y) * (b.x - a.x) / (b.y - a.y) + a.x;
            inside ^= point.x <= x;
        }
        a = b;
    }
    inside
}

/// The grid of a `2d` index: the same interval for both axes, its greatest value with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    low: f64,
    high: f64,
    bits: u32,
}

/// Bits of a coordinate where none are asked for.
pub const DEFAULT_BITS: u32 = 26;
/// Most bits of a coordinate.
pub const BITS_MAX: u32 = 32;

impl Default for Grid {
    fn default() -> Self {
        Self {
            low: -180.0,
            high: 180.0,
            bits: DEFAULT_BITS,
        }
    }
}

impl Grid {
    /// `None` unless `low` is less than `high` and there are 1 to [`BITS_MAX`] bits.
    pub fn new(low: f64, high: f64, bits: u32) -> Option<Self> {
        let is_valid = low < high && (high - low).is_finite() && (1..=BITS_MAX).contains(&bits);
        is_valid.then_some(Self { low, high, bits })
    }

    /// The interval of each axis.
    pub fn interval(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// The distance from a point to the furthest point that has a key.
    pub fn reach(&self, point: &PlanePoint) -> f64 {
        let furthest = |value: f64| (value - self.low).abs().max((value - self.high).abs());
        furthest(point.x).hypot(furthest(point.y))
    }

    /// Whether a point has a key.
    pub fn contains(&self, point: &PlanePoint) -> bool {
        let interval = self.low..=self.high;
        interval.contains(&point.x) && interval.contains(&point.y)
    }

    /// The key of a point that it contains.
    pub fn key(&self, point: &PlanePoint) -> i64 {
        let cell = |value: f64| {
            let cells = 2f64.powi(self.bits as i32);
            let cell = (value - self.low) / (self.high - self.low) * cells;
            cell.clamp(0.0, cells - 1.0) as u32
        };
        let square = spread(cell(point.x)) << 1 | spread(cell(point.y));
        signed(square << (64 - 2 * self.bits))
    }

    /// The intervals of keys, not more than a few, that the points in a region have.
    pub fn key_intervals(&self, region: &Region) -> Vec<(i64, i64)> {
        let bound = region.bound();
        let mut done: Vec<Square> = Vec::new();
        let mut open = VecDeque::from([Square { path: 0, depth: 0 }]);
        while let Some(square) = open.pop_front() {
            let corners = self.rectangle(&square);
            if !corners.overlaps(&bound) {
                continue;
            }
            let is_whole = region.contains_all(&corners) || square.depth == self.bits;
            match is_whole || done.len() + open.len() + 4 > SQUARES_MAX {
                true => done.push(square),
                false => open.extend((0..4).map(|quarter| square.quarter(quarter))),
            }
        }
        let mut intervals: Vec<(i64, i64)> = done.iter().map(Square::keys).collect();
        intervals.sort_unstable();
        intervals
    }

    /// The intervals of keys, rising, of squares that lie in a region. Not all of them: what does not overlap it is
    /// left out, and so is what there are too many of.
    fn keys_inside(
        &self,
        overlaps: impl Fn(&Rectangle) -> bool,
        contains: impl Fn(&Rectangle) -> bool,
    ) -> Vec<(i64, i64)> {
        let mut done: Vec<Square> = Vec::new();
        let mut open = VecDeque::from([Square { path: 0, depth: 0 }]);
        while let Some(square) = open.pop_front() {
            let corners = self.rectangle(&square);
            match () {
                () if !overlaps(&corners) => {}
                () if contains(&corners) => done.push(square),
                () if square.depth < self.bits && done.len() + open.len() + 4 <= INTERIOR_SQUARES_MAX => {
                    open.extend((0..4).map(|quarter| square.quarter(quarter)));
                }
                () => {}
            }
        }
        let mut intervals: Vec<(i64, i64)> = done.iter().map(Square::keys).collect();
        intervals.sort_unstable();
        intervals
    }

    /// The rectangle of a square, a bit larger than it is: a point's square is computed, too.
    fn rectangle(&self, square: &Square) -> Rectangle {
        let cells = 2f64.powi(square.depth as i32);
        let side = (self.high - self.low) / cells;
        let slack = (self.high - self.low) * 1e-12;
        let low = |cell: u32| self.low + f64::from(cell) * side - slack;
        let high = |cell: u32| self.low + (f64::from(cell) + 1.0) * side + slack;
        let (x, y) = (gather(square.path >> 1), gather(square.path));
        Rectangle {
            low: PlanePoint { x: low(x), y: low(y) },
            high: PlanePoint { x: high(x), y: high(y) },
        }
    }
}

/// A square of some size: two bits for each time it was quartered.
#[derive(Clone, Copy, Debug)]
struct Square {
    path: u64,
    depth: u32,
}

impl Square {
    fn quarter(&self, quarter: u64) -> Self {
        Self {
            path: self.path << 2 | quarter,
            depth: self.depth + 1,
        }
    }

    fn keys(&self) -> (i64, i64) {
        if self.depth == 0 {
            return (i64::MIN, i64::MAX);
        }
        let low = self.path << (64 - 2 * self.depth);
        let rest = u64::MAX.checked_shr(2 * self.depth).unwrap_or(0);
        (signed(low), signed(low | rest))
    }
}

/// In the order of unsigned numbers.
fn signed(key: u64) -> i64 {
    (key ^ 1 << 63) as i64
}

/// The bits of a number at even places.
fn spread(number: u32) -> u64 {
    let mut bits = u64::from(number);
    for (shift, mask) in [
        (16, 0x0000_FFFF_0000_FFFF),
        (8, 0x00FF_00FF_00FF_00FF),
        (4, 0x0F0F_0F0F_0F0F_0F0F),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// The number whose bits are at even places.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0F0F_0F0F_0F0F_0F0F),
        (4, 0x00FF_00FF_00FF_00FF),
        (8, 0x0000_FFFF_0000_FFFF),
        (16, 0x0000_0000_FFFF_FFFFu64),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

/// The squares that were looked at in a search that grows.
#[derive(Clone, Debug)]
pub struct Search {
    grid: Grid,
    done: Vec<(i64, i64)>,
}

impl Search {
    /// Nothing is looked at yet.
    pub fn new(grid: Grid) -> Self {
        Self { grid, done: Vec::new() }
    }

    /// Points that are nearer to another than so far are not looked for.
    pub fn beyond(grid: Grid, center: PlanePoint, least: f64) -> Self {
        // Distances are computed, too.
        let radius = least * (1.0 - 1e-12);
        if radius <= 0.0 {
            return Self::new(grid);
        }
        let circle = Region::Circle { center, radius };
        let bound = circle.bound();
        Self::outside(
            grid,
            |square| square.overlaps(&bound),
            |square| circle.contains_all(square),
        )
    }

    /// What is in squares that a region contains is not looked for.
    pub(crate) fn outside(
        grid: Grid,
        overlaps: impl Fn(&Rectangle) -> bool,
        contains: impl Fn(&Rectangle) -> bool,
    ) -> Self {
        Self {
            done: grid.keys_inside(overlaps, contains),
            grid,
        }
    }

    /// The intervals of keys that the points in a region have, but for what earlier calls gave.
    pub fn grow(&mut self, region: &Region) -> Vec<(i64, i64)> {
        let mut fresh = Vec::new();
        for interval in self.grid.key_intervals(region) {
            without(interval, &self.done, &mut fresh);
        }
        self.done.extend(&fresh);
        self.done.sort_unstable();
        fresh
    }
}

/// An interval without what rising, disjoint intervals have of it.
fn without((mut low, high): (i64, i64), done: &[(i64, i64)], out: &mut Vec<(i64, i64)>) {
    for &(from, to) in done {
        if from > high || to < low {
            continue;
        }
        if from > low {
            out.push((low, from - 1));
        }
        match to.checked_add(1) {
            Some(next) if next <= high => low = low.max(next),
            _ => return,
        }
    }
    out.push((low, high));
}
