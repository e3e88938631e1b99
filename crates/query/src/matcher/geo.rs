//! Tests of geometries: `$geoWithin`, `$geoIntersects`, and the point of `$near` and `$nearSphere`.
//!
//! A region is one of the sphere or one of the plane, and what it is held against is read as one of the same: GeoJSON
//! other than points is never in a region of the plane. A value that is no geometry passes no test.

use std::sync::{Arc, OnceLock};

use bson::raw::RawBsonRef;
use bson::{RawArray, RawDocument};
use geometry::plane::{self, Grid, PlanePoint, Rectangle};
use geometry::sphere::{self, Circle, Geometry};
use geometry::{EARTH_RADIUS_METRES, GeometryError, read, uncounted};
use keys::FieldKind;
use wire::ErrorCode;

use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::path::{self, LeafArray, Path};
use crate::raw::{self, Constant, Element, kind};

/// Arcs of a geometry from which on its cells are computed when it is parsed.
const EAGER_ARCS: usize = 1000;
/// The code of `$near` where nobody sorts.
pub(crate) const NEAR_REFUSED: ErrorCode = ErrorCode(5_626_500);

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
    Meeting(Geometry),
    /// The polygons that a geometry has to be in.
    Polygons(Geometry),
    Circle(Circle),
    Plane(plane::Region),
}

fn refused(error: &GeometryError) -> QueryError {
    QueryError::bad_value(error.to_string())
}

