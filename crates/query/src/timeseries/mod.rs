//! Time-series collections: what a bucket looks like, and what stands in it for what is asked of measurements.
//!
//! A bucket is one document of `system.buckets.x`, in MongoDB's layout version 1 (`docs/formats/buckets.md`).
//! Those of versions 2 and 3 become such when they are inserted, and get the `_id` of their time. The stage
//! `$_internalUnpackBucket` makes measurements of buckets; the view that a time-series collection is begins with it.

mod bucket;
mod compressed;
mod extent;
mod index_keys;
mod names;
mod pushdown;
mod rows;
#[cfg(test)]
mod tests;

pub use bucket::{
    BUCKET_BYTES_MAX, BUCKET_DEPTH_MAX, BUCKET_MEASUREMENTS_MAX, Measurement, MetaValue, OpenBucket, adopted,
    check_bucket, id_of, measurements_in, with_ordered_meta,
};
pub use compressed::with_plain_columns;
pub use index_keys::{index_key_of_buckets, index_key_of_measurements, index_key_shown_as, is_shown_as};
pub(crate) use pushdown::{Fields, TimeBounds, rewrite, sort_on_buckets};
pub use pushdown::{bucket_filter, meta_filter, on_meta, reads_meta_alone};
#[cfg(test)]
pub(crate) use rows::measurements;
pub use rows::{PutMeasurement, each_measurement, rebuilt};
pub(crate) use rows::{UnpackPosition, Unpacking};

/// The stage that makes measurements of buckets.
pub const UNPACK: &str = "$_internalUnpackBucket";
