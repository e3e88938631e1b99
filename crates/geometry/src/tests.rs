//! Predicates against known places, and against each other: what two geometries have in common has to be found by keys.

use crate::plane::{Grid, PlanePoint, Rectangle, Region};
use crate::read::{on_sphere, plane_point, sphere as read_sphere};
use crate::sphere::{Circle, Geometry, Search, angle, point};
use crate::{EARTH_RADIUS_METRES, Indexed, plane, uncounted};
use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawDocumentBuf, doc};
use proptest::prelude::*;

fn parse(value: impl Into<Bson>) -> Result<Geometry, String> {
    let wrapped = RawDocumentBuf::try_from(&doc! {"": value.into()}).expect("a document");
    let value = wrapped.get("").expect("BSON").expect("a value");
    let Ok(read) = read_sphere(value, &mut uncounted);
    read.map_err(|error| error.to_string())
}

fn geometry(value: impl Into<Bson>) -> Geometry {
    parse(value).expect("a geometry")
}

fn at(longitude: f64, latitude: f64) -> Geometry {
    geometry(doc! {"type": "Point", "coordinates": [longitude, latitude]})
}

fn ring(corners: &[(f64, f64)]) -> Vec<Bson> {
    let closed = corners.iter().chain(corners.first());
    closed.map(|(x, y)| Bson::from(vec![*x, *y])).collect()
}

fn polygon(rings: &[&[(f64, f64)]]) -> Document {
    let rings: Vec<Bson> = rings.iter().map(|corners| Bson::from(ring(corners))).collect();
    doc! {"type": "Polygon", "coordinates": rings}
}

fn square(west: f64, south: f64, side: f64) -> Document {
    polygon(&[&corners(west, south, side)])
}

fn corners(west: f64, south: f64, side: f64) -> [(f64, f64); 4] {
    [
        (west, south),
        (west + side, south),
        (west + side, south + side),
        (west, south + side),
    ]
}

fn line(positions: &[(f64, f64)]) -> Document {
    let positions: Vec<Bson> = positions.iter().map(|(x, y)| Bson::from(vec![*x, *y])).collect();
    doc! {"type": "LineString", "coordinates": positions}
}

fn meets(a: &Geometry, b: &Geometry) -> bool {
    let (Ok(forth), Ok(back)) = (a.meets(b, &mut uncounted), b.meets(a, &mut uncounted));
    assert_eq!(forth, back, "meeting has no direction");
    forth
}

fn contains(a: &Geometry, b: &Geometry) -> bool {
    let Ok(contains) = a.contains(b, &mut uncounted);
    contains
}

fn share_keys(a: &Geometry, b: &Geometry) -> bool {
    let (Ok(keys), Ok(intervals)) = (b.keys(&mut uncounted), a.key_intervals(&mut uncounted));
    finds(&intervals, &keys)
}

fn finds(intervals: &[(i64, i64)], keys: &[i64]) -> bool {
    keys.iter()
        .any(|key| intervals.iter().any(|(low, high)| (low..=high).contains(&key)))
}

#[test]
fn the_distance_of_two_cities_is_known() {
    // Berlin and Paris, 878 km by the haversine formula with this radius.
    let metres = angle(&point(13.405, 52.52), &point(2.3522, 48.8566)) * EARTH_RADIUS_METRES;
    assert!((metres - 878_500.0).abs() < 1_500.0, "{metres}");
}

#[test]
fn the_smaller_side_of_a_ring_is_inside_however_it_is_wound() {
    let forth = geometry(square(10.0, 10.0, 10.0));
    let mut backward = corners(10.0, 10.0, 10.0);
    backward.reverse();
    let back = geometry(polygon(&[&backward]));
    for (x, y, inside) in [
        (15.0, 15.0, true),
        (25.0, 15.0, false),
        (-165.0, -15.0, false),
        (15.0, 9.0, false),
    ] {
        assert_eq!(contains(&forth, &at(x, y)), inside, "{x} {y}");
        assert_eq!(contains(&back, &at(x, y)), inside, "{x} {y}");
    }
}

#[test]
fn strict_winding_takes_what_is_on_the_left() {
    let mut corners = corners(10.0, 10.0, 10.0);
    corners.reverse();
    let mut outside = polygon(&[&corners]);
    outside.insert(
        "crs",
        doc! {"type": "name", "properties": {"name": "urn:x-mongodb:crs:strictwinding:EPSG:4326"}},
    );
    let outside = geometry(outside);
    assert!(outside.is_as_wound);
    assert!(!contains(&outside, &at(15.0, 15.0)) && contains(&outside, &at(25.0, 15.0)));
    assert!(contains(&outside, &at(-165.0, -15.0)));
    // What has in it all that is left out, or just that, is not inside.
    assert!(!contains(&outside, &geometry(square(5.0, 5.0, 20.0))));
    assert!(!contains(&outside, &geometry(square(10.0, 10.0, 10.0))));
    assert!(contains(&outside, &geometry(square(20.0, 10.0, 10.0))));
}