fn read_sphere(value: RawBsonRef<'_>, context: &EvaluationContext<'_>) -> Result<Geometry, QueryError> {
    let geometry = read::sphere(value, &mut |count| context.steps(count))?;
    geometry.map_err(|error| refused(&error))
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
            Region::Meeting(geometry) | Region::Polygons(geometry) if geometry.arcs() > EAGER_ARCS => {
                OnceLock::from(geometry.key_intervals(&mut |count| context.steps(count))?)
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
                polygons if polygons.is_polygons() => Ok(Region::Polygons(polygons)),
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
        let region = Region::Meeting(read_geojson(geometry, context)?);
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
                Region::Meeting(geometry) | Region::Polygons(geometry) => geometry.key_intervals(&mut uncounted),
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
        .map(|point| read::legacy(point).map_err(|error| refused(&error)))
        .collect()
}

fn members(value: RawBsonRef<'_>) -> Option<Vec<RawBsonRef<'_>>> {
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
    let center = read::legacy(center).map_err(|error| refused(&error))?;
    match read::number(radius) {
        Some(radius) if radius >= 0.0 => Ok((center, radius)),
        _ => Err(QueryError::bad_value("radius must be a non-negative number")),
    }
}

/// Whether one of a field's operators wants its matches in the order of distances.
pub(super) fn has_near(operators: &RawDocument) -> bool {
    operators.iter().flatten().any(|(name, _)| is_near(name.as_str()))
}

fn is_near(name: &str) -> bool {
    matches!(name, "$near" | "$nearSphere" | "$geoNear")
}

/// The point that matches are wanted in the order of their distance from.
#[derive(Clone, Debug)]
pub(crate) struct NearWish {
    /// The path of the geometries; without it that of the only index that serves.
    pub(crate) path: Option<Path>,
    pub(crate) test: Arc<NearTest>,
    /// What `$geoNear` adds to documents.
    pub(crate) output: Option<NearOutput>,
}

/// The fields that `$geoNear` adds.
#[derive(Clone, Debug)]
pub(crate) struct NearOutput {
    /// Path of the distance.
    pub(crate) distance: Option<Path>,
    /// Path of the geometry that the distance is to.
    pub(crate) location: Option<Path>,
    /// What the distance is multiplied by.
    pub(crate) multiplier: f64,
}

/// The point of `$near`, `$nearSphere` or `$geoNear`, and how far from it matches may be.
#[derive(Clone, Debug)]
pub struct NearTest {
    center: Center,
    /// In radians on the sphere, in units of the coordinates in the plane.
    least: f64,
    most: f64,
    /// What such a distance is multiplied by for the client: metres, where GeoJSON gave the point.
    unit: f64,
    source: Vec<(String, Constant)>,
}

/// Where the distance is measured from, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Center {
    /// On the sphere. A legacy pair may be looked for in a `2d` index, too.
    Sphere {
        longitude: f64,
        latitude: f64,
        is_legacy: bool,
    },
    Plane(PlanePoint),
}

impl NearTest {
    /// From the operators on a field, of which `name` has the point.
    pub(super) fn parse(name: &str, operators: &RawDocument) -> Result<Arc<Self>, QueryError> {
        let mut source = Vec::new();
        let mut point = None;
        let (mut least, mut most) = (None, None);
        for field in operators {
            let (field, value) = field.map_err(|_| QueryError::bad_value("malformed operators"))?;
            match field.as_str() {
                "$minDistance" => least = Some(distance(value, "$minDistance")?),
                "$maxDistance" => most = Some(distance(value, "$maxDistance")?),
                field if field == name => point = Some(value),
                _ => continue,
            }
            source.push((field.as_str().to_owned(), Constant::new(value)));
        }
        let point = point.ok_or_else(|| QueryError::bad_value("$near requires a point"))?;
        let mut given = point;
        if let RawBsonRef::Document(inner) = point {
            for field in inner {
                let (field, value) = field.map_err(|_| QueryError::bad_value("malformed $near"))?;
                match field.as_str() {
                    "$geometry" => given = value,
                    "$minDistance" => least = Some(distance(value, "$minDistance")?),
                    "$maxDistance" => most = Some(distance(value, "$maxDistance")?),
                    _ => {}
                }
            }
        }
        let mut near = Self::of(given, name == "$nearSphere", least, most)?;
        near.source = source;
        Ok(Arc::new(near))
    }

    /// Around a GeoJSON point, with distances in metres, or a legacy pair, with distances in radians if `spherical`.
    pub(crate) fn of(
        point: RawBsonRef<'_>,
        spherical: bool,
        least: Option<f64>,
        most: Option<f64>,
    ) -> Result<Self, QueryError> {
        let (center, unit) = if read::is_geojson(point) {
            if read_sphere(point, &EvaluationContext::uninterrupted())?
                .as_point()
                .is_none()
            {
                return Err(QueryError::bad_value(format!(
                    "invalid point in geo near query $geometry argument: {}",
                    keys::describe::describe(point)
                )));
            }
            let at = read::plane_point(point).map_err(|error| refused(&error))?;
            let center = Center::Sphere {
                longitude: at.x,
                latitude: at.y,
                is_legacy: false,
            };
            (center, EARTH_RADIUS_METRES)
        } else {
            let at = read::legacy(point)
                .map_err(|error| QueryError::bad_value(format!("invalid point in geo near query: {error}")))?;
            match spherical {
                false => (Center::Plane(at), 1.0),
                true => {
                    read::on_sphere(at.x, at.y).map_err(|error| refused(&error))?;
                    let center = Center::Sphere {
                        longitude: at.x,
                        latitude: at.y,
                        is_legacy: true,
                    };
                    (center, 1.0)
                }
            }
        };
        Ok(Self {
            center,
            least: least.map_or(0.0, |least| least / unit),
            most: most.map_or(f64::INFINITY, |most| most / unit),
            unit,
            source: Vec::new(),
        })
    }

    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        for (name, value) in &self.source {
            raw::append(out, value.kind(), name.as_bytes(), value.bytes());
        }
    }

    /// Where the distance is measured from.
    pub(crate) fn center(&self) -> Center {
        self.center
    }

    /// The least and the greatest distance of matches.
    pub(crate) fn limits(&self) -> (f64, f64) {
        (self.least, self.most)
    }

    /// What a distance is multiplied by for the client.
    pub(crate) fn unit(&self) -> f64 {
        self.unit
    }

    /// Whether a field of this kind finds what is near.
    pub(crate) fn is_served_by(&self, kind: FieldKind) -> bool {
        match (self.center, kind) {
            (Center::Sphere { .. }, FieldKind::Sphere) | (Center::Plane(_), FieldKind::Plane(_)) => true,
            (Center::Sphere { is_legacy, .. }, FieldKind::Plane(_)) => is_legacy,
            _ => false,
        }
    }

    /// The distance of a document's geometry at a path, the nearest one of several, with that geometry as it is stored;
    /// `None` without any.
    pub(crate) fn measure<'d>(
        &self,
        document: &'d RawDocument,
        path: &Path,
        context: &EvaluationContext<'_>,
    ) -> Result<Option<(f64, RawBsonRef<'d>)>, QueryError> {
        let mut nearest: Option<(f64, RawBsonRef<'d>)> = None;
        path::any(document, path, LeafArray::Expand, |element, _| {
            context.step()?;
            let Some(element) = element.filter(|element| matches!(element.kind(), kind::DOCUMENT | kind::ARRAY)) else {
                return Ok::<bool, QueryError>(false);
            };
            let value = element.value()?;
            let distance = self.distance(value, context)?;
            if let Some(distance) = distance.filter(|distance| nearest.is_none_or(|(other, _)| *distance < other)) {
                nearest = Some((distance, value));
            }
            Ok(false)
        })?;
        Ok(nearest)
    }

    fn distance(&self, value: RawBsonRef<'_>, context: &EvaluationContext<'_>) -> Result<Option<f64>, QueryError> {
        match self.center {
            Center::Plane(center) => Ok(read::legacy(value).ok().map(|point| center.distance(&point))),
            Center::Sphere {
                longitude, latitude, ..
            } => {
                let mut steps = |count| context.steps(count);
                let center = sphere::point(longitude, latitude);
                match read::sphere(value, &mut steps)? {
                    Ok(geometry) => geometry.distance(&center, &mut steps).map(Some),
                    Err(_) => Ok(None),
                }
            }
        }
    }
}

fn distance(value: RawBsonRef<'_>, name: &str) -> Result<f64, QueryError> {
    match read::number(value) {
        Some(distance) if distance >= 0.0 => Ok(distance),
        Some(_) => Err(QueryError::bad_value(format!("{name} must be non-negative"))),
        None => Err(QueryError::bad_value(format!("{name} must be a number"))),
    }
}
