//! Tests of geometries: `$geoWithin` and `$geoIntersects`.
//!
//! A region is one of the sphere or one of the plane, and what it is held against is read as one of the same: GeoJSON
//! other than points is never in a region of the plane. A value that is no geometry passes no test.

use std::sync::{Arc, OnceLock};

use bson::RawArray;
use bson::raw::RawBsonRef;
use geometry::plane::{self, Grid, PlanePoint, Rectangle};
use geometry::sphere::{Circle, Geometry};
use geometry::{GeometryError, Indexed, read, uncounted};

use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::raw::{Constant, Element, kind};

/// Arcs of a geometry from which on its cells are computed when it is parsed.
const EAGER_ARCS: usize = 1000;

/// `$geoWithin` and `$geoIntersects`.
#[derive(Debug)]
pub struct GeoTest {
    operator: &'static str,
    region: Region,
    source: Constant,
    /// What [`GeoTest::cells`] answered.
    cells: OnceLock<Vec<(i64, i64)>>,
}

#[derive(Debug)]
enum Region {
    /// What a geometry has to meet.
    Meeting(Indexed),
    /// The polygons that a geometry has to be in.
    Polygons(Indexed),
    Circle(Circle),
    Plane(plane::Region),
}

pub(super) fn refused(error: &GeometryError) -> QueryError {
    QueryError::bad_value(error.to_string())
}

pub(super) fn read_sphere(value: RawBsonRef<'_>, context: &EvaluationContext<'_>) -> Result<Geometry, QueryError> {
    let mut steps = |count| context.steps(count);
    // Rings that are at odds are taken: validators and views that are stored may have them.
    read::sphere(value, &mut steps)?.map_err(|error| refused(&error))
}

fn read_geojson(value: RawBsonRef<'_>, context: &EvaluationContext<'_>) -> Result<Geometry, QueryError> {
    match read::is_geojson(value) {
        true => read_sphere(value, context),
        false => Err(QueryError::bad_value(format!(
            "unknown geo specification: $geometry has to be a GeoJSON object, not {}",
            keys::describe::describe(value)
        ))),
    }
}

impl GeoTest {
    /// The argument of `$geoWithin`.
    pub(crate) fn within(value: RawBsonRef<'_>, context: &EvaluationContext<'_>) -> Result<Arc<Self>, QueryError> {
        let RawBsonRef::Document(specification) = value else {
            return Err(QueryError::bad_value("geometry must be an object"));
        };
        let mut region = None;
        for field in specification {
            let (name, argument) = field.map_err(|_| QueryError::bad_value("geometry must be an object"))?;
            if name.as_str() == "$uniqueDocs" {
                continue;
            }
            if region.is_some() {
                return Err(QueryError::bad_value("a $geoWithin has one shape"));
            }
            region = Some(Self::region_within(name.as_str(), argument, context)?);
        }
        let region = region.ok_or_else(|| {
            QueryError::bad_value("$within not supported with provided geometry: it is empty".to_owned())
        })?;
        Self::new("$geoWithin", region, value, context)
    }

    fn new(
        operator: &'static str,
        region: Region,
        source: RawBsonRef<'_>,
        context: &EvaluationContext<'_>,
    ) -> Result<Arc<Self>, QueryError> {
        let cells = match &region {
            // Here it can be interrupted, where it is wanted it cannot.
            Region::Meeting(indexed) | Region::Polygons(indexed) if indexed.geometry().arcs() > EAGER_ARCS => {
                OnceLock::from(indexed.geometry().key_intervals(&mut |count| context.steps(count))?)
            }
            _ => OnceLock::new(),
        };
        Ok(Arc::new(Self {
            operator,
            region,
            source: Constant::new(source),
            cells,
        }))
    }