#[test]
fn arcs_are_the_shortest_ways_and_not_lines_on_the_map() {
    // Between two points of 60 degrees north the arc bends to the north.
    let arc = geometry(line(&[(-40.0, 60.0), (40.0, 60.0)]));
    let north = geometry(square(-1.0, 65.0, 4.0));
    let on_the_parallel = geometry(square(-1.0, 59.5, 1.0));
    assert!(meets(&arc, &north) && !meets(&arc, &on_the_parallel));
}

#[test]
fn holes_are_outside() {
    let holed = geometry(polygon(&[&corners(0.0, 0.0, 10.0), &corners(4.0, 4.0, 2.0)]));
    assert!(contains(&holed, &at(1.0, 1.0)) && !contains(&holed, &at(5.0, 5.0)));
    assert!(!meets(&holed, &geometry(square(4.5, 4.5, 1.0))));
    assert!(meets(&holed, &geometry(square(3.5, 3.5, 1.0))));
    // What is around the hole does not lie in the polygon.
    assert!(!contains(&holed, &geometry(square(3.0, 3.0, 4.0))));
    assert!(contains(&holed, &geometry(square(1.0, 1.0, 2.0))));
    assert!(contains(&holed, &holed));
    // Nor does what equals the hole, or has it between its corners and sides.
    assert!(!contains(&holed, &geometry(square(4.0, 4.0, 2.0))));
    let diamond = [(5.0, 4.0), (6.0, 5.0), (5.0, 6.0), (4.0, 5.0)];
    let holed = geometry(polygon(&[&corners(0.0, 0.0, 10.0), &diamond]));
    let around = [
        (4.0, 4.0),
        (5.0, 4.0),
        (6.0, 4.0),
        (6.0, 5.0),
        (6.0, 6.0),
        (5.0, 6.0),
        (4.0, 6.0),
        (4.0, 5.0),
    ];
    assert!(!contains(&holed, &geometry(polygon(&[&around]))));
    assert!(contains(&holed, &geometry(polygon(&[&around, &diamond]))));
    assert!(contains(
        &holed,
        &geometry(polygon(&[&[(4.0, 4.0), (5.0, 4.0), (4.0, 5.0)]]))
    ));
}

#[test]
fn boundaries_touch() {
    let left = geometry(square(0.0, 0.0, 1.0));
    let right = geometry(square(1.0, 0.0, 1.0));
    assert!(meets(&left, &right));
    assert!(meets(&left, &at(1.0, 0.0)) && meets(&left, &at(1.0, 0.5)));
    for (x, y) in [(1.0, 0.0), (1.0, 0.5), (1.0, 1.0)] {
        assert!(contains(&left, &at(x, y)) && contains(&right, &at(x, y)), "{x} {y}");
    }
    let holed = geometry(polygon(&[&corners(0.0, 0.0, 10.0), &corners(4.0, 4.0, 2.0)]));
    assert!(contains(&holed, &at(4.0, 5.0)));
    assert!(!meets(&left, &geometry(square(1.0001, 0.0, 1.0))));
}

#[test]
fn a_line_is_contained_with_all_of_it() {
    let horseshoe: [(f64, f64); 8] = [
        (0.0, 0.0),
        (9.0, 0.0),
        (9.0, 9.0),
        (6.0, 9.0),
        (6.0, 3.0),
        (3.0, 3.0),
        (3.0, 9.0),
        (0.0, 9.0),
    ];
    let horseshoe = geometry(polygon(&[&horseshoe]));
    assert!(contains(
        &horseshoe,
        &geometry(line(&[(1.0, 8.0), (1.0, 1.0), (8.0, 1.0)]))
    ));
    assert!(!contains(&horseshoe, &geometry(line(&[(1.0, 8.0), (8.0, 8.0)]))));
    // From corner to corner across the gap.
    assert!(!contains(&horseshoe, &geometry(line(&[(3.0, 9.0), (6.0, 9.0)]))));
}

