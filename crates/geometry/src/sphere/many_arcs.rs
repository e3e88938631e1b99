//! Parts with many arcs: what their trees tell is what a look at all arcs tells, in far fewer steps.

use super::*;
use crate::Indexed;
use crate::ring::RingFault;
use proptest::prelude::*;
use std::convert::Infallible;

type Corners = Vec<Point>;

/// Numbers of a seed, between 0 and 1 (Marsaglia's xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn ring(corners: &[Point]) -> Result<Ring, RingFault> {
    let Ok(ring) = Ring::new(corners.to_vec(), false, &mut uncounted);
    ring
}

fn polygon(rings: &[Corners]) -> Geometry {
    let rings = rings.iter().map(|corners| ring(corners).expect("a ring")).collect();
    Geometry::new(vec![Part::Polygon(Polygon::new(rings))])
}

fn line(corners: &[Point]) -> Geometry {
    Geometry::new(vec![Part::Line(Line::new(corners).expect("a line"))])
}

/// A ring around a place that goes in and out, as far as `depth` says. Two corners and the place are in one plane with
/// the centre only where they have the same direction: no arcs cross.
fn star(center: Point, degrees: f64, corners: usize, depth: f64, numbers: &mut Numbers) -> Corners {
    let east = center.0.ortho();
    let north = center.0.cross(&east);
    let corner = |i: usize| {
        let (sine, cosine) = (i as f64 / corners as f64 * std::f64::consts::TAU).sin_cos();
        let (far, near) = (degrees * (1.0 - depth * numbers.next())).to_radians().sin_cos();
        Point((center.0 * near + (east * cosine + north * sine) * far).normalize())
    };
    (0..corners).map(corner).collect()
}

/// Teeth beside each other, turned by an angle, from `at` on: a line that is a ring with its ends together.
fn comb(at: f64, teeth: usize, angle: f64) -> Corners {
    let turned = |x: f64, y: f64| {
        let (sine, cosine) = angle.sin_cos();
        point(30.0 + x * cosine - y * sine, 20.0 + x * sine + y * cosine)
    };
    let tooth = |i: usize| {
        let x = at + 10.0 * i as f64 / teeth as f64;
        [turned(x, -4.0), turned(x + 2.5 / teeth as f64, 4.0)]
    };
    (0..teeth)
        .flat_map(tooth)
        .chain([turned(at + 11.0, -5.0), turned(at - 1.0, -5.0)])
        .collect()
}

fn square(west: f64, south: f64, side: f64) -> Corners {
    let (east, north) = (west + side, south + side);
    [(west, south), (east, south), (east, north), (west, north)]
        .map(|(x, y)| point(x, y))
        .to_vec()
}

/// As rings were looked through before there were trees.
fn cross_in_pairs(corners: &[Point]) -> bool {
    let next = |i: usize| corners[(i + 1) % corners.len()];
    let arcs: Vec<Arc> = (0..corners.len()).map(|i| Arc::new(corners[i], next(i))).collect();
    let share_end = |one: &Arc, other: &Arc| [other.a, other.b].iter().any(|end| *end == one.a || *end == one.b);
    let pairs = |i: usize| arcs[i + 1..].iter().map(move |other| (i, other));
    (0..arcs.len()).flat_map(pairs).any(|(i, other)| {
        // Without an end in common what meets and is not only touched crosses.
        !share_end(&arcs[i], other) && arcs[i].is_crossed(&other.a, &other.b)
    })
}

fn is_inside(polygon: &Polygon, point: &Point) -> bool {
    polygon.rings().iter().fold(false, |inside, ring| {
        let Ok(holds) = ring.contains(point, &mut uncounted);
        inside ^ holds
    })
}

fn is_touched(part: &Part, point: &Point) -> bool {
    part.arcs().any(|arc| arc.touches_point(point))
}

fn meet_in_pairs(one: &Part, other: &Part) -> bool {
    let has = |whole: &Part, part: &Part| match whole {
        Part::Polygon(polygon) => is_inside(polygon, part.any_point()),
        _ => false,
    };
    one.arcs().any(|arc| other.arcs().any(|beside| arc.meets(beside))) || has(one, other) || has(other, one)
}