    fn region_within(
        shape: &str,
        argument: RawBsonRef<'_>,
        context: &EvaluationContext<'_>,
    ) -> Result<Region, QueryError> {
        match shape {
            "$geometry" => match read_geojson(argument, context)? {
                polygons if polygons.has_polygons() => Ok(Region::Polygons(Indexed::new(polygons))),
                _ => Err(QueryError::bad_value(format!(
                    "$within not supported with provided geometry: {}",
                    keys::describe::describe(argument)
                ))),
            },
            "$box" => {
                let corners = points(argument, "$box")?;
                match corners.as_slice() {
                    [a, b] => Ok(Region::Plane(plane::Region::Rectangle(Rectangle::of_corners(*a, *b)))),
                    _ => Err(QueryError::bad_value("Box must have two corners")),
                }
            }
            "$polygon" => {
                let mut corners = points(argument, "$polygon")?;
                if corners.len() > 3 && corners.first() == corners.last() {
                    corners.pop();
                }
                if corners.len() < 3 {
                    return Err(QueryError::bad_value("Polygon must have at least 3 points"));
                }
                Ok(Region::Plane(plane::Region::Polygon(corners)))
            }
            "$center" => {
                let (center, radius) = circle(argument)?;
                Ok(Region::Plane(plane::Region::Circle { center, radius }))
            }
            "$centerSphere" => {
                let (center, radius) = circle(argument)?;
                let center = read::on_sphere(center.x, center.y).map_err(|error| refused(&error))?;
                Ok(Region::Circle(Circle::new(center, radius)))
            }
            other => Err(QueryError::bad_value(format!("unknown geo specification: {other}"))),
        }
    }

    /// The argument of `$geoIntersects`.
    pub(crate) fn intersects(value: RawBsonRef<'_>, context: &EvaluationContext<'_>) -> Result<Arc<Self>, QueryError> {
        let geometry = match value {
            RawBsonRef::Document(specification) => specification.get("$geometry").ok().flatten(),
            _ => None,
        };
        let Some(geometry) = geometry else {
            return Err(QueryError::bad_value(format!(
                "$geoIntersect not supported with provided geometry: {}",
                keys::describe::describe(value)
            )));
        };
        if !read::is_geojson(geometry) {
            pair(geometry)?;
        }
        let region = Region::Meeting(Indexed::new(read_sphere(geometry, context)?));
        Self::new("$geoIntersects", region, value, context)
    }

    /// The operator's name.
    pub(crate) fn operator(&self) -> &'static str {
        self.operator
    }

    /// Its argument.
    pub(super) fn source(&self) -> &Constant {
        &self.source
    }

    /// Whether a value passes.
    pub(super) fn passes(&self, element: Element<'_>, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        if !matches!(element.kind(), kind::DOCUMENT | kind::ARRAY) {
            return Ok(false);
        }
        let value = element.value()?;
        let mut steps = |count| context.steps(count);
        if let Region::Plane(region) = &self.region {
            return match read::plane_point(value) {
                Ok(point) => region.contains(&point, &mut steps),
                Err(_) => Ok(false),
            };
        }
        let geometry = match read::sphere(value, &mut steps)? {
            Ok(geometry) if !geometry.is_as_wound => geometry,
            _ => return Ok(false),
        };
        match &self.region {
            Region::Meeting(other) => other.meets(&geometry, &mut steps),
            Region::Polygons(polygons) => polygons.contains(&geometry, &mut steps),
            Region::Circle(circle) => circle.contains(&geometry, &mut steps),
            Region::Plane(_) => Ok(false),
        }
    }

    /// The intervals of keys in a `2dsphere` index that whatever passes has one of; `None` where they do not tell.
    pub(crate) fn cells(&self) -> Option<&[(i64, i64)]> {
        let compute = || {
            let Ok(cells) = match &self.region {
                Region::Meeting(indexed) | Region::Polygons(indexed) => {
                    indexed.geometry().key_intervals(&mut uncounted)
                }
                Region::Circle(circle) => circle.key_intervals(&mut uncounted),
                Region::Plane(_) => Ok(Vec::new()),
            };
            cells
        };
        let is_sphere = !matches!(self.region, Region::Plane(_));
        is_sphere.then(|| self.cells.get_or_init(compute).as_slice())
    }

    /// As [`GeoTest::cells`], of a `2d` index with this grid.
    pub(crate) fn squares(&self, grid: &Grid) -> Option<Vec<(i64, i64)>> {
        match &self.region {
            Region::Plane(region) => Some(grid.key_intervals(region)),
            Region::Circle(circle) => Some(
                circle
                    .rectangles()
                    .into_iter()
                    .flat_map(|rectangle| grid.key_intervals(&plane::Region::Rectangle(rectangle)))
                    .collect(),
            ),
            Region::Meeting(_) | Region::Polygons(_) => None,
        }
    }
}