#[test]
fn circles_contain_what_is_in_them_as_a_whole() {
    let circle = Circle::new(point(0.0, 0.0), 5f64.to_radians());
    let inside = |geometry: &Geometry| {
        let Ok(inside) = circle.contains(geometry, &mut uncounted);
        inside
    };
    assert!(inside(&at(3.0, 3.0)) && !inside(&at(4.0, 4.0)));
    assert!(inside(&geometry(square(-1.0, -1.0, 2.0))) && !inside(&geometry(square(-1.0, -1.0, 6.0))));
    assert!(!inside(&geometry(line(&[(-6.0, 0.0), (0.0, 0.0)]))));
    // What is on its line is in it, however the distance is rounded.
    for degrees in (1..180).map(f64::from) {
        let circle = Circle::new(point(0.0, 0.0), degrees.to_radians());
        for place in [at(degrees, 0.0), at(-degrees, 0.0)] {
            let Ok(inside) = circle.contains(&place, &mut uncounted);
            let Ok(intervals) = circle.key_intervals(&mut uncounted);
            let Ok(keys) = place.keys(&mut uncounted);
            assert!(inside && finds(&intervals, &keys), "{degrees}");
        }
    }
    let around_the_meridian = polygon(&[&[(178.0, -2.0), (-178.0, -2.0), (-178.0, 2.0), (178.0, 2.0)]]);
    let all_but_a_spot = Circle::new(point(0.0, 0.0), 179f64.to_radians());
    let Ok(around_the_spot) = all_but_a_spot.contains(&geometry(around_the_meridian), &mut uncounted);
    assert!(!around_the_spot);
}

#[test]
fn what_is_no_geometry_is_refused() {
    let refused = |value: Bson, why: &str| {
        let error = parse(value.clone()).expect_err("refused");
        assert!(error.contains(why), "{value}: {error}");
    };
    refused(doc! {"type": "Point", "coordinates": [181, 0]}.into(), "out of bounds");
    refused(doc! {"type": "Point", "coordinates": [0, 90.5]}.into(), "out of bounds");
    refused(doc! {"type": "Point", "coordinates": [0]}.into(), "two coordinates");
    refused(doc! {"type": "Point", "coordinates": ["0", "0"]}.into(), "numeric");
    refused(doc! {"type": "Point", "coordinates": [0, f64::NAN]}.into(), "finite");
    refused(
        doc! {"type": "Spot", "coordinates": [0, 0]}.into(),
        "unknown GeoJSON type",
    );
    refused(line(&[(1.0, 1.0), (1.0, 1.0)]).into(), "at least 2 vertices");
    refused(polygon(&[&[(0.0, 0.0), (1.0, 1.0)]]).into(), "at least 4");
    let bow = polygon(&[&[(0.0, 0.0), (2.0, 2.0), (2.0, 0.0), (0.0, 2.0)]]);
    refused(bow.into(), "cross");
    let open = doc! {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1]]]};
    refused(open.into(), "not closed");
    let outside = polygon(&[&corners(0.0, 0.0, 2.0), &corners(5.0, 5.0, 1.0)]);
    refused(outside.into(), "must be holes");
    refused(
        doc! {"type": "GeometryCollection", "geometries": []}.into(),
        "at least 1",
    );
    refused(Bson::from(7), "array or object");
    let elsewhere =
        doc! {"type": "Point", "coordinates": [0, 0], "crs": {"type": "name", "properties": {"name": "EPSG:1"}}};
    refused(elsewhere.into(), "Unknown CRS");
}

#[test]
fn rings_that_are_at_odds_do_not_pass_the_check() {
    let outer = corners(0.0, 0.0, 10.0);
    let fault = |rings: &[&[(f64, f64)]]| {
        // They can be read: such polygons are stored.
        let Ok(checked) = geometry(polygon(rings)).check_rings(&mut uncounted);
        checked.err().map(|error| error.to_string())
    };
    let hole = |west: f64, south: f64, side: f64| corners(west, south, side);
    let [cross, share, nested] = ["cross or share an edge", "more than one vertex", "nested"];
    let horseshoe: [(f64, f64); 8] = [
        (0.0, 0.0),
        (9.0, 0.0),
        (9.0, 9.0),
        (6.0, 9.0),
        (6.0, 3.0),
        (3.0, 3.0),
        (3.0, 9.0),
        (0.0, 9.0),
    ];
    for (rings, wanted) in [
        (
            vec![&outer[..], &hole(1.0, 1.0, 4.0), &hole(3.0, 3.0, 4.0)],
            Some(cross),
        ),
        (
            vec![&outer[..], &hole(1.0, 1.0, 4.0), &hole(1.0, 1.0, 4.0)],
            Some(cross),
        ),
        (vec![&outer[..], &outer], Some(cross)),
        (vec![&outer[..], &hole(0.0, 0.0, 2.0)], Some(cross)),
        (vec![&outer[..], &[(0.0, 2.0), (3.0, 5.0), (0.0, 8.0)]], Some(cross)),
        (
            vec![&outer[..], &hole(1.0, 1.0, 6.0), &hole(2.0, 2.0, 2.0)],
            Some(nested),
        ),
        (
            vec![&outer[..], &hole(2.0, 2.0, 2.0), &hole(1.0, 1.0, 6.0)],
            Some(nested),
        ),
        (vec![&outer[..], &[(0.0, 0.0), (10.0, 10.0), (3.0, 5.0)]], Some(share)),
        (
            vec![&horseshoe[..], &[(1.0, 8.0), (1.0, 1.0), (8.0, 1.0), (8.0, 8.0)]],
            Some(cross),
        ),
        // At one vertex they may touch.
        (vec![&outer[..], &[(0.0, 0.0), (4.0, 2.0), (2.0, 4.0)]], None),
        (vec![&outer[..], &hole(1.0, 1.0, 2.0), &hole(3.0, 3.0, 2.0)], None),
        (vec![&outer[..], &hole(1.0, 1.0, 2.0), &hole(5.0, 5.0, 2.0)], None),
        (vec![&outer[..]], None),
    ] {
        let found = fault(&rings);
        let is_same = match (&found, wanted) {
            (Some(found), Some(wanted)) => found.contains(wanted),
            (found, wanted) => found.is_none() && wanted.is_none(),
        };
        assert!(is_same, "{rings:?}: {found:?}");
    }
}