fn contain_in_pairs(whole: &Part, part: &Part) -> bool {
    let Part::Polygon(polygon) = whole else { return false };
    let has = |point: &Point| is_inside(polygon, point) || is_touched(whole, point);
    let has_arc = |arc: &Arc| {
        has(&arc.a)
            && has(&arc.b)
            && !polygon.arcs().any(|own| own.crosses(arc))
            && (!is_touched(whole, &arc.a) || !is_touched(whole, &arc.b) || has(arc.midpoint()))
    };
    if !part.arcs().all(has_arc) {
        return false;
    }
    let Part::Polygon(inner) = part else { return true };
    let beside = |arc: &Arc| [-1.0, 1.0].map(|side| arc.beside(side * 3.0 * TOUCH));
    let outside = polygon.rings().iter().filter_map(|ring| {
        let mut points = ring.arcs().iter().flat_map(beside);
        points.find(|point| !has(point))
    });
    let vertices = polygon.arcs().map(|arc| arc.a);
    let mut surrounded = vertices.filter(|vertex| !is_touched(part, vertex)).chain(outside);
    !surrounded.any(|point| is_inside(inner, &point))
}

/// Whether they meet, whether the first contains the second, and the other way.
fn told(one: &Geometry, other: &Geometry) -> [bool; 3] {
    let (Ok(meet), Ok(back)) = (one.meets(other, &mut uncounted), other.meets(one, &mut uncounted));
    assert_eq!(meet, back, "meeting has no direction");
    let (Ok(contains), Ok(lies_in)) = (one.contains(other, &mut uncounted), other.contains(one, &mut uncounted));
    [meet, contains, lies_in]
}

fn told_in_pairs(one: &Geometry, other: &Geometry) -> [bool; 3] {
    let (one, other) = (&one.parts[0], &other.parts[0]);
    [
        meet_in_pairs(one, other),
        contain_in_pairs(one, other),
        contain_in_pairs(other, one),
    ]
}

/// Where shapes are: combs at the first of them only. The last two are where all ways to points begin, and the other
/// side of the sphere.
fn places() -> [Point; 4] {
    let origin = Point::origin();
    [point(33.0, 23.0), point(180.0, 0.0), origin, Point(origin.0 * -1.0)]
}

fn beside(place: &Point, away: f64, numbers: &mut Numbers) -> Point {
    let mut aside = || numbers.next() - 0.5;
    let aside = Point::from_coords(aside(), aside(), aside());
    Point((place.0 + aside.0 * away).normalize())
}

