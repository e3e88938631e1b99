//! Keys of indexes with a hashed field or with geometries.
//!
//! - Hashed: one key a document, the hash in the place of the value. No field may be in or be an array.
//! - `2dsphere`: each geometry gives the cells that cover it, each other field its values, arrays gone into; the keys
//!   are all combinations. Where a field has nothing it is null; a document with nothing in any geometry's field has
//!   no keys.
//! - Text: see [`super::text_terms`]; wildcards: [`super::wildcard`].
//! - `2d`: each point of the first field gives a number, other fields as with `2dsphere`; a document without a point
//!   has no keys.

use super::{ExtractError, FieldKind, KeyExtractor, KeySet, PathPart, Slot, Watch};
use crate::hash::hash_of;
use crate::key::encode_field;
use crate::raw::{Elements, Malformed, Value};
use bson::raw::{RawBsonRef, RawDocument};
use geometry::plane::{Grid, PlanePoint};
use geometry::{GeometryError, Steps, read};

/// What stands for a field in a key.
#[derive(Clone, Copy)]
pub(super) enum Piece<'a> {
    Value(Option<Value<'a>>),
    Number(i64),
    /// As it is, whatever the order of the index's strings.
    Plain(Value<'a>),
}

/// Steps of geometry between two looks of a watch.
const STEPS_PER_LOOK: usize = 1 << 16;

impl KeyExtractor {
    pub(super) fn extract_special(
        &self,
        kind: FieldKind,
        document: &RawDocument,
        out: &mut KeySet,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExtractError> {
        match kind {
            FieldKind::Value => Ok(()),
            FieldKind::Hashed => self.extract_hashed(document, out),
            FieldKind::Sphere => self.extract_sphere(document, out, watch),
            FieldKind::Plane(grid) => self.extract_plane(grid, document, out, watch),
            FieldKind::Term | FieldKind::Score => self.extract_text(document, out, watch),
            FieldKind::Path | FieldKind::Wildcard => self.extract_wildcard(document, out, watch),
        }
    }

    fn extract_hashed(&self, document: &RawDocument, out: &mut KeySet) -> Result<(), ExtractError> {
        let mut pieces = Vec::with_capacity(self.pattern.fields().len());
        let mut is_there = false;
        for (index, field) in self.pattern.fields().iter().enumerate() {
            let open = Slot::Open {
                document: document.as_bytes(),
                part: 0,
            };
            let value = match open.walk(field.parts()).map_err(|_| self.malformed(index))? {
                Slot::Value(value) => Some(value),
                Slot::InArray { .. } => {
                    return Err(ExtractError::HashedArray {
                        path: field.path().to_owned(),
                    });
                }
                Slot::Missing | Slot::Open { .. } => None,
            };
            is_there |= value.is_some();
            pieces.push(match field.kind() {
                FieldKind::Hashed => Piece::Number(hash_of(value.unwrap_or(Value::Null))),
                _ => Piece::Value(value),
            });
        }
        if is_there || !self.sparse {
            self.push_pieces(&pieces, out);
        }
        Ok(())
    }

    fn extract_sphere(
        &self,
        document: &RawDocument,
        out: &mut KeySet,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExtractError> {
        let mut choices = Vec::with_capacity(self.pattern.fields().len());
        let mut has_geometry = false;
        for (index, field) in self.pattern.fields().iter().enumerate() {
            if field.kind() != FieldKind::Sphere {
                choices.push(self.value_pieces(document, index, out)?);
                continue;
            }
            let mut values = Vec::new();
            let met_array = self.values_at(document.as_bytes(), index, &mut values)?;
            if matches!(values.as_slice(), [only] if is_nothing(only)) {
                values.clear();
            }
            let mut pieces = Vec::new();
            for value in values {
                has_geometry = true;
                let mut steps = counted(watch, out.bytes());
                let cells = with_raw(value, |value| cells_of(value, &mut steps))?.map_err(|error| {
                    ExtractError::NoGeometry {
                        path: field.path().to_owned(),
                        error,
                    }
                })?;
                pieces.extend(cells.into_iter().map(Piece::Number));
            }
            choices.push(self.noted(index, pieces, met_array, out));
        }
        if !has_geometry {
            out.multikey.clear();
            return Ok(());
        }
        self.push_combinations(&choices, &mut Vec::new(), out, watch)?;
        out.sort();
        Ok(())
    }

    /// Refuses polygons that a new document must not have where an index with geometries on the sphere holds it. Not a
    /// part of the extraction: what is stored may be older than the check, and keeps its keys.
    pub fn check_geometries(&self, document: &RawDocument, watch: &mut Watch<'_>) -> Result<(), ExtractError> {
        for (index, field) in self.pattern.fields().iter().enumerate() {
            if field.kind() != FieldKind::Sphere {
                continue;
            }
            let mut values = Vec::new();
            self.values_at(document.as_bytes(), index, &mut values)?;
            for value in values.into_iter().filter(|value| matches!(value, Value::Document(_))) {
                let mut steps = counted(watch, 0);
                let checked = with_raw(value, |value| match read::sphere(value, &mut steps)? {
                    Ok(geometry) => geometry.check_rings(&mut steps),
                    // The extraction tells of it.
                    Err(_) => Ok(Ok(())),
                })?;
                checked.map_err(|error| ExtractError::NoGeometry {
                    path: field.path().to_owned(),
                    error,
                })?;
            }
        }
        Ok(())
    }

    /// What a field that is no geometry has in the keys: what it would have in an index of its own.
    fn value_pieces<'a>(
        &self,
        document: &'a RawDocument,
        index: usize,
        out: &mut KeySet,
    ) -> Result<Vec<Piece<'a>>, ExtractError> {
        let (pieces, met_array) = self.pieces_at(document, index)?;
        Ok(self.noted(index, pieces, met_array, out))
    }

    /// The values of a field, arrays gone into, and whether there were any on the way.
    fn pieces_at<'a>(&self, document: &'a RawDocument, index: usize) -> Result<(Vec<Piece<'a>>, bool), ExtractError> {
        let mut pieces = Vec::new();
        let parts = self.pattern.fields()[index].parts();
        let met_array = collect(document.as_bytes(), parts, true, &mut |value| {
            pieces.push(Piece::Value(value))
        })
        .map_err(|_| self.malformed(index))?;
        Ok((pieces, met_array))
    }

    /// The pieces, null if there are none. Several of them, or an array on the way to them, are noted as if the first
    /// part of the path had met an array: nobody asks which it was.
    fn noted<'a>(&self, index: usize, mut pieces: Vec<Piece<'a>>, met_array: bool, out: &mut KeySet) -> Vec<Piece<'a>> {
        if met_array || pieces.len() > 1 {
            out.multikey.insert(index, 0);
        }
        if pieces.is_empty() {
            pieces.push(Piece::Value(None));
        }
        pieces
    }

    fn extract_plane(
        &self,
        grid: Grid,
        document: &RawDocument,
        out: &mut KeySet,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExtractError> {
        let mut values = Vec::new();
        let mut met_array = self.values_at(document.as_bytes(), 0, &mut values)?;
        let mut pieces = Vec::new();
        for value in values {
            let (Value::Array(bytes) | Value::Document(bytes)) = value else {
                continue;
            };
            let mut elements = Elements::new(bytes);
            let mut next = || elements.next().map_err(|_| self.malformed(0));
            let Some(first) = next()? else {
                continue;
            };
            if is_number(&first.value) {
                pieces.push(self.point_piece(grid, value)?);
                continue;
            }
            // Several points.
            let mut element = Some(first);
            while let Some(point) = element {
                if !is_empty(&point.value) {
                    met_array = true;
                    pieces.push(self.point_piece(grid, point.value)?);
                }
                element = next()?;
            }
        }
        if pieces.is_empty() {
            return Ok(());
        }
        let mut choices = vec![self.noted(0, pieces, met_array, out)];
        for index in 1..self.pattern.fields().len() {
            choices.push(self.value_pieces(document, index, out)?);
        }
        self.push_combinations(&choices, &mut Vec::new(), out, watch)?;
        out.sort();
        Ok(())
    }

    /// What stands for a point of a `2d` index.
    fn point_piece<'a>(&self, grid: Grid, value: Value<'_>) -> Result<Piece<'a>, ExtractError> {
        let path = || self.pattern.fields()[0].path().to_owned();
        let (Value::Array(bytes) | Value::Document(bytes)) = value else {
            return Err(ExtractError::NoLocation { path: path() });
        };
        let mut elements = Elements::new(bytes);
        let mut has_next = || {
            elements
                .next()
                .map_err(|_| self.malformed(0))
                .map(|next| next.is_some())
        };
        if has_next()? && !has_next()? {
            return Err(ExtractError::OneCoordinate { path: path() });
        }
        let point = with_raw(value, read::legacy).map_err(|error| ExtractError::NoPoint { path: path(), error })?;
        Ok(Piece::Number(key_in(grid, &point)?))
    }

    pub(super) fn push_pieces(&self, pieces: &[Piece<'_>], out: &mut KeySet) {
        let start = out.arena.len();
        for (index, piece) in pieces.iter().enumerate() {
            match piece {
                Piece::Value(value) => self.push_field(index, *value, out),
                Piece::Number(number) => self.push_field(index, Some(Value::Int64(*number)), out),
                Piece::Plain(value) => {
                    let order = self.ordering().field(index);
                    encode_field(&mut out.arena, Some(&mut out.types), *value, order, None);
                }
            }
        }
        out.finish_key(start);
    }

    /// All keys that take one piece of each field; `chosen` has those of the first fields.
    fn push_combinations<'a, C: AsRef<[Piece<'a>]>>(
        &self,
        choices: &[C],
        chosen: &mut Vec<Piece<'a>>,
        out: &mut KeySet,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExtractError> {
        let Some(pieces) = choices.get(chosen.len()) else {
            self.push_pieces(chosen, out);
            return out.look(watch);
        };
        for piece in pieces.as_ref() {
            chosen.push(*piece);
            self.push_combinations(choices, chosen, out, watch)?;
            chosen.pop();
        }
        Ok(())
    }

    /// Appends the geometries at a field's path, those of all elements where it goes through arrays; an array at its
    /// end is one. Says whether it went through arrays.
    fn values_at<'a>(&self, document: &'a [u8], index: usize, out: &mut Vec<Value<'a>>) -> Result<bool, ExtractError> {
        let parts = self.pattern.fields()[index].parts();
        collect(document, parts, false, &mut |value| out.extend(value)).map_err(|_| self.malformed(index))
    }
}