#[test]
fn legacy_pairs_are_arrays_or_documents() {
    for pair in [
        Bson::from(vec![1.5, 2.0]),
        Bson::from(doc! {"lng": 1.5, "lat": 2}),
        Bson::from(vec![
            Bson::Decimal128("1.50".parse().expect("a decimal")),
            Bson::from(2_i64),
        ]),
        Bson::from(vec![Bson::from(1.5), Bson::from(2), Bson::from("note")]),
    ] {
        let wrapped = RawDocumentBuf::try_from(&doc! {"": pair}).expect("a document");
        let value = wrapped.get("").expect("BSON").expect("a value");
        assert_eq!(plane_point(value).expect("a point"), PlanePoint { x: 1.5, y: 2.0 });
    }
    assert!(plane_point(RawBsonRef::Null).is_err());
    // What begins with a number may have a type and more behind its coordinates; with all of GeoJSON it is that.
    let legacy = geometry(doc! {"lng": 1, "lat": 2, "type": "home"});
    assert_eq!(legacy.as_point(), Some(&point(1.0, 2.0)));
    let legacy = geometry(doc! {"x": 1, "y": 2, "type": "Point"});
    assert_eq!(legacy.as_point(), Some(&point(1.0, 2.0)));
    let numbered = geometry(doc! {"n": 5, "type": "Point", "coordinates": [1, 2]});
    assert_eq!(numbered.as_point(), Some(&point(1.0, 2.0)));
    assert!(parse(doc! {"type": "home", "lng": 1, "lat": 2}).is_err());
    assert!(parse(doc! {"n": 5, "type": "Point"}).is_err());
}

#[test]
fn the_keys_of_a_place_never_change() {
    // They are in indexes on disk.
    let Ok(keys) = at(13.405, 52.52).keys(&mut uncounted);
    assert_eq!(keys, [5_163_466_994_972_469_357]);
    let Ok(keys) = geometry(square(0.0, 0.0, 1.0)).keys(&mut uncounted);
    let sum = keys
        .iter()
        .fold(0i64, |sum, key| sum.wrapping_mul(31).wrapping_add(*key));
    assert_eq!((keys.len(), sum), (20, 7_142_523_591_750_500_352));
    assert_eq!(
        Grid::default().key(&PlanePoint { x: 13.405, y: 52.52 }),
        4_941_453_471_953_530_880
    );
}