/// The points that are the members of an array or of a document.
fn points(value: RawBsonRef<'_>, shape: &str) -> Result<Vec<PlanePoint>, QueryError> {
    members(value)
        .ok_or_else(|| QueryError::bad_value(format!("{shape} must be an array or an object of points")))?
        .into_iter()
        .map(pair)
        .collect()
}

/// A pair of coordinates and nothing else.
fn pair(value: RawBsonRef<'_>) -> Result<PlanePoint, QueryError> {
    match members(value) {
        Some(members) if members.len() > 2 => {
            Err(QueryError::bad_value("Point must only contain two numeric elements"))
        }
        _ => read::legacy(value).map_err(|error| refused(&error)),
    }
}

/// The members of an array, the values of a document.
pub(super) fn members(value: RawBsonRef<'_>) -> Option<Vec<RawBsonRef<'_>>> {
    match value {
        RawBsonRef::Array(array) => array_members(array),
        RawBsonRef::Document(document) => document.iter().map(|field| Some(field.ok()?.1)).collect(),
        _ => None,
    }
}

fn array_members(array: &RawArray) -> Option<Vec<RawBsonRef<'_>>> {
    array.into_iter().map(Result::ok).collect()
}

/// `[center, radius]`
fn circle(value: RawBsonRef<'_>) -> Result<(PlanePoint, f64), QueryError> {
    let members = members(value).unwrap_or_default();
    let &[center, radius] = members.as_slice() else {
        return Err(QueryError::bad_value("a circle has a center and a radius"));
    };
    let center = pair(center)?;
    match read::number(radius) {
        Some(radius) if radius >= 0.0 => Ok((center, radius)),
        _ => Err(QueryError::bad_value("radius must be a non-negative number")),
    }
}

#[cfg(test)]
mod tests {
    use bson::{Bson, RawDocumentBuf, doc};

    use super::GeoTest;
    use crate::evaluation::EvaluationContext;

    fn is_taken(operator: &str, argument: impl Into<Bson>) -> bool {
        let wrapped = RawDocumentBuf::try_from(&doc! {"": argument.into()}).expect("BSON");
        let argument = wrapped.get("").expect("BSON").expect("a field");
        let context = EvaluationContext::uninterrupted();
        match operator {
            "$geoIntersects" => GeoTest::intersects(argument, &context).is_ok(),
            _ => GeoTest::within(argument, &context).is_ok(),
        }
    }

    #[test]
    fn points_of_shapes_have_two_coordinates() {
        for shape in ["$center", "$centerSphere"] {
            assert!(is_taken("$geoWithin", doc! {shape: [[10, 20], 1]}), "{shape}");
            assert!(!is_taken("$geoWithin", doc! {shape: [[10, 20, 30], 1]}), "{shape}");
        }
        assert!(!is_taken("$geoWithin", doc! {"$box": [[0, 0, 0], [1, 1]]}));
        assert!(!is_taken("$geoWithin", doc! {"$polygon": [[0, 0], [1, 1], [1, 0, 0]]}));
        // A collection is asked for its polygons.
        let square = doc! {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]};
        let point = doc! {"type": "Point", "coordinates": [5, 5]};
        for (members, taken) in [(vec![square, point.clone()], true), (vec![point], false)] {
            let collection = doc! {"type": "GeometryCollection", "geometries": members};
            assert_eq!(is_taken("$geoWithin", doc! {"$geometry": collection}), taken);
        }
        // A legacy pair is a point to meet, but no region.
        assert!(is_taken("$geoIntersects", doc! {"$geometry": [0, 0]}));
        assert!(is_taken("$geoIntersects", doc! {"$geometry": {"x": 0, "y": 0}}));
        assert!(!is_taken("$geoIntersects", doc! {"$geometry": [0, 0, 0]}));
        assert!(!is_taken("$geoIntersects", doc! {"$geometry": {"x": 0}}));
        assert!(!is_taken("$geoWithin", doc! {"$geometry": [0, 0]}));
    }
}
