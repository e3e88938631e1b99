//! Columns and the fields they become: names with dots are documents in documents.
//!
//! Invariant: each column stands at one leaf of the tree, and no leaf lies below another.

use crate::record::Record;
use crate::separated::split_line;
use crate::typed::{ColumnType, Grace};
use bson::{Bson, Document};
use std::collections::HashMap;

/// Levels of names with dots; the rest of a document's levels is for nobody, as values have none.
const DEPTH_MAX: usize = 100;

/// Whether names of columns have types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypedNames {
    /// `price.double()`: every column has one.
    Yes,
    /// All columns are [`ColumnType::Auto`].
    No,
}

/// The columns of a file, in its order.
#[derive(Clone, Debug)]
pub struct Columns {
    columns: Vec<Column>,
    root: Vec<(String, Node)>,
    grace: Grace,
    ignores_blanks: bool,
}

#[derive(Clone, Debug)]
struct Column {
    name: String,
    kind: ColumnType,
}

#[derive(Clone, Debug)]
enum Node {
    /// The value of a column.
    Leaf(usize),
    Fields(Vec<(String, Node)>),
    Items(Vec<Node>),
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Row {
    Document(Document),
    Skipped(String),
    /// [`Grace::Stop`].
    Stopped(String),
}

/// Fields while they are gathered.
#[derive(Default)]
struct Growing {
    fields: Vec<(String, Growing)>,
    places: HashMap<String, usize>,
    column: Option<usize>,
}

impl Columns {
    /// Columns of these names; an error says which name is impossible.
    pub fn new(names: &[String], typed: TypedNames, grace: Grace) -> Result<Self, String> {
        let mut columns = Vec::with_capacity(names.len());
        let mut root = Growing::default();
        for (index, name) in names.iter().enumerate() {
            let (name, kind) = match typed {
                TypedNames::Yes => typed_name(name)?,
                TypedNames::No => (name.as_str(), ColumnType::Auto),
            };
            root.add(name, index)?;
            columns.push(Column {
                name: name.to_owned(),
                kind,
            });
        }
        if columns.is_empty() {
            return Err("there are no columns".to_owned());
        }
        Ok(Self {
            columns,
            root: root.into_fields(),
            grace,
            ignores_blanks: false,
        })
    }

    /// Names in one text, separated by commas, as `--fields` has them.
    pub fn names(text: &str) -> Result<Vec<String>, String> {
        split_line(text)
    }

    /// Leaves out fields whose column is empty.
    pub fn ignoring_blanks(mut self) -> Self {
        self.ignores_blanks = true;
        self
    }

    /// Makes arrays of fields with the names 0, 1, 2 and so on.
    pub fn with_arrays(mut self) -> Result<Self, String> {
        for (name, node) in &mut self.root {
            node.make_arrays(name)?;
        }
        Ok(self)
    }