#[test]
fn a_search_beyond_a_distance_leaves_out_what_is_nearer() {
    let has = |intervals: &[(i64, i64)], key: i64| intervals.iter().any(|(low, high)| (*low..=*high).contains(&key));
    let (center, least) = (point(5.0, 5.0), 0.1);
    let mut search = Search::beyond(center, least);
    let Ok(intervals) = search.grow(0.2, &mut uncounted);
    let (mut near, mut left_out) = (0, 0);
    for (x, y) in (-100..200)
        .step_by(7)
        .flat_map(|x| (-100..200).step_by(7).map(move |y| (x, y)))
    {
        let (longitude, latitude) = (f64::from(x) / 10.0, f64::from(y) / 10.0);
        let Ok(keys) = at(longitude, latitude).keys(&mut uncounted);
        match angle(&center, &point(longitude, latitude)) {
            distance if distance < least => {
                near += 1;
                left_out += usize::from(!has(&intervals, keys[0]));
            }
            distance if distance <= 0.2 => assert!(has(&intervals, keys[0]), "{longitude} {latitude}"),
            _ => {}
        }
    }
    assert!(left_out * 10 > near * 7, "{left_out} of {near}");
    // Nothing is further than what is opposite.
    for (from, to) in [((0.0, 0.0), (180.0, 0.0)), ((0.0, 90.0), (0.0, -90.0))] {
        let mut search = Search::beyond(point(from.0, from.1), std::f64::consts::PI);
        let Ok(intervals) = search.grow(3.2, &mut uncounted);
        let Ok(keys) = at(to.0, to.1).keys(&mut uncounted);
        assert!(has(&intervals, keys[0]), "{from:?}");
    }
    let grid = Grid::default();
    let (center, radius) = (PlanePoint { x: 5.0, y: 5.0 }, 20.0);
    let intervals = plane::Search::beyond(grid, center, 10.0).grow(&Region::Circle { center, radius });
    let key = |x, y| grid.key(&PlanePoint { x, y });
    assert!(!has(&intervals, key(5.0, 5.0)) && !has(&intervals, key(11.0, 8.0)));
    assert!(has(&intervals, key(15.0, 5.0)) && has(&intervals, key(5.0, 20.0)));
}

#[test]
fn a_growing_search_gives_no_interval_twice() {
    let mut search = Search::new(point(5.0, 5.0));
    let mut given: Vec<(i64, i64)> = Vec::new();
    for radius in [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 3.2] {
        let Ok(fresh) = search.grow(radius, &mut uncounted);
        let wide = |interval: &&(i64, i64)| interval.0 != interval.1;
        for (low, high) in fresh.iter().filter(wide) {
            for (from, to) in given.iter().filter(wide) {
                assert!(high < from || to < low, "{low} {high} and {from} {to}");
            }
        }
        given.extend(fresh);
    }
    let Ok(keys) = at(-175.0, -80.0).keys(&mut uncounted);
    assert!(finds(&given, &keys), "in the end it has the whole sphere");
}

#[test]
fn points_of_the_plane_lie_in_regions_with_some_of_their_boundary() {
    let triangle = Region::Polygon(vec![
        PlanePoint { x: 0.0, y: 0.0 },
        PlanePoint { x: 4.0, y: 0.0 },
        PlanePoint { x: 0.0, y: 4.0 },
    ]);
    let turned = Region::Polygon(vec![
        PlanePoint { x: 0.0, y: 0.0 },
        PlanePoint { x: 4.0, y: 4.0 },
        PlanePoint { x: 4.0, y: 0.0 },
    ]);
    let flat = Region::Polygon(vec![
        PlanePoint { x: 0.0, y: 0.0 },
        PlanePoint { x: 4.0, y: 4.0 },
        PlanePoint { x: 0.0, y: 0.0 },
    ]);
    let bow = Region::Polygon(vec![
        PlanePoint { x: 0.0, y: 0.0 },
        PlanePoint { x: 4.0, y: 4.0 },
        PlanePoint { x: 4.0, y: 0.0 },
        PlanePoint { x: 0.0, y: 4.0 },
    ]);
    for (region, x, y, inside) in [
        (&triangle, 1.0, 1.0, true),
        (&triangle, 2.0, 2.0, true),
        (&triangle, 3.0, 3.0, false),
        (&triangle, 4.0, 0.0, true),
        (&triangle, 0.0, 2.0, true),
        (&triangle, 2.0, 0.0, true),
        (&triangle, -1.0, 0.0, false),
        (&turned, 1.0, 1.0, false),
        (&turned, 3.0, 1.0, true),
        (&turned, 4.0, 3.0, true),
        (&turned, 4.0, 4.0, true),
        (&flat, 0.0, 0.0, true),
        (&flat, 4.0, 4.0, true),
        (&flat, 2.0, 2.0, false),
        (&bow, 1.0, 1.0, true),
        (&bow, 2.0, 2.0, true),
        (&bow, 3.0, 3.0, false),
    ] {
        let Ok(found) = region.contains(&PlanePoint { x, y }, &mut uncounted);
        assert_eq!(found, inside, "{x} {y}");
    }
}

fn any_geometry() -> impl Strategy<Value = Document> {
    let place = (-179.0..179.0f64, -85.0..85.0f64);
    let near = (-4.0..4.0f64, -4.0..4.0f64);
    let point = place
        .clone()
        .prop_map(|(x, y)| doc! {"type": "Point", "coordinates": [x, y]});
    let line = (place.clone(), prop::collection::vec(near, 1..4)).prop_map(|((x, y), steps)| {
        let mut positions = vec![(x, y)];
        positions.extend(
            steps
                .iter()
                .map(|(dx, dy)| ((x + dx).clamp(-180.0, 180.0), (y + dy).clamp(-90.0, 90.0))),
        );
        line(&positions)
    });
    let square = (place, 0.001..20.0f64).prop_map(|((x, y), side)| {
        let side = side.min(180.0 - x.abs()).min(89.0 - y.abs()).max(0.0005);
        square(x, y, side)
    });
    prop_oneof![point, line, square]
}

