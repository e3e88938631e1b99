//! States as bytes, for groups that do not stay in memory: what is read back goes on exactly where it was.
//!
//! Little-endian, in the order of the fields; a value is a document whose only field it is, an empty one where it is
//! missing. Only temporary files hold them, so that there are no versions.

use std::collections::{HashSet, VecDeque};

use bson::RawDocument;
use wire::ErrorCode;

use super::digest::Digest;
use super::ordered::OrderedN;
use super::script::ScriptState;
use super::state::MergedObjects;
use super::{Accumulator, AccumulatorSpec};
use crate::error::QueryError;
use crate::value::number::Sum;
use crate::value::{DocumentWriter, Value};

/// Appends the parts of states.
pub(crate) struct StateWriter<'b>(pub(crate) &'b mut Vec<u8>);

impl StateWriter<'_> {
    pub(crate) fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn f64(&mut self, number: f64) {
        self.u64(number.to_bits());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn value(&mut self, value: &Value<'_>) {
        let mut writer = DocumentWriter::new(self.0);
        writer.append("", value);
        writer.finish();
    }

    fn optional(&mut self, value: Option<&Value<'_>>) {
        self.u64(u64::from(value.is_some()));
        if let Some(value) = value {
            self.value(value);
        }
    }

    fn values<'v>(&mut self, values: impl ExactSizeIterator<Item = &'v Value<'static>>) {
        self.u64(values.len() as u64);
        values.for_each(|value| self.value(value));
    }

    fn sum(&mut self, sum: &Sum) {
        sum.to_parts().into_iter().for_each(|part| self.u64(part));
    }
}

/// Takes the parts of states off bytes that [`StateWriter`] has made.
pub(crate) struct StateReader<'b>(pub(crate) &'b [u8]);

/// The bytes are not what was written.
pub(crate) fn damaged() -> QueryError {
    QueryError::new(ErrorCode(31182), "a row of a temporary file is not one of a group")
}

impl<'b> StateReader<'b> {
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'b [u8], QueryError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, QueryError> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(damaged)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    /// The number of what follows, each of at least one byte.
    pub(crate) fn count(&mut self) -> Result<usize, QueryError> {
        let count = self.u64()?;
        match count <= self.0.len() as u64 {
            true => Ok(count as usize),
            false => Err(damaged()),
        }
    }

    pub(crate) fn f64(&mut self) -> Result<f64, QueryError> {
        Ok(f64::from_bits(self.u64()?))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'b [u8], QueryError> {
        let bytes = self.count()?;
        self.take(bytes)
    }

    pub(crate) fn value(&mut self) -> Result<Value<'b>, QueryError> {
        let length = self.0.first_chunk().ok_or_else(damaged)?;
        let length = usize::try_from(i32::from_le_bytes(*length)).map_err(|_| damaged())?;
        let document = RawDocument::from_bytes(self.take(length)?).map_err(|_| damaged())?;
        match document.iter().next() {
            None => Ok(Value::Missing),
            Some(Ok((_, value))) => Ok(Value::from_raw(value)),
            Some(Err(_)) => Err(damaged()),
        }
    }

    fn optional(&mut self) -> Result<Option<Value<'static>>, QueryError> {
        match self.u64()? {
            0 => Ok(None),
            _ => Ok(Some(self.value()?.into_owned())),
        }
    }

    fn values<C: FromIterator<Value<'static>>>(&mut self) -> Result<C, QueryError> {
        let count = self.count()?;
        (0..count).map(|_| Ok(self.value()?.into_owned())).collect()
    }

    fn sum(&mut self) -> Result<Sum, QueryError> {
        let mut parts = [0; Sum::PARTS];
        for part in &mut parts {
            *part = self.u64()?;
        }
        Sum::from_parts(parts).ok_or_else(damaged)
    }
}

impl Accumulator {
    /// Appends the state.
    pub(crate) fn write(&self, out: &mut StateWriter<'_>) {
        match self {
            Accumulator::Sum(sum) => out.sum(sum),
            Accumulator::Average(sum, count) => {
                out.sum(sum);
                out.u64(*count as u64);
            }
            Accumulator::Extreme(kept, ..) | Accumulator::First(kept) | Accumulator::Last(kept) => {
                out.optional(kept.as_ref());
            }
            Accumulator::Push(values) | Accumulator::Set(_, values) => out.values(values.iter()),
            // The group's own n, which the spec need not know.
            Accumulator::FirstN(n, values) => {
                out.u64(*n as u64);
                out.values(values.iter());
            }
            Accumulator::LastN(n, values) => {
                out.u64(*n as u64);
                out.values(values.iter());
            }
            Accumulator::Merge(merged) => out.values(merged.documents.iter()),
            Accumulator::StdDev(deviation, _) => deviation.write(out),
            Accumulator::Ordered(kept, _) => kept.write(out),
            Accumulator::Percentile(digest, _) => digest.write(out),
            Accumulator::Script(state) => state.write(out),
        }
    }
}

impl AccumulatorSpec {
    /// The state that [`Accumulator::write`] has written for this spec.
    pub(crate) fn read(&self, bytes: &mut StateReader<'_>) -> Result<Accumulator, QueryError> {
        let mut state = self.start();
        match &mut state {
            Accumulator::Sum(sum) => *sum = bytes.sum()?,
            Accumulator::Average(sum, count) => {
                *sum = bytes.sum()?;
                *count = bytes.u64()? as i64;
            }
            Accumulator::Extreme(kept, ..) | Accumulator::First(kept) | Accumulator::Last(kept) => {
                *kept = bytes.optional()?;
            }
            Accumulator::Push(values) => *values = bytes.values()?,
            Accumulator::FirstN(n, values) => (*n, *values) = (bytes.u64()? as usize, bytes.values()?),
            Accumulator::Set(seen, values) => {
                *values = bytes.values()?;
                *seen = self.keys_of(values);
            }
            Accumulator::LastN(n, values) => (*n, *values) = (bytes.u64()? as usize, bytes.values::<VecDeque<_>>()?),
            Accumulator::Merge(merged) => *merged = MergedObjects::of(bytes.values()?),
            Accumulator::StdDev(deviation, _) => deviation.read(bytes)?,
            Accumulator::Ordered(kept, _) => OrderedN::read(kept, bytes)?,
            Accumulator::Percentile(digest, _) => **digest = Digest::read(bytes)?,
            Accumulator::Script(state) => *state = ScriptState::read(bytes)?,
        }
        Ok(state)
    }

    /// The key bytes by which a set knows its values.
    fn keys_of(&self, values: &[Value<'_>]) -> HashSet<Box<[u8]>> {
        let key = |value| {
            let mut key = Vec::with_capacity(32);
            self.comparer().append_key(value, &mut key);
            key.into_boxed_slice()
        };
        values.iter().map(key).collect()
    }
}
