//! The side of an arc that a point is on, exactly.
//!
//! The sign of the determinant of three points is computed without error (Shewchuk's predicates, crate `robust`). Where
//! it is zero the points are moved, in thought, by amounts of different orders (Edelsbrunner and Mücke, *Simulation of
//! Simplicity*, 1990, as S2 applies it), so that three different points always have a turn, the same wherever it is
//! asked for: what counts crossings can rely on it.

use robust::{Coord, Coord3D, orient2d, orient3d};
use s2::point::Point;
use std::cmp::Ordering;

/// How one goes from a to b to c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Left,
    Right,
    /// Two of the points are the same.
    None,
}

impl Turn {
    fn of(sign: f64) -> Option<Self> {
        match sign.partial_cmp(&0.0) {
            Some(Ordering::Greater) => Some(Self::Left),
            Some(Ordering::Less) => Some(Self::Right),
            _ => None,
        }
    }

    fn reversed(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
            Self::None => Self::None,
        }
    }
}

/// Determinants from here on have the right sign as they are computed: coordinates are at most 1.
const SURE: f64 = 1e-14;

/// The turn from `a` by `b` to `c`.
pub(crate) fn turn(a: &Point, b: &Point, c: &Point) -> Turn {
    let determinant = a.0.cross(&b.0).dot(&c.0);
    if determinant.abs() > SURE {
        return match determinant > 0.0 {
            true => Turn::Left,
            false => Turn::Right,
        };
    }
    if a == b || b == c || c == a {
        return Turn::None;
    }
    let of = |point: &Point| Coord3D {
        x: point.0.x,
        y: point.0.y,
        z: point.0.z,
    };
    let origin = Coord3D { x: 0.0, y: 0.0, z: 0.0 };
    Turn::of(orient3d(of(a), of(b), of(c), origin)).unwrap_or_else(|| moved(a, b, c))
}

/// The turn of three different points in a plane with the centre of the sphere, when they are moved.
fn moved(a: &Point, b: &Point, c: &Point) -> Turn {
    let place = |point: &Point| (point.0.x, point.0.y, point.0.z);
    let is_less = |a: &Point, b: &Point| place(a).partial_cmp(&place(b)) == Some(Ordering::Less);
    // In the order of their coordinates; each exchange turns the sign.
    let (mut a, mut b, mut c, mut is_odd) = (a, b, c, false);
    for _ in 0..2 {
        if is_less(b, a) {
            (a, b, is_odd) = (b, a, !is_odd);
        }
        if is_less(c, b) {
            (b, c, is_odd) = (c, b, !is_odd);
        }
    }
    let turn = moved_in_order(a, b, c);
    match is_odd {
        true => turn.reversed(),
        false => turn,
    }
}

/// The coefficients of the perturbed determinant, from the largest perturbation to the smallest: the first that is not
/// zero decides.
fn moved_in_order(a: &Point, b: &Point, c: &Point) -> Turn {
    let [a, b, c] = [a, b, c].map(|point| [point.0.x, point.0.y, point.0.z]);
    // The sign of p[i] q[j] - p[j] q[i].
    let minor = |p: &[f64; 3], q: &[f64; 3], i: usize, j: usize| {
        let origin = Coord { x: 0.0, y: 0.0 };
        orient2d(Coord { x: p[i], y: p[j] }, Coord { x: q[i], y: q[j] }, origin)
    };
    let coefficients: [&dyn Fn() -> f64; 12] = [
        &|| minor(&b, &c, 0, 1),
        &|| minor(&b, &c, 2, 0),
        &|| minor(&b, &c, 1, 2),
        &|| minor(&c, &a, 0, 1),
        &|| c[0],
        &|| -c[1],
        &|| minor(&c, &a, 2, 0),
        &|| c[2],
        &|| minor(&a, &b, 0, 1),
        &|| -b[0],
        &|| b[1],
        &|| a[0],
    ];
    let decided = coefficients.iter().find_map(|coefficient| Turn::of(coefficient()));
    decided.unwrap_or(Turn::Left)
}

/// Whether going around `o` to the left from `a` one comes by `b` before, or at, `c`.
pub(crate) fn is_in_order(a: &Point, b: &Point, c: &Point, o: &Point) -> bool {
    let holds = [
        turn(b, o, a) != Turn::Right,
        turn(c, o, b) != Turn::Right,
        turn(a, o, c) == Turn::Left,
    ];
    holds.into_iter().filter(|holds| *holds).count() >= 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sphere::point;
    use proptest::prelude::*;

    /// Places of which many are in a plane with the centre.
    fn place() -> impl Strategy<Value = Point> {
        let degrees = |most: i32| (-most..=most).prop_map(|step| f64::from(step * 15));
        (degrees(12), degrees(6)).prop_map(|(longitude, latitude)| point(longitude, latitude))
    }

    #[test]
    fn axes_turn_left() {
        let [x, y, z] = [point(0.0, 0.0), point(90.0, 0.0), point(0.0, 90.0)];
        assert_eq!(turn(&x, &y, &z), Turn::Left);
        assert_eq!(turn(&x, &z, &y), Turn::Right);
        assert_eq!(turn(&x, &y, &x), Turn::None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn different_points_always_turn_and_the_order_of_asking_does_not_matter(
            a in place(), b in place(), c in place()
        ) {
            let all_differ = a != b && b != c && c != a;
            let first = turn(&a, &b, &c);
            prop_assert_eq!(first == Turn::None, !all_differ);
            prop_assert_eq!(turn(&b, &c, &a), first);
            prop_assert_eq!(turn(&c, &a, &b), first);
            prop_assert_eq!(turn(&c, &b, &a), first.reversed());
            prop_assert_eq!(turn(&b, &a, &c), first.reversed());
            prop_assert_eq!(turn(&a, &c, &b), first.reversed());
        }
    }
}