/// Polygons whose corners and sides lie in planes with the centres and borders of cells.
fn round_polygon() -> impl Strategy<Value = Document> {
    let step = prop_oneof![Just(5), Just(15), Just(30), Just(45), Just(90)];
    (step, -12i32..12, -6i32..6, 1i32..5, 1i32..5, any::<bool>()).prop_map(
        |(step, x, y, width, height, is_triangle)| {
            let (west, south) = (
                f64::from(x * step).clamp(-180.0, 175.0),
                f64::from(y * step).clamp(-90.0, 85.0),
            );
            let east = (west + f64::from(width * step)).min(west + 150.0).min(180.0);
            let north = (south + f64::from(height * step)).min(90.0);
            match is_triangle {
                true => polygon(&[&[(west, south), (east, south), ((west + east) / 2.0, north)]]),
                false => polygon(&[&[(west, south), (east, south), (east, north), (west, north)]]),
            }
        },
    )
}

/// A ring that goes in and out.
fn jagged(longitude: f64, latitude: f64, radius: f64, corners: usize) -> Vec<(f64, f64)> {
    let corner = |i: usize| {
        let angle = i as f64 / corners as f64 * std::f64::consts::TAU;
        let radius = radius * (1.0 + 0.3 * (i % 3) as f64);
        (longitude + radius * angle.cos(), latitude + radius * angle.sin())
    };
    (0..corners).map(corner).collect()
}

#[test]
fn cells_tell_of_points_what_counting_all_arcs_does() {
    let (outer, hole) = (jagged(20.0, 10.0, 8.0, 900), jagged(20.0, 10.0, 3.0, 300));
    let with_hole = geometry(polygon(&[&outer, &hole]));
    let other = doc! {"type": "MultiPolygon", "coordinates": [
        [ring(&jagged(179.0, 0.0, 0.5, 300))], [ring(&jagged(-120.0, 80.0, 3.0, 300))],
    ]};
    let mixed = doc! {"type": "GeometryCollection", "geometries": [
        line(&jagged(20.0, 10.0, 5.0, 250)), square(19.0, 9.0, 2.0), {"type": "Point", "coordinates": [15.0, 10.0]},
    ]};
    let (mut met, mut apart) = (0, 0);
    for shape in [with_hole, geometry(other), geometry(mixed)] {
        let indexed = Indexed::new(shape.clone());
        let around = |(x, y): (f64, f64)| {
            (0..30)
                .flat_map(move |i| (0..30).map(move |j| (i, j)))
                .map(move |(i, j)| (x + f64::from(i) * 0.71 - 10.65, y + f64::from(j) * 0.71 - 10.65))
        };
        let vertices = outer.iter().chain(&hole).copied().chain(jagged(20.0, 10.0, 5.0, 250));
        let places = around((20.0, 10.0))
            .chain(around((169.0, 0.0)))
            .chain(around((-120.0, 79.0)));
        for (longitude, latitude) in places.chain(vertices).chain([(15.0, 10.0)]) {
            let place = at(longitude, latitude);
            let meets = indexed.meets(&place, &mut uncounted);
            assert_eq!(meets, shape.meets(&place, &mut uncounted), "{longitude} {latitude}");
            let contains = indexed.contains(&place, &mut uncounted);
            assert_eq!(
                contains,
                shape.contains(&place, &mut uncounted),
                "{longitude} {latitude}"
            );
            if meets == Ok(true) { met += 1 } else { apart += 1 }
        }
    }
    assert!(met > 1000 && apart > 1000, "{met} {apart}");
}

