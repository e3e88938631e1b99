//! The point of `$near`, `$nearSphere` and `$geoNear`, and the distance of what a document has.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use bson::RawDocument;
use bson::raw::RawBsonRef;
use geometry::plane::PlanePoint;
use geometry::{EARTH_RADIUS_METRES, read, sphere};
use keys::FieldKind;
use wire::ErrorCode;

use super::geo::{members, read_sphere, refused};
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::path::{self, LeafArray, Path};
use crate::raw::{self, Constant, kind};

/// The code of `$near` where nobody sorts.
pub(crate) const NEAR_REFUSED: ErrorCode = ErrorCode(5_626_500);

/// Whether one of a field's operators wants its matches in the order of distances.
pub(super) fn has_near(operators: &RawDocument) -> bool {
    operators.iter().flatten().any(|(name, _)| is_near(name.as_str()))
}

fn is_near(name: &str) -> bool {
    matches!(name, "$near" | "$nearSphere" | "$geoNear")
}

/// The point that matches are wanted in the order of their distance from.
#[derive(Clone, Debug)]
pub(crate) struct NearQuery {
    /// The path of the geometries; without it that of the only index that serves.
    pub(crate) path: Option<Path>,
    pub(crate) test: Arc<NearTest>,
    /// What `$geoNear` adds to documents.
    pub(crate) output: Option<NearOutput>,
}

