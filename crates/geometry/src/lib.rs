//! Geometry: shapes read from documents, which of them contain or meet which, distances, and coverings by cells that
//! indexes have as keys.
//!
//! - [`sphere`] has geometries on the unit sphere. Edges are the shortest arcs between their ends, as in S2, whose
//!   cells (crate `s2`) are the keys of `2dsphere` indexes.
//! - [`plane`] has points, boxes, circles and polygons of legacy coordinates, and the grid of `2d` indexes.
//! - [`read`] makes both from BSON: GeoJSON (RFC 7946) and legacy coordinate pairs.
//!
//! The crate knows no documents but the geometries in them, no indexes and no queries. Whatever runs through many edges
//! counts its [`Steps`], so that whoever waits can be told to end.

mod indexed;
pub mod plane;
pub mod read;
mod ring;
mod sign;
pub mod sphere;
mod tree;
mod validity;

pub use indexed::Indexed;
pub use read::GeometryError;

/// Radius of the earth, in metres: what distances of GeoJSON queries are divided by.
pub const EARTH_RADIUS_METRES: f64 = 6_378_100.0;

/// Counts work; an error ends it.
pub type Steps<'s, E> = dyn FnMut(usize) -> Result<(), E> + 's;

/// Steps that nobody counts.
pub fn uncounted(_: usize) -> Result<(), std::convert::Infallible> {
    Ok(())
}

#[cfg(test)]
mod tests;