/// The story: for each cell there was a byte for each part, so that many points or polygons took all memory.
#[test]
fn cells_of_many_parts_tell_the_same_and_take_little() {
    let place = |i: i32| {
        let (x, y) = (i * 7919 % 3600, i * 104_729 % 1600);
        (f64::from(x) / 10.0 - 180.0, f64::from(y) / 10.0 - 80.0)
    };
    let square = |west: f64, south: f64, side: f64| Bson::from(vec![Bson::from(ring(&corners(west, south, side)))]);
    let point = |(x, y): (f64, f64)| Bson::from(vec![x, y]);
    let points: Vec<Bson> = (0..2000).map(|i| point(place(i))).collect();
    let scattered: Vec<Bson> = (0..2000)
        .map(|i| square(place(i).0.min(178.0), place(i).1, 1.0))
        .collect();
    let equal: Vec<Bson> = (0..300).map(|_| square(10.0, 10.0, 5.0)).collect();
    for (kind, parts) in [
        ("MultiPoint", points),
        ("MultiPolygon", scattered),
        ("MultiPolygon", equal),
    ] {
        let shape = geometry(doc! {"type": kind, "coordinates": parts});
        let indexed = Indexed::new(shape.clone());
        let (mut met, mut apart) = (0, 0);
        for i in 0..400 {
            let (x, y) = place(i * 5);
            let (x, y) = match i % 2 {
                0 => (x, y),
                _ => (x.abs() / 8.0, y.abs() / 5.0),
            };
            let place = at(x, y);
            let meets = indexed.meets(&place, &mut uncounted);
            assert_eq!(meets, shape.meets(&place, &mut uncounted), "{kind} {x} {y}");
            let contains = indexed.contains(&place, &mut uncounted);
            assert_eq!(contains, shape.contains(&place, &mut uncounted), "{kind} {x} {y}");
            if meets == Ok(true) { met += 1 } else { apart += 1 }
        }
        assert!(met > 0 && apart > 0, "{kind} {met} {apart}");
        let shares = indexed.shares();
        assert!(shares > 0 && shares < 16 * shape.arcs(), "{kind} {shares}");
    }
}

/// By cells where they have many vertices, in the whole outer ring where not.
#[test]
fn holes_lie_inside_however_many_vertices_they_have() {
    let outer = jagged(20.0, 10.0, 8.0, 600);
    for corners in [3, 12, 60, 300] {
        for (longitude, is_inside) in [(20.0, true), (27.0, false), (40.0, false)] {
            let hole = jagged(longitude, 10.0, 2.0, corners);
            assert_eq!(
                parse(polygon(&[&outer, &hole])).is_ok(),
                is_inside,
                "{corners} {longitude}"
            );
        }
    }
}

#[test]
fn looking_for_a_point_in_a_large_polygon_takes_few_steps() {
    let shape = geometry(polygon(&[&jagged(20.0, 10.0, 8.0, 5000)]));
    let indexed = Indexed::new(shape);
    let mut taken = 0;
    for i in 0..200 {
        let place = at(8.0 + 0.24 * f64::from(i % 100), 10.0);
        let Ok(_) = indexed.contains::<std::convert::Infallible>(&place, &mut |steps| {
            // The first ones are looked for without cells, and one of them makes these.
            taken += if i < 100 { 0 } else { steps };
            Ok(())
        });
    }
    assert!(taken < 100 * 500, "{taken}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn round_polygons_find_what_they_contain(a in round_polygon(), fx in -0.1..1.1f64, fy in -0.1..1.1f64) {
        let corners = positions(&a);
        let within = |of: fn(&(f64, f64)) -> f64, part: f64| {
            let low = corners.iter().map(of).fold(f64::INFINITY, f64::min);
            let high = corners.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
            low + part * (high - low)
        };
        let (x, y) = (within(|corner| corner.0, fx).clamp(-180.0, 180.0), within(|corner| corner.1, fy).clamp(-90.0, 90.0));
        let Ok(a) = parse(a) else { return Ok(()) };
        for (x, y) in [(x, y), ((x / 5.0).round() * 5.0, (y / 5.0).round() * 5.0)] {
            let place = at(x, y);
            if contains(&a, &place) {
                prop_assert!(meets(&a, &place));
            }
            if meets(&a, &place) {
                prop_assert!(share_keys(&a, &place) && share_keys(&place, &a), "{} {}", x, y);
            }
        }
    }
}

/// The corners of a polygon's outer ring.
fn positions(polygon: &Document) -> Vec<(f64, f64)> {
    let ring = &polygon.get_array("coordinates").expect("rings")[0];
    let corner = |corner: &Bson| {
        let corner = corner.as_array().expect("a position");
        (
            corner[0].as_f64().expect("a number"),
            corner[1].as_f64().expect("a number"),
        )
    };
    ring.as_array().expect("a ring").iter().map(corner).collect()
}

