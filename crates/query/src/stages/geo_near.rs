//! `$geoNear`: the documents of a collection in the order of their distance from a point. The query plan does all of
//! it.

use std::sync::Arc;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use wire::ErrorCode;

use super::failure;
use crate::error::QueryError;
use crate::expression::{Dependencies, Expression, ExpressionContext, FieldPath};
use crate::matcher::near::{NearOutput, NearQuery};
use crate::matcher::{Matcher, NearTest};
use crate::path::Path;
use crate::value::SharedDocument;
use crate::value::scan::Malformed;

/// A parsed `$geoNear`.
#[derive(Debug)]
pub struct GeoNearSpec {
    pub(super) written: RawDocumentBuf,
    pub(super) filter: Option<(RawDocumentBuf, Matcher)>,
    pub(super) query: Arc<NearQuery>,
}

impl GeoNearSpec {
    pub(super) fn parse(
        raw: RawBsonRef<'_>,
        written: RawDocumentBuf,
        context: &ExpressionContext,
    ) -> Result<Self, QueryError> {
        let RawBsonRef::Document(specification) = raw else {
            return failure(10065, "$geoNear specification must be an object");
        };
        let (mut near, mut spherical, mut least, mut most) = (None, false, None, None);
        let (mut filter, mut path) = (None, None);
        let mut output = NearOutput {
            distance: None,
            location: None,
            multiplier: 1.0,
        };
        for field in specification {
            let (name, value) = field.map_err(|_| Malformed)?;
            match name.as_str() {
                "near" => near = Some(constant(value, (5_860_402, "near"), context)?),
                "distanceField" => output.distance = Some(named(value, "distanceField", 16606)?),
                "includeLocs" => output.location = Some(named(value, "includeLocs", 16607)?),
                "key" => path = Some(named(value, "key", ErrorCode::TypeMismatch.0)?),
                "spherical" => spherical = crate::value::Value::from_raw(value).is_true(),
                "minDistance" => least = Some(number(value, (7_555_701, "minDistance"), context)?),
                "maxDistance" => most = Some(number(value, (7_555_702, "maxDistance"), context)?),
                "distanceMultiplier" => {
                    let option = (ErrorCode::TypeMismatch.0, "distanceMultiplier");
                    output.multiplier = number(value, option, context)?;
                }
                "query" => {
                    let RawBsonRef::Document(query) = value else {
                        return failure(ErrorCode::TypeMismatch.0, "$geoNear query must be an object");
                    };
                    filter = Some((query.to_owned(), Matcher::parse(query, context)?));
                }
                "uniqueDocs" => {}
                "collation" => {
                    return failure(
                        40227,
                        "$geoNear has no 'collation'; it is an option of the command 'aggregate'",
                    );
                }
                option @ ("limit" | "num" | "start") => {
                    let code = match option {
                        "start" => 50856,
                        "num" => 50857,
                        _ => 50858,
                    };
                    return failure(
                        code,
                        format!(
                            "$geoNear no longer supports the '{}' parameter. Use a $limit stage",
                            option
                        ),
                    );
                }
                other => {
                    return failure(
                        ErrorCode::FailedToParse.0,
                        format!("unknown argument to $geoNear: {other}"),
                    );
                }
            }
        }
        if output.distance.is_none() {
            return failure(16606, "$geoNear requires a 'distanceField' option as a String");
        }
        let Some(near) = near else {
            return failure(5_860_400, "$geoNear requires a 'near' argument");
        };
        let Some(point) = near.get("").map_err(|_| Malformed)? else {
            // Such as a variable of a `$lookup`, which has no value yet.
            return Err(QueryError::not_implemented("a $geoNear whose 'near' is no constant"));
        };
        if !matches!(point, RawBsonRef::Document(_) | RawBsonRef::Array(_)) {
            let found = crate::value::Value::from_raw(point).type_name();
            return failure(
                5_860_401,
                format!("$geoNear 'near' must be a point, not of type {found}"),
            );
        }
        Ok(Self {
            written,
            filter,
            query: Arc::new(NearQuery {
                path,
                test: Arc::new(NearTest::of(point, spherical, least, most)?),
                output: Some(output),
            }),
        })
    }
}

/// The value of an option, an expression without fields, in a document under the empty name.
fn constant(
    raw: RawBsonRef<'_>,
    (code, option): (i32, &str),
    context: &ExpressionContext,
) -> Result<RawDocumentBuf, QueryError> {
    let expression = Expression::parse(raw, context)?;
    let mut read = Dependencies::default();
    expression.add_dependencies(&mut read);
    if read.whole_document || !read.paths.is_empty() {
        return failure(code, format!("$geoNear requires that '{option}' is a constant"));
    }
    if expression.reads_outer() {
        // A variable of a `$lookup`, which has no value yet.
        return Err(QueryError::not_implemented(
            "a $geoNear with an option that is no constant",
        ));
    }
    let value = expression
        .evaluate_on(&SharedDocument::empty(), &context.evaluation())?
        .into_owned();
    Ok(super::specification::stage_document("", &value))
}

fn number(raw: RawBsonRef<'_>, option: (i32, &str), context: &ExpressionContext) -> Result<f64, QueryError> {
    let (value, name) = (constant(raw, option, context)?, option.1);
    let number = RawDocument::get(&value, "")
        .ok()
        .flatten()
        .and_then(geometry::read::number);
    match number {
        Some(number) if number >= 0.0 => Ok(number),
        Some(_) => failure(ErrorCode::BadValue.0, format!("{name} must be nonnegative")),
        None => failure(ErrorCode::TypeMismatch.0, format!("$geoNear {name} must be a number")),
    }
}

fn named(raw: RawBsonRef<'_>, name: &str, code: i32) -> Result<Path, QueryError> {
    match raw {
        RawBsonRef::String(path) if !path.is_empty() => {
            FieldPath::parse(path)?;
            Ok(Path::new(path)?)
        }
        _ => failure(code, format!("$geoNear requires that '{name}' option is a String")),
    }
}
