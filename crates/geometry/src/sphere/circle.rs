//! Circles on the sphere, and searches for what is near their centres.

use super::{FINEST_LEVEL, Geometry, Overlap, Part, angle, covering, intervals, point};
use crate::Steps;
use crate::plane::{self, Grid, PlanePoint, Rectangle};
use crate::ring::TOUCH;
use s2::cap::Cap;
use s2::cell::Cell;
use s2::cellid::CellID;
use s2::latlng::LatLng;
use s2::point::Point;
use s2::region::Region;
use s2::s1::Angle;
use std::collections::VecDeque;
use std::f64::consts::{FRAC_PI_2, PI};

/// Most cells that a search does without: many, as what is left between them and the circle is read in vain.
const INTERIOR_CELLS_MAX: usize = 128;
/// Radius, in radians, within which they are: wider caps are told from the whole sphere, and from each other, less
/// exactly than by [`TOUCH`].
const INTERIOR_RADIUS_MAX: f64 = 3.0;
/// What rectangles around a circle have to spare.
const SLACK_DEGREES: f64 = 1e-8;

/// A circle on the sphere, with what is in it.
#[derive(Clone, Debug)]
pub struct Circle {
    center: Point,
    radius: f64,
}

impl Circle {
    /// `radius` in radians; from π on it is the whole sphere.
    pub fn new(center: Point, radius: f64) -> Self {
        Self { center, radius }
    }

    /// The circle of another radius around the same point.
    pub fn with_radius(&self, radius: f64) -> Self {
        Self::new(self.center, radius)
    }