#[test]
fn sides_through_the_centres_of_cells_lose_nothing() {
    let rectangle = geometry(polygon(&[&[
        (90.0, -30.0),
        (150.0, -30.0),
        (150.0, 60.0),
        (90.0, 60.0),
    ]]));
    let place = at(117.0, -9.0);
    assert!(contains(&rectangle, &place));
    assert!(share_keys(&rectangle, &place) && share_keys(&place, &rectangle));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_meets_or_is_contained_shares_keys(a in any_geometry(), b in any_geometry(), pull in 0.0..1.0f64) {
        let (Ok(a), Ok(b)) = (parse(a.clone()), parse(pulled(&b, &a, pull))) else {
            return Ok(());
        };
        if meets(&a, &b) {
            prop_assert!(share_keys(&a, &b) && share_keys(&b, &a));
        }
        if contains(&a, &b) {
            prop_assert!(meets(&a, &b) && share_keys(&a, &b));
        }
        prop_assert!(meets(&a, &a) && share_keys(&a, &a));
    }

    #[test]
    fn what_is_within_a_radius_is_found_by_its_keys(
        x in -180.0..180.0f64, y in -90.0..90.0f64, radius in 0.0..1.5f64, a in any_geometry()
    ) {
        let Ok(a) = parse(a) else { return Ok(()) };
        let center = point(x, y);
        let Ok(distance) = a.distance(&center, &mut uncounted);
        let circle = Circle::new(center, radius);
        let (Ok(keys), Ok(intervals)) = (a.keys(&mut uncounted), circle.key_intervals(&mut uncounted));
        if distance <= radius {
            prop_assert!(finds(&intervals, &keys));
        }
        if let Some(place) = a.as_point() {
            let Ok(inside) = circle.contains(&a, &mut uncounted);
            prop_assert_eq!(inside, angle(place, &center) <= radius + crate::ring::TOUCH);
        }
    }

    #[test]
    fn circles_lie_in_their_rectangles(
        x in -180.0..180.0f64, y in -90.0..90.0f64, radius in 0.0..3.0f64, px in -180.0..180.0f64, py in -90.0..90.0f64
    ) {
        let circle = Circle::new(point(x, y), radius);
        let place = on_sphere(px, py).expect("in range");
        if angle(&place, &point(x, y)) <= radius + crate::ring::TOUCH {
            let at = PlanePoint { x: px, y: py };
            let holds = |rectangle: Rectangle| {
                let Ok(holds) = Region::Rectangle(rectangle).contains(&at, &mut uncounted);
                holds
            };
            prop_assert!(circle.rectangles().into_iter().any(holds));
        }
    }

    #[test]
    fn points_in_regions_are_found_by_their_squares(
        bits in 1u32..=32, ax in -180.0..180.0f64, ay in -180.0..180.0f64, bx in -180.0..180.0f64,
        by in -180.0..180.0f64, radius in 0.0..50.0f64, px in -180.0..180.0f64, py in -180.0..180.0f64
    ) {
        let grid = Grid::new(-180.0, 180.0, bits).expect("a grid");
        let (a, b) = (PlanePoint { x: ax, y: ay }, PlanePoint { x: bx, y: by });
        let far = PlanePoint { x: ay, y: bx };
        let place = PlanePoint { x: px, y: py };
        for region in [
            Region::Rectangle(Rectangle::of_corners(a, b)),
            Region::Circle { center: a, radius },
            Region::Polygon(vec![a, b, far]),
        ] {
            let Ok(inside) = region.contains(&place, &mut uncounted);
            if inside {
                prop_assert!(finds(&grid.key_intervals(&region), &[grid.key(&place)]));
            }
            let mut search = plane::Search::new(grid);
            let mut grown = search.grow(&Region::Circle { center: a, radius: radius / 2.0 });
            grown.extend(search.grow(&region));
            if inside {
                prop_assert!(finds(&grown, &[grid.key(&place)]));
            }
        }
    }
}

/// A geometry moved towards the first position of another.
fn pulled(moved: &Document, towards: &Document, by: f64) -> Document {
    let (from, to) = (first_position(moved), first_position(towards));
    let shift = ((to.0 - from.0) * by, (to.1 - from.1) * by);
    let mut moved = moved.clone();
    let coordinates = moved.remove("coordinates").expect("coordinates");
    moved.insert("coordinates", shifted(coordinates, shift));
    moved
}

fn first_position(geometry: &Document) -> (f64, f64) {
    let mut value = geometry.get("coordinates").expect("coordinates");
    loop {
        let list = value.as_array().expect("an array");
        match list[0].as_f64() {
            Some(x) => return (x, list[1].as_f64().expect("a number")),
            None => value = &list[0],
        }
    }
}

fn shifted(value: Bson, shift: (f64, f64)) -> Bson {
    let list = value.as_array().expect("an array").clone();
    match list[0].as_f64() {
        Some(x) => {
            let y = list[1].as_f64().expect("a number");
            Bson::from(vec![
                (x + shift.0).clamp(-180.0, 180.0),
                (y + shift.1).clamp(-90.0, 90.0),
            ])
        }
        None => Bson::from(list.into_iter().map(|item| shifted(item, shift)).collect::<Vec<_>>()),
    }
}