    pub(crate) fn row(&self, record: &Record) -> Result<Row, String> {
        let mut values = Vec::with_capacity(self.columns.len());
        for (index, bytes) in record.values().enumerate() {
            let text = std::str::from_utf8(bytes).map_err(|_| format!("column {} is no UTF-8", index + 1))?;
            if text.is_empty() && self.ignores_blanks {
                values.push(None);
                continue;
            }
            let Some(column) = self.columns.get(index) else {
                values.push(ColumnType::Auto.parse(text));
                continue;
            };
            let value = column.kind.parse(text);
            if value.is_some() {
                values.push(value);
                continue;
            }
            let fault = format!("column {}: {text:?} is not of its type", column.name);
            match self.grace {
                Grace::AutoCast => values.push(ColumnType::Auto.parse(text)),
                Grace::SkipField => values.push(None),
                Grace::SkipRow => return Ok(Row::Skipped(fault)),
                Grace::Stop => return Ok(Row::Stopped(fault)),
            }
        }
        let mut document = fields(&self.root, &mut values);
        for (index, value) in values.into_iter().enumerate().skip(self.columns.len()) {
            let name = format!("field{index}");
            if document.contains_key(&name) {
                return Err(format!(
                    "column {} has no name, and {name} is one of another",
                    index + 1
                ));
            }
            if let Some(value) = value {
                document.insert(name, value);
            }
        }
        Ok(Row::Document(document))
    }
}

fn fields(nodes: &[(String, Node)], values: &mut [Option<Bson>]) -> Document {
    nodes
        .iter()
        .filter_map(|(name, node)| Some((name.clone(), node.value(values)?)))
        .collect()
}

impl Node {
    /// The value, unless none of its columns has one.
    fn value(&self, values: &mut [Option<Bson>]) -> Option<Bson> {
        match self {
            Self::Leaf(column) => values.get_mut(*column)?.take(),
            Self::Fields(nodes) => {
                let document = fields(nodes, values);
                (!document.is_empty()).then_some(Bson::Document(document))
            }
            Self::Items(nodes) => {
                let items: Vec<Bson> = nodes.iter().filter_map(|node| node.value(values)).collect();
                (!items.is_empty()).then_some(Bson::Array(items))
            }
        }
    }

    fn make_arrays(&mut self, path: &str) -> Result<(), String> {
        let Self::Fields(nodes) = self else { return Ok(()) };
        for (name, node) in nodes.iter_mut() {
            node.make_arrays(&format!("{path}.{name}"))?;
        }
        let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
        if !nodes.iter().any(|(name, _)| is_number(name)) {
            return Ok(());
        }
        if let Some((place, (name, _))) = nodes
            .iter()
            .enumerate()
            .find(|(place, (name, _))| *name != place.to_string())
        {
            return Err(format!(
                "{path}.{name} stands where {path}.{place} should, in the order of an array"
            ));
        }
        *self = Self::Items(std::mem::take(nodes).into_iter().map(|(_, node)| node).collect());
        Ok(())
    }
}

impl Growing {
    fn add(&mut self, name: &str, column: usize) -> Result<(), String> {
        let mut at = self;
        for (depth, part) in name.split('.').enumerate() {
            if part.is_empty() || part.contains('\0') || depth >= DEPTH_MAX {
                return Err(format!("{name:?} is no name of a field"));
            }
            if at.column.is_some() {
                return Err(format!("{name:?} lies in a field that has a column of its own"));
            }
            let place = match at.places.get(part) {
                Some(place) => *place,
                None => {
                    at.places.insert(part.to_owned(), at.fields.len());
                    at.fields.push((part.to_owned(), Self::default()));
                    at.fields.len() - 1
                }
            };
            at = &mut at.fields[place].1;
        }
        if at.column.is_some() || !at.fields.is_empty() {
            return Err(format!("{name:?} has more than one column"));
        }
        at.column = Some(column);
        Ok(())
    }

    fn into_fields(self) -> Vec<(String, Node)> {
        let node = |growing: Self| match growing.column {
            Some(column) => Node::Leaf(column),
            None => Node::Fields(growing.into_fields()),
        };
        self.fields
            .into_iter()
            .map(|(name, growing)| (name, node(growing)))
            .collect()
    }
}

/// `NAME.TYPE(ARGUMENT)`. A layout may have brackets itself, so the first that has a type before it counts.
fn typed_name(text: &str) -> Result<(&str, ColumnType), String> {
    let inner = text
        .strip_suffix(')')
        .ok_or_else(|| format!("{text:?} has no type, such as .string()"))?;
    let mut fault = format!("{text:?} has no type, such as .string()");
    for (bracket, _) in inner.match_indices('(') {
        let Some((name, kind)) = inner[..bracket].rsplit_once('.') else {
            continue;
        };
        match ColumnType::named(kind, &inner[bracket + 1..]) {
            Ok(kind) => return Ok((name, kind)),
            Err(error) => fault = format!("{text:?}: {error}"),
        }
    }
    Err(fault)
}
