//! The n smallest or largest of a stream by key bytes: `$minN`, `$maxN`, `$top`, `$bottom`.
//!
//! Ties keep the order of arrival: of equal keys the earlier is the smaller. A key that is equal to the outermost one
//! that is kept does not take its place, at either end.

use std::collections::BTreeMap;

use super::encode::{StateReader, StateWriter};
use crate::error::QueryError;
use crate::value::Value;

/// Which end is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The n smallest keys.
    Smallest,
    /// The n largest keys.
    Largest,
}

/// A bounded, ordered collection.
#[derive(Debug)]
pub struct OrderedN {
    n: usize,
    kept: Kept,
    values: BTreeMap<(Vec<u8>, u64), Value<'static>>,
    arrivals: u64,
}

impl OrderedN {
    /// Keeps `n` values.
    pub fn new(n: usize, kept: Kept) -> Self {
        Self {
            n,
            kept,
            values: BTreeMap::new(),
            arrivals: 0,
        }
    }

    /// Offers a value; it is made only when it is kept. Returns the bytes grown by, roughly.
    pub fn add(&mut self, key: Vec<u8>, value: impl FnOnce() -> Value<'static>) -> usize {
        let key = (key, self.arrivals);
        self.arrivals += 1;
        let full = self.values.len() >= self.n;
        if full {
            let keeps = match self.kept {
                Kept::Smallest => self.values.last_key_value().is_some_and(|(last, _)| key.0 < last.0),
                Kept::Largest => self.values.first_key_value().is_some_and(|(first, _)| key.0 > first.0),
            };
            if !keeps {
                return 0;
            }
            match self.kept {
                Kept::Smallest => self.values.pop_last(),
                Kept::Largest => self.values.pop_first(),
            };
        }
        let value = value();
        let bytes = value.approximate_bytes() + key.0.len() + 32;
        self.values.insert(key, value);
        if full { 0 } else { bytes }
    }

    /// Offers another collection's values, as arriving later.
    pub fn merge(&mut self, other: OrderedN) {
        for ((key, _), value) in other.values {
            self.add(key, || value);
        }
    }

    pub(super) fn write(&self, out: &mut StateWriter<'_>) {
        out.u64(self.n as u64);
        out.u64(self.arrivals);
        out.u64(self.values.len() as u64);
        for ((key, arrival), value) in &self.values {
            out.bytes(key);
            out.u64(*arrival);
            out.value(value);
        }
    }

    /// Takes over what [`OrderedN::write`] has written of one that keeps the same end.
    pub(super) fn read(&mut self, bytes: &mut StateReader<'_>) -> Result<(), QueryError> {
        self.n = bytes.u64()? as usize;
        self.arrivals = bytes.u64()?;
        for _ in 0..bytes.count()? {
            let key = (bytes.bytes()?.to_vec(), bytes.u64()?);
            self.values.insert(key, bytes.value()?.into_owned());
        }
        Ok(())
    }

    /// The values in rising order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &Value<'static>> {
        self.values.values()
    }

    /// The values in rising order of their keys.
    pub fn into_values(self) -> Vec<Value<'static>> {
        self.values.into_values().collect()
    }
}