/// Gives the values at a path, `None` where it leads nowhere. With `spread` the elements of an array at its end, else
/// that array. Says whether the path led into an array.
fn collect<'a>(
    document: &'a [u8],
    parts: &[PathPart],
    spread: bool,
    give: &mut dyn FnMut(Option<Value<'a>>),
) -> Result<bool, Malformed> {
    let Some((part, rest)) = parts.split_first() else {
        return Ok(false);
    };
    match Elements::new(document).find(&part.name)? {
        Some(value) => collect_in(value, rest, spread, give),
        None => {
            give(None);
            Ok(false)
        }
    }
}

fn collect_in<'a>(
    value: Value<'a>,
    parts: &[PathPart],
    spread: bool,
    give: &mut dyn FnMut(Option<Value<'a>>),
) -> Result<bool, Malformed> {
    let array = match (value, parts.first()) {
        (Value::Array(array), Some(part)) => {
            if part.is_position
                && let Some(element) = Elements::new(array).find(&part.name)?
            {
                return collect_in(element, &parts[1..], spread, give);
            }
            array
        }
        (Value::Array(array), None) if spread => array,
        (value, None) => {
            give(Some(value));
            return Ok(false);
        }
        (Value::Document(document), Some(_)) => return collect(document, parts, spread, give),
        _ => {
            give(None);
            return Ok(false);
        }
    };
    let mut elements = Elements::new(array);
    let mut is_empty = true;
    while let Some(element) = elements.next()? {
        is_empty = false;
        match (element.value, parts.is_empty()) {
            (value, true) => give(Some(value)),
            (Value::Document(document), false) => drop(collect(document, parts, spread, give)?),
            _ => give(None),
        }
    }
    if is_empty {
        // As in other indexes: an empty array is undefined, a path through one leads nowhere.
        give(parts.is_empty().then_some(Value::Undefined));
    }
    Ok(true)
}