/// As MongoDB's debug string of it, of which applications read the field that lacks an index (Parse Server makes one).
impl Display for NearQuery {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        let field = self.path.as_ref().map_or("", Path::text);
        let most = match self.test.most {
            most if most.is_finite() => most.to_string(),
            // The greatest number there is, in six digits.
            _ => "1.79769e+308".to_owned(),
        };
        let is_near_sphere = self.test.source.iter().any(|(name, _)| name == "$nearSphere");
        let is_near_sphere = i32::from(is_near_sphere);
        write!(
            out,
            "GEONEAR  field={field} maxdist={most} isNearSphere={is_near_sphere}"
        )
    }
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
    /// As the client gave them, and as it is told distances: by `unit`.
    least: f64,
    most: f64,
    /// What a distance, in radians on the sphere, is multiplied by for the client: it has metres of a GeoJSON point.
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
        let (mut point, mut beside) = (None, None);
        let (mut least, mut most) = (None, None);
        for field in operators {
            let (field, value) = field.map_err(|_| QueryError::bad_value("malformed operators"))?;
            match field.as_str() {
                "$minDistance" => least = Some(value),
                "$maxDistance" => most = Some(value),
                field if field == name => point = Some(value),
                "$uniqueDocs" => {
                    beside = Some(field.as_str());
                    continue;
                }
                other if is_near(other) => return Err(QueryError::bad_value("Too many geoNear expressions")),
                other => {
                    return Err(QueryError::new(
                        ErrorCode(34413),
                        format!("invalid argument in geo near query: {other}"),
                    ));
                }
            }
            if field.as_str() != name {
                beside = Some(field.as_str());
            }
            source.push((field.as_str().to_owned(), Constant::new(value)));
        }
        let point = point.ok_or_else(|| QueryError::bad_value("$near requires a point"))?;
        let around_geometry = match point {
            RawBsonRef::Document(inner) if inner.get("$geometry").ok().flatten().is_some() => Some(inner),
            _ => None,
        };
        let is_near_sphere = name == "$nearSphere";
        let mut near = match (around_geometry, beside) {
            (Some(_), Some(beside)) => {
                return Err(QueryError::bad_value(format!(
                    "geo near accepts just one argument when querying for a GeoJSON point. Extra field found: {beside}"
                )));
            }
            (Some(inner), None) => Self::around_geometry(inner, is_near_sphere)?,
            (None, _) => {
                let least = least.map(|value| distance(value, "$minDistance", [16893, 16894]));
                let most = most.map(|value| distance(value, "$maxDistance", [16895, 16896]));
                Self::of(point, is_near_sphere, least.transpose()?, most.transpose()?)?
            }
        };
        near.source = source;
        Ok(Arc::new(near))
    }

    /// From `{$geometry: ..}`, with distances beside it.
    fn around_geometry(specification: &RawDocument, spherical: bool) -> Result<Self, QueryError> {
        let (mut geometry, mut least, mut most) = (None, None, None);
        let limit = |value: RawBsonRef<'_>, name: &str| {
            let limit = distance(value, name, [ErrorCode::BadValue.0; 2])?;
            match limit.is_finite() {
                true => Ok(Some(limit)),
                false => Err(QueryError::bad_value(format!("{name} must be finite"))),
            }
        };
        for field in specification {
            let (field, value) = field.map_err(|_| QueryError::bad_value("malformed $near"))?;
            match field.as_str() {
                "$geometry" => geometry = Some(value),
                "$minDistance" => least = limit(value, "$minDistance")?,
                "$maxDistance" => most = limit(value, "$maxDistance")?,
                other => {
                    return Err(QueryError::bad_value(format!(
                        "invalid argument in geo near query: {other}"
                    )));
                }
            }
        }
        let geometry = geometry
            .filter(|geometry| read::is_geojson(*geometry))
            .ok_or_else(|| QueryError::bad_value("$near requires geojson point"))?;
        Self::of(geometry, spherical, least, most)
    }

    /// Around a GeoJSON point, with distances in metres, or a legacy pair, with distances in radians if `spherical`. A
    /// third number of such a pair is the greatest distance, unless `most` is.
    pub(crate) fn of(
        point: RawBsonRef<'_>,
        spherical: bool,
        least: Option<f64>,
        most: Option<f64>,
    ) -> Result<Self, QueryError> {
        let (center, unit, most) = if read::is_geojson(point) {
            // Reading anything else may take long, and is to no end.
            let at = read::plane_point(point).map_err(|_| {
                QueryError::bad_value(format!(
                    "invalid point in geo near query $geometry argument: {}",
                    keys::describe::describe(point)
                ))
            })?;
            read_sphere(point, &EvaluationContext::uninterrupted())?;
            let center = Center::Sphere {
                longitude: at.x,
                latitude: at.y,
                is_legacy: false,
            };
            (center, EARTH_RADIUS_METRES, most)
        } else {
            let (at, furthest) = legacy_with_distance(point)?;
            let most = most.or(furthest);
            match spherical {
                false => (Center::Plane(at), 1.0, most),
                true => {
                    read::on_sphere(at.x, at.y).map_err(|error| refused(&error))?;
                    let center = Center::Sphere {
                        longitude: at.x,
                        latitude: at.y,
                        is_legacy: true,
                    };
                    (center, 1.0, most)
                }
            }
        };
        Ok(Self {
            center,
            least: least.unwrap_or(0.0),
            most: most.unwrap_or(f64::INFINITY),
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

    /// Between which distances (radians on the sphere, units of the coordinates in the plane) all matches are; some
    /// that are no matches may be, too.
    pub(crate) fn search_limits(&self) -> (f64, f64) {
        // What is multiplied and then divided may come out a little less or more.
        let slack = if self.unit == 1.0 { 0.0 } else { 1e-12 };
        let limit = |given: f64, slack: f64| given / self.unit * (1.0 + slack);
        (limit(self.least, -slack), limit(self.most, slack))
    }

    /// Whether a match may be so far away. The distance counts as the client is told it, so that it can ask for what
    /// is no nearer, or no further, than a document that it was given.
    pub(crate) fn is_within_limits(&self, distance: f64) -> bool {
        (self.least..=self.most).contains(&(distance * self.unit))
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
        path::any(document, path, LeafArray::Expand, context, |element, _| {
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

/// A distance. The codes are of what is no number, and of what is negative.
fn distance(value: RawBsonRef<'_>, name: &str, [no_number, negative]: [i32; 2]) -> Result<f64, QueryError> {
    let refused = |code: i32, what: &str| Err(QueryError::new(ErrorCode(code), format!("{name} must be {what}")));
    match read::number(value) {
        Some(distance) if distance >= 0.0 => Ok(distance),
        Some(_) => refused(negative, "non-negative"),
        None => refused(no_number, "a number"),
    }
}

/// A legacy pair, and the greatest distance that may stand behind its coordinates.
fn legacy_with_distance(value: RawBsonRef<'_>) -> Result<(PlanePoint, Option<f64>), QueryError> {
    let invalid = |why: &dyn Display| QueryError::bad_value(format!("invalid point in geo near query: {why}"));
    let point = read::legacy(value).map_err(|error| invalid(&error))?;
    let most = match members(value).unwrap_or_default().as_slice() {
        [_, _] => None,
        [_, _, most] => match read::number(*most) {
            Some(most) if most >= 0.0 => Some(most),
            Some(_) => {
                return Err(QueryError::new(ErrorCode(18522), "max distance must be non-negative"));
            }
            None => return Err(invalid(&"behind the coordinates stands a distance")),
        },
        _ => return Err(invalid(&"it has two coordinates and at most a distance")),
    };
    Ok((point, most))
}

#[cfg(test)]
mod tests {
    use bson::{Document, RawDocumentBuf, doc};

    use super::NearTest;

    #[test]
    fn a_field_has_the_point_and_distances_alone() {
        let code_of = |operators: Document| {
            let operators = RawDocumentBuf::try_from(&operators).expect("BSON");
            let name = operators.iter().flatten().map(|(name, _)| name.as_str().to_owned());
            let name = name.into_iter().find(|name| super::is_near(name)).expect("an operator");
            let parsed = NearTest::parse(&name, &operators);
            parsed.err().and_then(|error| error.code()).map_or(0, |code| code.0)
        };
        let point = doc! {"type": "Point", "coordinates": [0, 0]};
        let near = || doc! {"$geometry": point.clone()};
        for (operators, code) in [
            (doc! {"$near": near()}, 0),
            (doc! {"$near": [0, 0], "$maxDistance": 1, "$uniqueDocs": true}, 0),
            (doc! {"$near": {"x": 0, "y": 0}}, 0),
            (doc! {"$near": near(), "$nearSphere": near()}, 2),
            // Distances go with the geometry, where there is one.
            (doc! {"$near": {"$geometry": point.clone(), "$maxDistance": 1}}, 0),
            (doc! {"$near": near(), "$maxDistance": 1}, 2),
            (doc! {"$minDistance": 1, "$nearSphere": near()}, 2),
            (doc! {"$nearSphere": point.clone(), "$maxDistance": 1}, 0),
            (doc! {"$near": near(), "$eq": 1}, 34413),
            (doc! {"$eq": 1, "$near": near()}, 34413),
            (doc! {"$nearSphere": [0, 0], "$exists": true}, 34413),
            (doc! {"$near": {"$geometry": point.clone(), "$unknown": 5}}, 2),
            // In `$geometry` there is GeoJSON alone, and distances beside it are finite.
            (doc! {"$near": {"$geometry": [0, 0]}}, 2),
            (doc! {"$nearSphere": {"$geometry": {"x": 0, "y": 0}}}, 2),
            (
                doc! {"$near": {"$geometry": point.clone(), "$maxDistance": f64::INFINITY}},
                2,
            ),
            (doc! {"$near": {"$geometry": point.clone(), "$minDistance": "1"}}, 2),
            (doc! {"$near": {"$geometry": point.clone(), "$minDistance": -1}}, 2),
            (doc! {"$near": [0, 0], "$maxDistance": f64::INFINITY}, 0),
            (doc! {"$near": [0, 0], "$minDistance": "1"}, 16893),
            (doc! {"$near": [0, 0], "$minDistance": -1}, 16894),
            (doc! {"$nearSphere": [0, 0], "$maxDistance": "1"}, 16895),
            (doc! {"$nearSphere": point.clone(), "$maxDistance": -1}, 16896),
            // A third number is the greatest distance.
            (doc! {"$near": [0, 0, 1]}, 0),
            (doc! {"$near": {"x": 0, "y": 0, "d": 1}}, 0),
            (doc! {"$near": [0, 0, -1]}, 18522),
            (doc! {"$near": [0, 0, "1"]}, 2),
            (doc! {"$near": [0, 0, 1, 1]}, 2),
        ] {
            assert_eq!(code_of(operators.clone()), code, "{operators}");
        }
    }

    /// Reading a large polygon takes long, and whoever waits cannot end it.
    #[test]
    fn what_is_no_point_is_refused_unread() {
        let crossing = doc! {"type": "Polygon", "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]};
        for geometry in [crossing, doc! {"type": "MultiPoint", "coordinates": [[0, 0]]}] {
            let operators = RawDocumentBuf::try_from(&doc! {"$near": {"$geometry": geometry}}).expect("BSON");
            let refused = NearTest::parse("$near", &operators).expect_err("no point").to_string();
            assert!(refused.contains("invalid point in geo near query"), "{refused}");
        }
    }

    #[test]
    fn the_third_number_of_a_pair_is_the_greatest_distance() {
        let most = |operators: Document| {
            let operators = RawDocumentBuf::try_from(&operators).expect("BSON");
            NearTest::parse("$near", &operators).expect("a point").most
        };
        assert_eq!(most(doc! {"$near": [0, 0, 2]}), 2.0);
        assert_eq!(most(doc! {"$near": {"x": 0, "y": 0, "d": 2.5}}), 2.5);
        assert_eq!(most(doc! {"$near": [0, 0, 2], "$maxDistance": 1}), 1.0);
        assert_eq!(most(doc! {"$near": [0, 0]}), f64::INFINITY);
    }

    #[test]
    fn a_limit_holds_what_was_told_to_be_as_far() {
        let near = |metres: f64| {
            let point = doc! {"type": "Point", "coordinates": [10, 20]};
            let near = doc! {"$geometry": point, "$minDistance": metres, "$maxDistance": metres};
            let operators = RawDocumentBuf::try_from(&doc! {"$near": near}).expect("BSON");
            NearTest::parse("$near", &operators).expect("a point")
        };
        for part in 1..1000 {
            let angle = f64::from(part) * 0.003;
            let told = angle * near(0.0).unit();
            let near = near(told);
            assert!(near.is_within_limits(angle), "{angle}");
            let (least, most) = near.search_limits();
            assert!(least <= angle && angle <= most, "{angle}");
            assert!(!near.is_within_limits(angle * 1.000_001) && !near.is_within_limits(angle * 0.999_999));
        }
    }
}