    /// Whether a geometry lies in it, the circle's line with it.
    pub fn contains<E>(&self, geometry: &Geometry, steps: &mut Steps<'_, E>) -> Result<bool, E> {
        let reach = self.radius + TOUCH;
        let opposite = Point(self.center.0 * -1.0);
        for part in &geometry.parts {
            if let Part::Point(point) = part {
                if angle(point, &self.center) > reach {
                    return Ok(false);
                }
                continue;
            }
            for arc in part.arcs() {
                steps(1)?;
                // The furthest point of an arc is the nearest one to the opposite side.
                if PI - arc.distance(&opposite) > reach {
                    return Ok(false);
                }
            }
            if let Part::Polygon(polygon) = part
                && reach < PI
                && polygon.contains(&opposite, steps)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The intervals of keys that whatever meets it has one of.
    pub fn key_intervals<E>(&self, steps: &mut Steps<'_, E>) -> Result<Vec<(i64, i64)>, E> {
        Ok(intervals(&self.covering(steps)?))
    }

    /// Rectangles of longitudes and latitudes, in degrees, that together have all of it: one, or two where it goes
    /// over the meridian of 180 degrees.
    pub fn rectangles(&self) -> Vec<Rectangle> {
        let center = LatLng::from(&self.center);
        let (latitude, longitude) = (center.lat.rad(), center.lng.rad());
        let reach = self.radius + TOUCH;
        let (south, north) = (latitude - reach, latitude + reach);
        let rectangle = |west: f64, east: f64| {
            let degrees = |x: f64, y: f64, slack: f64| PlanePoint {
                x: (x.to_degrees() + slack).clamp(-180.0, 180.0),
                y: (y.to_degrees() + slack).clamp(-90.0, 90.0),
            };
            Rectangle::of_corners(
                degrees(west, south, -SLACK_DEGREES),
                degrees(east, north, SLACK_DEGREES),
            )
        };
        if south <= -FRAC_PI_2 || north >= FRAC_PI_2 {
            return vec![rectangle(-PI, PI)];
        }
        let half = (reach.sin() / latitude.cos()).clamp(-1.0, 1.0).asin();
        let (west, east) = (longitude - half, longitude + half);
        match () {
            () if west < -PI => vec![rectangle(-PI, east), rectangle(west + 2.0 * PI, PI)],
            () if east > PI => vec![rectangle(west, PI), rectangle(-PI, east - 2.0 * PI)],
            () => vec![rectangle(west, east)],
        }
    }

    /// A search on a grid of longitudes and latitudes that does not look for what is in the circle, its line not with
    /// it.
    pub fn search_beyond(&self, grid: Grid) -> plane::Search {
        let radius = self.radius - 2.0 * TOUCH;
        if radius <= 0.0 {
            return plane::Search::new(grid);
        }
        let around = self.rectangles();
        plane::Search::outside(
            grid,
            |square| around.iter().any(|rectangle| rectangle.overlaps(square)),
            |square| self.furthest(square) < radius,
        )
    }

    /// The angle between the centre and the furthest point with such a longitude and latitude, in degrees.
    fn furthest(&self, rectangle: &Rectangle) -> f64 {
        let center = LatLng::from(&self.center);
        let opposite = |angle: f64| if angle > 0.0 { angle - PI } else { angle + PI };
        let [west, east] = [rectangle.low.x, rectangle.high.x].map(|degrees| degrees.clamp(-180.0, 180.0).to_radians());
        let [south, north] = [rectangle.low.y, rectangle.high.y].map(|degrees| degrees.clamp(-90.0, 90.0).to_radians());
        // On each parallel the distance grows up to the meridian on the other side.
        let apart = |longitude: f64| {
            let apart = (longitude - center.lng.rad()).abs();
            apart.min(2.0 * PI - apart)
        };
        let aside = match (west..=east).contains(&opposite(center.lng.rad())) {
            true => PI,
            false => apart(west).max(apart(east)),
        };
        // On a meridian it does up to the point opposite to the nearest one of its great circle.
        let (sine, cosine) = center.lat.rad().sin_cos();
        let turning = opposite(sine.atan2(cosine * aside.cos())).clamp(south, north);
        let to = |latitude: f64| {
            let longitude = center.lng.rad() + aside;
            angle(&self.center, &point(longitude.to_degrees(), latitude.to_degrees()))
        };
        to(south).max(to(north)).max(to(turning))
    }

    fn cap(&self, radius: f64) -> Cap {
        Cap::from_center_angle(&self.center, &Angle::from(s2::s1::Rad(radius)))
    }

    fn covering<E>(&self, steps: &mut Steps<'_, E>) -> Result<Vec<CellID>, E> {
        let cap = self.cap(self.radius + 2.0 * TOUCH);
        covering(|cell, _| {
            steps(1)?;
            Ok((overlap_of(&cap, cell), ()))
        })
    }

    /// Cells that lie in it as a whole, its line not with it.
    fn interior(&self) -> Vec<CellID> {
        let mut done = Vec::new();
        let radius = (self.radius - 2.0 * TOUCH).min(INTERIOR_RADIUS_MAX);
        if radius <= 0.0 {
            return done;
        }
        let cap = self.cap(radius);
        let mut open: VecDeque<CellID> = (0..6).map(CellID::from_face).collect();
        while let Some(cell) = open.pop_front() {
            match overlap_of(&cap, &Cell::from(cell)) {
                Overlap::All => done.push(cell),
                Overlap::Some if cell.level() < FINEST_LEVEL && done.len() + open.len() + 4 <= INTERIOR_CELLS_MAX => {
                    open.extend(cell.children());
                }
                Overlap::Some | Overlap::None => {}
            }
        }
        done.sort_unstable();
        done
    }
}

fn overlap_of(cap: &Cap, cell: &Cell) -> Overlap {
    match () {
        () if cap.contains_cell(cell) => Overlap::All,
        () if cap.intersects_cell(cell) => Overlap::Some,
        () => Overlap::None,
    }
}

/// The part of the sphere that was looked at in search of what is near a point, growing ring by ring.
#[derive(Clone, Debug)]
pub struct Search {
    center: Point,
    done: Vec<CellID>,
}

impl Search {
    /// Nothing is looked at yet.
    pub fn new(center: Point) -> Self {
        Self::beyond(center, 0.0)
    }

    /// What is nearer than `least` (radians) is not looked for.
    pub fn beyond(center: Point, least: f64) -> Self {
        Self {
            center,
            done: Circle::new(center, least).interior(),
        }
    }

    /// The intervals of keys that everything within `radius` (radians) has one of, but for what earlier calls gave.
    pub fn grow<E>(&mut self, radius: f64, steps: &mut Steps<'_, E>) -> Result<Vec<(i64, i64)>, E> {
        let cells = Circle::new(self.center, radius).covering(steps)?;
        let mut fresh = Vec::new();
        for cell in cells {
            less(cell, &self.done, &mut fresh);
        }
        self.done.extend(&fresh);
        self.done.sort_unstable();
        Ok(intervals(&fresh))
    }
}

/// A cell without the cells that are done: itself, or those of its descendants.
fn less(cell: CellID, done: &[CellID], out: &mut Vec<CellID>) {
    if done.iter().any(|other| other.contains(&cell)) {
        return;
    }
    if done.iter().any(|other| cell.contains(other)) {
        return cell.children().into_iter().for_each(|child| less(child, done, out));
    }
    out.push(cell);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::Region as PlaneRegion;

    fn has(intervals: &[(i64, i64)], key: i64) -> bool {
        intervals.iter().any(|(low, high)| (*low..=*high).contains(&key))
    }

    /// What was nearer than the least distance was read from 2d indexes, and then left out.
    #[test]
    fn a_search_by_degrees_beyond_a_distance_leaves_out_what_is_nearer() {
        let everything = PlaneRegion::Rectangle(Rectangle::of_corners(
            PlanePoint { x: -180.0, y: -180.0 },
            PlanePoint { x: 180.0, y: 180.0 },
        ));
        let grid = Grid::default();
        let places = || (-36..=36).flat_map(|x| (-18..=18).map(move |y| (f64::from(x) * 5.0, f64::from(y) * 5.0)));
        for (longitude, latitude) in [(0.0, 0.0), (13.0, 52.0), (179.0, -30.0), (-100.0, 89.0), (40.0, -90.0)] {
            for least in [0.0, 0.01, 0.5, 1.5, 2.5, 3.1, PI, 4.0] {
                let circle = Circle::new(point(longitude, latitude), least);
                let intervals = circle.search_beyond(grid).grow(&everything);
                let (mut near, mut left_out) = (0, 0);
                for (x, y) in places() {
                    let is_looked_for = has(&intervals, grid.key(&PlanePoint { x, y }));
                    match angle(&circle.center, &point(x, y)) < least {
                        true => {
                            near += 1;
                            left_out += usize::from(!is_looked_for);
                        }
                        false => assert!(is_looked_for, "{longitude} {latitude} {least}: {x} {y}"),
                    }
                }
                assert!(
                    least < 0.5 || left_out * 10 > near * 6,
                    "{longitude} {latitude} {least}: {left_out} of {near}"
                );
            }
        }
    }

    #[test]
    fn nothing_in_a_rectangle_is_further_than_its_furthest_point() {
        for (longitude, latitude) in [(0.0, 0.0), (13.0, 52.0), (179.0, -30.0), (-100.0, 89.0), (40.0, -90.0)] {
            let circle = Circle::new(point(longitude, latitude), 0.0);
            for (west, south, width, height) in [
                (-180.0, -90.0, 360.0, 180.0),
                (-10.0, -10.0, 20.0, 20.0),
                (100.0, 50.0, 70.0, 40.0),
                (-180.0, -60.0, 90.0, 30.0),
                (80.0, -90.0, 100.0, 180.0),
            ] {
                let (low, high) = (
                    PlanePoint { x: west, y: south },
                    PlanePoint {
                        x: west + width,
                        y: south + height,
                    },
                );
                let furthest = circle.furthest(&Rectangle::of_corners(low, high));
                let mut found: f64 = 0.0;
                for i in 0..=100 {
                    for j in 0..=100 {
                        let (x, y) = (
                            west + width * f64::from(i) / 100.0,
                            south + height * f64::from(j) / 100.0,
                        );
                        found = found.max(angle(&circle.center, &point(x, y)));
                    }
                }
                let shortfall = furthest - found;
                assert!(
                    (-1e-12..0.05).contains(&shortfall),
                    "{longitude} {latitude} {west} {south}: {shortfall}"
                );
            }
        }
    }
}
