//! Plans of queries by distance: the index with the geometries.
//!
//! `$near` names the field. `$geoNear` need not: then it is that of the only `2d` index that serves the point, and if
//! there is none that of the only `2dsphere` index.

use super::access::{Access, Unbounded};
use super::planner::{Candidate, Planner, Source};
use super::query::{Order, Wish};
use crate::QueryError;
use crate::matcher::near::NearQuery;
use crate::path::Path;
use keys::FieldKind;
use keys::extract::PatternField;
use wire::ErrorCode;

impl Planner<'_> {
    /// The index that finds what is near.
    pub(super) fn near(&self, near: &NearQuery, wish: &Wish) -> Result<Candidate, QueryError> {
        let not_allowed = |what: &str| QueryError::bad_value(format!("geoNear expression not allowed with {what}"));
        match () {
            () if matches!(wish, Wish::Natural(_)) => return Err(not_allowed("$natural hint")),
            () if matches!(self.query.order, Order::Natural(_)) => return Err(not_allowed("$natural sort order")),
            () if self.query.tailable => return Err(not_allowed("tailable cursors")),
            () => {}
        }
        let mut found: Vec<(Access, usize, &PatternField)> = Vec::new();
        for (position, index) in self.collection.access_paths().iter().enumerate() {
            let is_wanted = match wish {
                Wish::Index(hinted) => *hinted == position,
                Wish::None => self.considers(index),
                Wish::Natural(_) => false,
            };
            if !is_wanted || !self.holds_matches(index) {
                continue;
            }
            let serves = |field: &PatternField| {
                let on_path = near.path.as_ref().is_none_or(|path| path.text() == field.path());
                on_path && near.test.is_served_by(field.kind())
            };
            let mut fields = index.pattern().fields().iter().enumerate();
            let Some((place, field)) = fields.find(|(_, field)| serves(field)) else {
                continue;
            };
            let predicate = self.predicate(&[index], self.string_keys_of(index));
            found.extend(
                Access::of(index, &predicate.conjuncts(), Unbounded::Near).map(|access| (access, place, field)),
            );
        }
        let is_plane = |field: &PatternField| matches!(field.kind(), FieldKind::Plane(_));
        if near.path.is_none() && found.iter().any(|(_, _, field)| is_plane(field)) {
            found.retain(|(_, _, field)| is_plane(field));
        }
        if near.path.is_none() && found.iter().any(|(_, _, field)| field.path() != found[0].2.path()) {
            return Err(QueryError::new(
                ErrorCode::IndexNotFound,
                "There is more than one 2d or 2dsphere index; unsure which to use for $geoNear: its option 'key' says",
            ));
        }
        let is_geometry = |field: &PatternField| is_plane(field) || field.kind() == FieldKind::Sphere;
        let mut indexes = self.collection.access_paths().iter();
        if near.path.is_none() && !indexes.any(|index| index.pattern().fields().iter().any(is_geometry)) {
            return Err(QueryError::new(
                ErrorCode::IndexNotFound,
                "$geoNear requires a 2d or 2dsphere index, but none were found",
            ));
        }
        let best = found.into_iter().min_by_key(|(access, ..)| access.rank());
        let Some((access, place, field)) = best else {
            return Err(QueryError::new(
                ErrorCode::NoQueryExecutionPlans,
                format!(
                    "error processing query: ns={}Tree: {near}\n planner returned error :: caused by :: unable to find \
                     index for $geoNear query",
                    self.collection.namespace()
                ),
            ));
        };
        let sorted = !matches!(self.query.order, Order::Fields(_));
        Ok(Candidate::of(
            Source::Near(access, place, Path::new(field.path())?),
            sorted,
        ))
    }
}
