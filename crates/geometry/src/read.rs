//! Geometries from BSON: GeoJSON objects (RFC 7946, without nested collections) and legacy coordinate pairs.
//!
//! Coordinates are longitude and latitude, in degrees. Of a ring the smaller part of the sphere is inside, however it
//! is wound, unless its `crs` is MongoDB's own for strict winding. Rings of a polygon may be at odds with each other:
//! see [`Geometry::check_rings`].

use crate::Steps;
use crate::indexed::Indexed;
use crate::plane::PlanePoint;
use crate::ring::{Ring, RingFault};
use crate::sphere::{self, Geometry, Line, Part, Polygon};
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use s2::point::Point;

/// Vertices of holes up to which each is looked for in the whole outer ring.
const VERTICES_WITHOUT_CELLS: usize = 200;

/// Why a value is no geometry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GeometryError(String);

impl GeometryError {
    /// Of a stored geometry with a reference system that only queries may have.
    pub fn strict_winding() -> Self {
        invalid("strict winding order is for queries only")
    }
}

/// Either of them ends the reading of a geometry.
enum Failure<E> {
    Invalid(GeometryError),
    Ended(E),
}

impl<E> From<GeometryError> for Failure<E> {
    fn from(error: GeometryError) -> Self {
        Self::Invalid(error)
    }
}

pub(crate) fn invalid(message: impl Into<String>) -> GeometryError {
    GeometryError(message.into())
}

/// The coordinate reference systems that MongoDB knows by name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReferenceSystem {
    Sphere,
    /// What is to the left of a polygon's ring is inside.
    StrictWinding,
}

/// True when a value says that it is GeoJSON. A document that begins with a number is a legacy pair with more fields,
/// among which may be a `type`, unless it has all that GeoJSON has.
pub fn is_geojson(value: RawBsonRef<'_>) -> bool {
    let RawBsonRef::Document(document) = value else {
        return false;
    };
    let Ok(Some(RawBsonRef::String(kind))) = document.get("type") else {
        return false;
    };
    let begins_with_number = matches!(document.iter().next(), Some(Ok((_, first))) if number(first).is_some());
    !begins_with_number || {
        let content = match kind {
            "Point" | "LineString" | "Polygon" | "MultiPoint" | "MultiLineString" | "MultiPolygon" => "coordinates",
            "GeometryCollection" => "geometries",
            _ => return false,
        };
        matches!(document.get(content), Ok(Some(RawBsonRef::Array(_))))
    }
}

/// A geometry on the sphere, from GeoJSON or from a legacy pair in the range of longitudes and latitudes. The outer
/// error is that of `steps`.
pub fn sphere<E>(value: RawBsonRef<'_>, steps: &mut Steps<'_, E>) -> Result<Result<Geometry, GeometryError>, E> {
    let read = match value {
        RawBsonRef::Document(document) if is_geojson(value) => geojson(document, steps),
        _ => legacy(value)
            .and_then(|point| on_sphere(point.x, point.y))
            .map(Geometry::of_point)
            .map_err(Failure::from),
    };
    match read {
        Ok(geometry) => Ok(Ok(geometry)),
        Err(Failure::Invalid(error)) => Ok(Err(error)),
        Err(Failure::Ended(error)) => Err(error),
    }
}

/// A point of the plane: a legacy pair, or the coordinates of a GeoJSON point.
pub fn plane_point(value: RawBsonRef<'_>) -> Result<PlanePoint, GeometryError> {
    match value {
        RawBsonRef::Document(document) if is_geojson(value) => match document.get("type") {
            Ok(Some(RawBsonRef::String("Point"))) => {
                let (x, y) = position(coordinates(document)?.into())?;
                on_sphere(x, y)?;
                Ok(PlanePoint { x, y })
            }
            _ => Err(invalid("in the plane there are points only")),
        },
        _ => legacy(value),
    }
}

/// A legacy pair: an array that begins with two numbers, or a document whose first two fields are numbers.
pub fn legacy(value: RawBsonRef<'_>) -> Result<PlanePoint, GeometryError> {
    match value {
        RawBsonRef::Array(array) => pair(array.into_iter().map(|value| value.ok())),
        RawBsonRef::Document(document) => pair(document.iter().map(|field| field.ok().map(|(_, value)| value))),
        _ => Err(invalid("Point must be an array or object")),
    }
}

fn pair<'v>(mut values: impl Iterator<Item = Option<RawBsonRef<'v>>>) -> Result<PlanePoint, GeometryError> {
    let mut next = || {
        let value = values
            .next()
            .ok_or_else(|| invalid("Point must have at least two coordinates"))?;
        value
            .and_then(number)
            .ok_or_else(|| invalid("Point must only contain numeric elements"))
    };
    let (x, y) = (next()?, next()?);
    if !x.is_finite() || !y.is_finite() {
        return Err(invalid("Point coordinates must be finite"));
    }
    Ok(PlanePoint { x, y })
}