/// What a seed makes: stars with and without a hole, combs, lines, and rings with the same corners.
fn shape(place: usize, numbers: &mut Numbers) -> Geometry {
    let center = beside(&places()[place], 0.08, numbers);
    let degrees = 0.5 + numbers.next() * 6.0;
    let corners = 64 + (numbers.next() * 80.0) as usize;
    match ((numbers.next() * 6.0) as usize, place) {
        (0, _) => line(&star(center, degrees, corners, 0.9, numbers)),
        (1, _) => {
            let outer = star(center, degrees, corners, 0.3, numbers);
            polygon(&[outer, star(center, degrees * 0.6, corners, 0.5, numbers)])
        }
        (2, 0) => polygon(&[comb(numbers.next() * 12.0 - 6.0, corners / 2, numbers.next() * 3.0)]),
        (3, 0) => line(&comb(numbers.next() * 12.0 - 6.0, corners / 2, numbers.next() * 3.0)),
        (4, _) => polygon(&[star(places()[place], 4.0, 96, 0.0, numbers)]),
        _ => polygon(&[star(center, degrees, corners, 0.8, numbers)]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn trees_tell_what_looking_at_all_pairs_does(seed in 1u64.., place in 0usize..4) {
        let mut numbers = Numbers(seed);
        let (one, other) = (shape(place, &mut numbers), shape(place, &mut numbers));
        let wanted = told_in_pairs(&one, &other);
        prop_assert_eq!(told(&one, &other), wanted);
        prop_assert_eq!(told(&one, &one), told_in_pairs(&one, &one));
        for _ in 0..20 {
            let point = beside(&places()[place], 0.1, &mut numbers);
            let Ok(contains) = one.contains(&Geometry::of_point(point), &mut uncounted);
            let is_contained = match &one.parts[0] {
                Part::Polygon(polygon) => is_inside(polygon, &point) || is_touched(&one.parts[0], &point),
                _ => false,
            };
            prop_assert_eq!(contains, is_contained);
        }
    }

    #[test]
    fn rings_cross_themselves_where_a_pair_of_arcs_does(seed in 1u64.., moved in any::<bool>()) {
        let mut numbers = Numbers(seed);
        let corners = 30 + (numbers.next() * 70.0) as usize;
        let mut corners = match numbers.next() < 0.5 {
            true => star(point(179.0, 1.0), 1.9, corners, 0.9, &mut numbers),
            false => comb(0.0, corners / 2, numbers.next() * 3.0),
        };
        if moved {
            let count = corners.len();
            let (from, to) = ((numbers.next() * count as f64) as usize, (numbers.next() * count as f64) as usize);
            let aside = Point::from_coords(numbers.next(), numbers.next(), numbers.next());
            corners[from] = Point((corners[to].0 + aside.0 * 1e-4).normalize());
        }
        let crosses = matches!(ring(&corners), Err(RingFault::Cross(..)));
        prop_assert_eq!(crosses, cross_in_pairs(&corners));
    }
}

#[test]
fn shapes_of_the_comparison_meet_contain_and_are_apart() {
    let mut counts = [[0, 0]; 3];
    for seed in 1..200u64 {
        let mut numbers = Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (one, other) = (shape(0, &mut numbers), shape(0, &mut numbers));
        for (count, is_so) in counts.iter_mut().zip(told(&one, &other)) {
            count[usize::from(is_so)] += 1;
        }
    }
    let [meet, contain, lie_in] = counts;
    assert!(meet[0] > 5 && meet[1] > 50 && contain[1] + lie_in[1] > 10, "{counts:?}");
}

/// Steps that something takes.
fn steps_of(run: impl FnOnce(&mut Steps<'_, Infallible>)) -> usize {
    let mut taken = 0;
    run(&mut |steps| {
        taken += steps;
        Ok(())
    });
    taken
}

/// Each arc was held against each other one.
#[test]
fn shapes_of_ten_thousand_corners_take_few_steps() {
    const CORNERS: usize = 10_000;
    const FEW: usize = 60 * CORNERS;
    let mut numbers = Numbers(42);
    let place = point(30.0, 20.0);
    for (name, corners) in [
        ("star", star(place, 5.0, CORNERS, 0.9, &mut numbers)),
        ("circle", star(place, 5.0, CORNERS, 0.001, &mut numbers)),
        ("comb", comb(0.0, CORNERS / 2, 0.0)),
        ("turned comb", comb(0.0, CORNERS / 2, 0.7)),
    ] {
        let steps = steps_of(|steps| {
            let Ok(ring) = Ring::new(corners.clone(), false, steps);
            assert!(ring.is_ok(), "{name}");
        });
        assert!(steps < 5 * FEW, "{name}: {steps}");
    }
    let outer = polygon(&[star(place, 5.0, CORNERS, 0.001, &mut numbers)]);
    let inner = star(place, 4.9, CORNERS, 0.01, &mut numbers);
    let around = polygon(&[star(place, 5.1, CORNERS, 0.001, &mut numbers)]);
    for (other, lies_in) in [
        (polygon(std::slice::from_ref(&inner)), true),
        (line(&inner), true),
        (around, false),
    ] {
        let outer = Indexed::new(outer.clone());
        let meeting = steps_of(|steps| assert_eq!(outer.meets(&other, steps), Ok(true)));
        let containing = steps_of(|steps| assert_eq!(outer.contains(&other, steps), Ok(lies_in)));
        assert!(meeting < FEW && containing < 3 * FEW, "{meeting} {containing}");
    }
    // Ten thousand corners in holes.
    let hole = |i: usize| {
        let (x, y) = ((i % 50) as f64 * 0.1, (i / 50) as f64 * 0.1);
        square(x, y, 0.05)
    };
    let mut rings = vec![square(-1.0, -1.0, 10.0)];
    rings.extend((0..CORNERS / 4).map(hole));
    let sieve = polygon(&rings);
    let steps = steps_of(|steps| assert_eq!(sieve.check_rings(steps), Ok(Ok(()))));
    assert!(steps < 3 * FEW, "{steps}");
    rings.push(square(0.01, 0.01, 0.03));
    let Ok(checked) = polygon(&rings).check_rings(&mut uncounted);
    assert!(checked.is_err_and(|error| error.to_string().contains("loop 2501 lies in loop 1")));
}
