//! What an index may be that has more than values in its keys: hashes, geometries, text, wildcards.

use crate::error::{CommandError, Result};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document};
use keys::{FieldKind, IndexPattern};
use wire::ErrorCode;

/// Checks what an index with such a field may be, and adds the options that it always has.
pub(super) fn check_kind(pattern: &IndexPattern, options: &mut Document, has_collation: bool) -> Result<()> {
    let cannot = |message: &str| Err(CommandError::new(ErrorCode::CannotCreateIndex, message));
    let Some(kind) = pattern.special() else {
        return Ok(());
    };
    if options.contains_key("expireAfterSeconds") {
        return cannot(
            "TTL indexes have one field with dates: hashed, 2d, 2dsphere, text and wildcard indexes do not support TTL",
        );
    }
    if ["unique", "prepareUnique"]
        .iter()
        .any(|name| options.contains_key(name))
    {
        check_unique(pattern)?;
    }
    match kind {
        FieldKind::Hashed if has_collation => Err(CommandError::not_implemented("a hashed index with a collation")),
        FieldKind::Plane(_) if has_collation => {
            cannot("Index type '2d' does not support collation; give {collation: {locale: 'simple'}}")
        }
        FieldKind::Plane(grid) => check_interval(grid.interval(), options),
        FieldKind::Term if has_collation => {
            cannot("Index type 'text' does not support collation; give {collation: {locale: 'simple'}}")
        }
        FieldKind::Term if options.contains_key("clustering") => {
            Err(CommandError::not_implemented("a clustering text index"))
        }
        FieldKind::Sphere => {
            if !options.contains_key("2dsphereIndexVersion") {
                options.insert("2dsphereIndexVersion", 3);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether the coordinates of a `2d` index have an interval.
fn check_interval((low, high): (f64, f64), options: &Document) -> Result<()> {
    let bound = |name: &str, default: f64| match options.get(name) {
        Some(Bson::Int32(number)) => f64::from(*number),
        Some(Bson::Int64(number)) => *number as f64,
        Some(Bson::Double(number)) => *number,
        _ => default,
    };
    let (low, high) = (bound("min", low), bound("max", high));
    match low.is_finite() && high.is_finite() && low < high {
        true => Ok(()),
        false => Err(CommandError::new(
            ErrorCode::InvalidOptions,
            format!("region for hash must be valid and have positive area, but [{low}, {high}] was specified"),
        )),
    }
}

/// Whether an index can refuse duplicates.
pub(super) fn check_unique(pattern: &IndexPattern) -> Result<()> {
    match pattern.special() {
        Some(FieldKind::Hashed) => Err(CommandError::new(
            ErrorCode(16764),
            "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.",
        )),
        Some(FieldKind::Path) => Err(CommandError::new(
            ErrorCode::CannotCreateIndex,
            "Index type 'wildcard' does not support the unique option",
        )),
        _ => Ok(()),
    }
}

/// What a wildcard index may not be, and its projection.
pub(super) fn check_projection(key: &RawDocument, pattern: &IndexPattern, options: &Document) -> Result<()> {
    let projection = options.get_document("wildcardProjection").ok();
    if pattern.special() != Some(FieldKind::Path) {
        return match projection {
            None => Ok(()),
            Some(_) => Err(CommandError::bad_value(
                "The field 'wildcardProjection' is only allowed in a 'wildcard' index",
            )),
        };
    }
    if options.contains_key("sparse") {
        return Err(CommandError::new(
            ErrorCode::CannotCreateIndex,
            "Index type 'wildcard' does not support the sparse option",
        ));
    }
    if options.contains_key("clustering") {
        return Err(CommandError::not_implemented("a clustering wildcard index"));
    }
    let projection = projection.map(RawDocumentBuf::try_from).transpose()?;
    let mut names = key.into_iter().flatten().map(|(name, _)| name.as_str());
    let field = names.find(|name| name.ends_with("$**")).unwrap_or_default();
    let others: Vec<&str> = pattern
        .fields()
        .iter()
        .filter(|field| field.kind() == FieldKind::Value)
        .map(|field| field.path())
        .collect();
    keys::WildcardSpec::check_beside(field, projection.as_deref(), &others)
        .and_then(|()| keys::WildcardSpec::parse(field, projection.as_deref()))
        .map_err(|error| CommandError::new(ErrorCode(error.code), error.to_string()))?;
    projection.map_or(Ok(()), |projection| check_collisions(&projection, "", &mut Vec::new()))
}

/// Refuses a path that leads on from another one, or to where another one begins.
fn check_collisions(projection: &RawDocument, prefix: &str, seen: &mut Vec<String>) -> Result<()> {
    for (name, value) in projection.iter().flatten() {
        let path = format!("{prefix}{}", name.as_str());
        if let RawBsonRef::Document(below) = value {
            check_collisions(below, &format!("{path}."), seen)?;
            continue;
        }
        let collision = |code, rest: &str| {
            let message = format!("Path collision at {path}{rest}");
            Err(CommandError::new(ErrorCode(code), message))
        };
        for earlier in &*seen {
            let below = |path: &str, above: &str| Some(path.strip_prefix(above)?.strip_prefix('.')?.to_owned());
            if let Some(rest) = below(&path, earlier) {
                return collision(31249, &format!(" remaining portion {rest}"));
            }
            if path == *earlier || below(earlier, &path).is_some() {
                return collision(31250, "");
            }
        }
        seen.push(path);
    }
    Ok(())
}