/// A number of any type.
pub fn number(value: RawBsonRef<'_>) -> Option<f64> {
    match value {
        // By its text, which both sides know: nobody has many of these.
        RawBsonRef::Decimal128(number) => number.to_string().parse().ok(),
        RawBsonRef::Double(number) => Some(number),
        RawBsonRef::Int32(number) => Some(f64::from(number)),
        RawBsonRef::Int64(number) => Some(number as f64),
        _ => None,
    }
}

/// The point at these coordinates, if there is one.
pub fn on_sphere(longitude: f64, latitude: f64) -> Result<Point, GeometryError> {
    if !(-180.0..=180.0).contains(&longitude) || !(-90.0..=90.0).contains(&latitude) {
        return Err(invalid(format!(
            "longitude/latitude is out of bounds, lng: {longitude} lat: {latitude}"
        )));
    }
    Ok(sphere::point(longitude, latitude))
}

fn geojson<E>(document: &RawDocument, steps: &mut Steps<'_, E>) -> Result<Geometry, Failure<E>> {
    let kind = document.get_str("type").map_err(|_| invalid("GeoJSON has no type"))?;
    let system = reference_system(document)?;
    if system == ReferenceSystem::StrictWinding && kind != "Polygon" {
        return Err(invalid(format!("{kind} with strict winding order is not supported")).into());
    }
    if kind != "GeometryCollection" {
        let mut parts = Vec::new();
        parts_of(kind, coordinates(document)?, system, &mut parts, steps)?;
        let mut geometry = Geometry::new(parts);
        geometry.is_as_wound = system == ReferenceSystem::StrictWinding;
        return Ok(geometry);
    }
    let members = match document.get("geometries") {
        Ok(Some(RawBsonRef::Array(members))) => members,
        _ => return Err(invalid("GeometryCollection geometries must be an array").into()),
    };
    let mut parts = Vec::new();
    for member in members {
        let Ok(RawBsonRef::Document(member)) = member else {
            return Err(invalid("Element of GeometryCollection geometries must be an object").into());
        };
        let kind = member.get_str("type").unwrap_or_default();
        if kind == "GeometryCollection" {
            return Err(invalid("GeometryCollections cannot be nested").into());
        }
        if reference_system(member)? == ReferenceSystem::StrictWinding {
            return Err(invalid("strict winding order is only supported by a polygon of its own").into());
        }
        parts_of(kind, coordinates(member)?, ReferenceSystem::Sphere, &mut parts, steps)?;
    }
    if parts.is_empty() {
        return Err(invalid("GeometryCollection geometries must have at least 1 element").into());
    }
    Ok(Geometry::new(parts))
}

fn reference_system(document: &RawDocument) -> Result<ReferenceSystem, GeometryError> {
    let system = match document.get("crs") {
        Ok(None) => return Ok(ReferenceSystem::Sphere),
        Ok(Some(RawBsonRef::Document(system))) => system,
        _ => return Err(invalid("GeoJSON CRS must be an object")),
    };
    if !matches!(system.get_str("type"), Ok("name")) {
        return Err(invalid("GeoJSON CRS must have field \"type\": \"name\""));
    }
    let name = system
        .get_document("properties")
        .and_then(|named| named.get_str("name"));
    match name {
        Ok("urn:ogc:def:crs:OGC:1.3:CRS84" | "EPSG:4326") => Ok(ReferenceSystem::Sphere),
        Ok("urn:x-mongodb:crs:strictwinding:EPSG:4326") => Ok(ReferenceSystem::StrictWinding),
        Ok(name) => Err(invalid(format!("Unknown CRS name: {name}"))),
        Err(_) => Err(invalid("In CRS, \"properties.name\" must be a string")),
    }
}

fn coordinates(document: &RawDocument) -> Result<&RawArray, GeometryError> {
    match document.get("coordinates") {
        Ok(Some(RawBsonRef::Array(coordinates))) => Ok(coordinates),
        _ => Err(invalid("GeoJSON coordinates must be an array")),
    }
}

fn array<'a>(value: RawBsonRef<'a>, what: &str) -> Result<&'a RawArray, GeometryError> {
    match value {
        RawBsonRef::Array(array) => Ok(array),
        _ => Err(invalid(format!("{what} coordinates must be an array"))),
    }
}