/// What counts as no geometry at all.
fn is_nothing(value: &Value<'_>) -> bool {
    matches!(value, Value::Null | Value::Undefined) || is_empty(value)
}

fn is_number(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Decimal(_)
    )
}

/// An array or a document without elements.
fn is_empty(value: &Value<'_>) -> bool {
    matches!(value, Value::Array(inner) | Value::Document(inner) if matches!(Elements::new(inner).next(), Ok(None)))
}

/// Steps that have `watch` look at so many bytes now and then.
fn counted(watch: &mut Watch<'_>, bytes: usize) -> impl FnMut(usize) -> Result<(), ExtractError> {
    let mut taken = 0;
    move |steps| {
        taken += steps;
        if taken < STEPS_PER_LOOK {
            return Ok(());
        }
        taken = 0;
        if watch(bytes) { Ok(()) } else { Err(ExtractError::Ended) }
    }
}

fn cells_of(
    value: RawBsonRef<'_>,
    steps: &mut Steps<'_, ExtractError>,
) -> Result<Result<Vec<i64>, GeometryError>, ExtractError> {
    match read::sphere(value, steps)? {
        Ok(geometry) if geometry.is_as_wound => Ok(Err(GeometryError::strict_winding())),
        Ok(geometry) => geometry.keys(steps).map(Ok),
        Err(error) => Ok(Err(error)),
    }
}

fn key_in(grid: Grid, point: &PlanePoint) -> Result<i64, ExtractError> {
    if !grid.contains(point) {
        let (low, high) = grid.interval();
        return Err(ExtractError::OutOfGrid { low, high });
    }
    Ok(grid.key(point))
}

/// Calls `f` with the value as the `bson` crate has it; what is neither a document nor an array is no geometry.
fn with_raw<T>(value: Value<'_>, f: impl FnOnce(RawBsonRef<'_>) -> T) -> T {
    match value {
        Value::Document(bytes) => match RawDocument::from_bytes(bytes) {
            Ok(document) => f(RawBsonRef::Document(document)),
            Err(_) => f(RawBsonRef::Undefined),
        },
        // The crate makes a reference to an array of a document only; such arrays are pairs of coordinates.
        Value::Array(bytes) => {
            let length = bytes.len() + 7;
            let mut around = Vec::with_capacity(length);
            around.extend_from_slice(&(length as u32).to_le_bytes());
            around.extend_from_slice(&[0x04, 0]);
            around.extend_from_slice(bytes);
            around.push(0);
            let document = RawDocument::from_bytes(&around).ok();
            f(document
                .and_then(|document| document.get("").ok().flatten())
                .unwrap_or(RawBsonRef::Undefined))
        }
        _ => f(RawBsonRef::Undefined),
    }
}