/// Appends the parts of one GeoJSON object that is no collection.
fn parts_of<E>(
    kind: &str,
    coordinates: &RawArray,
    system: ReferenceSystem,
    parts: &mut Vec<Part>,
    steps: &mut Steps<'_, E>,
) -> Result<(), Failure<E>> {
    let before = parts.len();
    let mut each = |read: &mut dyn FnMut(RawBsonRef<'_>) -> Result<Part, Failure<E>>| {
        for member in coordinates {
            let member = member.map_err(|_| invalid("the coordinates are not valid BSON"))?;
            parts.push(read(member)?);
        }
        Ok::<(), Failure<E>>(())
    };
    match kind {
        "Point" => {
            let point = point_at(coordinates.into())?;
            parts.push(Part::Point(point));
            return Ok(());
        }
        "LineString" => {
            let line = line(coordinates)?;
            parts.push(line);
            return Ok(());
        }
        "Polygon" => {
            let polygon = polygon(coordinates, system, steps)?;
            parts.push(polygon);
            return Ok(());
        }
        "MultiPoint" => each(&mut |member| Ok(Part::Point(point_at(member)?)))?,
        "MultiLineString" => each(&mut |member| Ok(line(array(member, kind)?)?))?,
        "MultiPolygon" => each(&mut |member| polygon(array(member, kind)?, system, steps))?,
        _ => return Err(invalid(format!("unknown GeoJSON type: {kind}")).into()),
    }
    match parts.len() == before {
        true => Err(invalid(format!("{kind} coordinates must have at least 1 element")).into()),
        false => Ok(()),
    }
}

fn position(value: RawBsonRef<'_>) -> Result<(f64, f64), GeometryError> {
    let RawBsonRef::Array(_) = value else {
        return Err(invalid("GeoJSON coordinates must be an array of coordinates"));
    };
    legacy(value).map(|point| (point.x, point.y))
}

fn point_at(value: RawBsonRef<'_>) -> Result<Point, GeometryError> {
    let (longitude, latitude) = position(value)?;
    on_sphere(longitude, latitude)
}

/// Vertices without those that are the same as the one before.
fn vertices(positions: &RawArray) -> Result<Vec<Point>, GeometryError> {
    let mut vertices: Vec<Point> = Vec::new();
    for value in positions {
        let point = point_at(value.map_err(|_| invalid("the coordinates are not valid BSON"))?)?;
        if vertices.last() != Some(&point) {
            vertices.push(point);
        }
    }
    Ok(vertices)
}

fn line(positions: &RawArray) -> Result<Part, GeometryError> {
    let line = Line::new(&vertices(positions)?);
    line.map(Part::Line)
        .ok_or_else(|| invalid("GeoJSON LineString must have at least 2 vertices"))
}

fn polygon<E>(rings: &RawArray, system: ReferenceSystem, steps: &mut Steps<'_, E>) -> Result<Part, Failure<E>> {
    let mut read: Vec<Ring> = Vec::new();
    for ring in rings {
        let ring = ring.map_err(|_| invalid("the coordinates are not valid BSON"))?;
        let ring = array(ring, "Polygon")?;
        if ring.into_iter().count() < 4 {
            return Err(invalid("Loop must have at least 4 vertices, the last one the first again").into());
        }
        let mut vertices = vertices(ring)?;
        if vertices.first() != vertices.last() || vertices.len() < 2 {
            return Err(invalid("Loop is not closed, first vertex does not equal last vertex").into());
        }
        vertices.pop();
        let as_wound = system == ReferenceSystem::StrictWinding;
        match Ring::new(vertices, as_wound, steps).map_err(Failure::Ended)? {
            Ok(ring) => read.push(ring),
            Err(fault) => return Err(described(&fault).into()),
        }
    }
    let Some((outer, holes)) = read.split_first() else {
        return Err(invalid("Polygon has no loops.").into());
    };
    if system == ReferenceSystem::StrictWinding && !holes.is_empty() {
        return Err(invalid("Only one simple loop is allowed in a big polygon").into());
    }
    // Cells cost as much as looking for some hundred points in all arcs.
    let filled = match holes.iter().map(|hole| hole.arcs().len()).sum::<usize>() > VERTICES_WITHOUT_CELLS {
        true => {
            let filled = Geometry::new(vec![Part::Polygon(Polygon::new(vec![outer.clone()]))]);
            Some(Indexed::new(filled))
        }
        false => None,
    };
    for (place, hole) in holes.iter().enumerate() {
        for arc in hole.arcs() {
            let is_inside = match &filled {
                Some(filled) => filled.contains(&Geometry::of_point(arc.a), steps),
                None => outer.contains_or_touches(&arc.a, steps),
            };
            if !is_inside.map_err(Failure::Ended)? {
                return Err(invalid(format!(
                    "Secondary loops not contained by first exterior loop - secondary loops must be holes: loop {}",
                    place + 1
                ))
                .into());
            }
        }
    }
    Ok(Part::Polygon(Polygon::new(read)))
}

fn described(fault: &RingFault) -> GeometryError {
    match fault {
        RingFault::TooFew => invalid("Loop must have at least 3 different vertices"),
        RingFault::Twice(first, second) => {
            invalid(format!("Loop is not valid: Duplicate vertices: {first} and {second}"))
        }
        RingFault::Cross(first, second) => invalid(format!("Loop is not valid: Edges {first} and {second} cross")),
    }
}
