//! A request, parsed: what the planner and the stages work from.

use super::allowed_indexes::same_key;
use super::request::{FindRequest, Hint};
use crate::QueryError;
use crate::evaluation::{EvaluationContext, StageMemory};
use crate::expression::ExpressionContext;
use crate::limits::BlockingLimits;
use crate::matcher::near::NearQuery;
use crate::matcher::{Matcher, TextTest};
use crate::metadata::MetadataNeeds;
use crate::project::Projection;
use crate::sort_field::SortField;
use crate::value::number::Number;
use crate::value::{SortNames, SortPart, Value};
use bson::RawDocument;
use collation::{Collation, Fault};
use engine::Direction;
use keys::FieldOrder;
use std::sync::Arc;
use storage::Operation;
use wire::ErrorCode;

/// The order of the results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Any.
    None,
    /// As stored.
    Natural(Direction),
    /// By values.
    Fields(Arc<[SortField]>),
}

impl Order {
    /// What it sorts by beside fields.
    pub(crate) fn metadata_needs(&self) -> MetadataNeeds {
        let Self::Fields(fields) = self else {
            return MetadataNeeds::default();
        };
        let needs = fields
            .iter()
            .filter_map(SortField::metadata_field)
            .map(MetadataNeeds::of);
        needs.fold(MetadataNeeds::default(), MetadataNeeds::and)
    }
}

/// What a client said about the access path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    None,
    Natural(Direction),
    /// Position among the collection's indexes.
    Index(usize),
}

/// A parsed request. `None` as a filter matches everything.
#[derive(Clone)]
pub(crate) struct Query {
    pub(crate) filter: Option<Arc<Matcher>>,
    pub(crate) order: Order,
    pub(crate) projection: Option<Arc<Projection>>,
    /// The fields that are looked at, where the rest of a document may be left out: an index that has them all is read
    /// alone.
    pub(crate) covering: Option<Arc<Projection>>,
    pub(crate) skip: u64,
    pub(crate) limit: Option<u64>,
    pub(crate) show_record_id: bool,
    pub(crate) return_key: bool,
    pub(crate) tailable: bool,
    pub(crate) for_write: bool,
    /// Only the number of rows counts: no document is read unless the filter needs it.
    pub(crate) count_only: bool,
    /// The order of strings; `None` is binary.
    pub(crate) collation: Option<Arc<Collation>>,
    pub(crate) blocking: BlockingLimits,
    /// Where matches are wanted in the order of their distance from a point.
    pub(crate) near: Option<Arc<NearQuery>>,
    /// What has to be known of rows beside their documents.
    pub(crate) needs: MetadataNeeds,
    /// Scripts run with it: the collection must not be locked meanwhile.
    pub(crate) runs_scripts: bool,
}

/// What a filter wants the order of distances from.
pub(crate) fn near_in(filter: Option<&Arc<Matcher>>) -> Option<Arc<NearQuery>> {
    let (path, test) = filter?.near()?;
    Some(Arc::new(NearQuery {
        path: Some(path.clone()),
        test: test.clone(),
        output: None,
    }))
}

impl Query {
    /// Parses the parts of a `find`.
    pub(crate) fn parse(request: &FindRequest<'_>, context: &ExpressionContext) -> Result<Self, QueryError> {
        let filter = parse_filter(request.filter, context)?;
        if !context.metadata_needs().is_empty() {
            return Err(QueryError::new(
                ErrorCode(40218),
                "a filter requires metadata, but none is available",
            ));
        }
        let projection = match request.projection.filter(|spec| !spec.is_empty()) {
            None => None,
            Some(spec) => {
                let projection = Projection::parse(spec, context)?;
                match request.return_key {
                    true => projection.beside_key(context)?.map(Arc::new),
                    false => Some(Arc::new(projection)),
                }
            }
        };
        let order = request.sort.map_or(Ok(Order::None), parse_sort)?;
        if request.tailable && !matches!(order, Order::None | Order::Natural(Direction::Forward)) {
            return Err(QueryError::bad_value(
                "cannot use tailable option with a sort other than {$natural: 1}",
            ));
        }
        check_natural_order(&order, request.hint)?;
        let near = near_in(filter.as_ref());
        let needs = context.metadata_needs().and(order.metadata_needs());
        Ok(Self {
            needs,
            runs_scripts: context.has_scripts(),
            filter,
            near,
            order,
            projection,
            covering: None,
            skip: request.skip,
            limit: request.limit,
            // A key stands alone.
            show_record_id: request.show_record_id && !request.return_key,
            return_key: request.return_key,
            tailable: request.tailable,
            for_write: request.for_write,
            count_only: false,
            collation: context.collation.clone(),
            blocking: request.blocking.clone(),
        })
    }

    /// What text is searched for.
    pub(crate) fn text(&self) -> Option<&Arc<TextTest>> {
        self.filter.as_ref().and_then(|filter| filter.text())
    }

    /// Says what a search means on a collection, and whether what is asked for can be known. Fails (146) when the
    /// search's scans would take more memory than the operation may.
    pub(crate) fn bind(&self, collection: &storage::Collection, op: &Operation) -> Result<(), QueryError> {
        let text = self.text();
        self.needs.check(text.is_some(), self.near.is_some())?;
        let index = collection.indexes().iter().find_map(|index| index.text());
        if let (Some(test), Some(spec)) = (text, index) {
            let evaluation = EvaluationContext::new(op);
            test.bind(spec, &evaluation)?;
            StageMemory::default().grow(&evaluation, test.bytes())?;
        }
        Ok(())
    }

    /// The rows that a sort or an early end has to look at: skipped ones and wanted ones.
    pub(crate) fn rows_wanted(&self) -> Option<u64> {
        self.limit.map(|limit| limit.saturating_add(self.skip))
    }
}

/// The filter as a matcher; `None` for an empty one.
pub(crate) fn parse_filter(
    filter: &RawDocument,
    context: &ExpressionContext,
) -> Result<Option<Arc<Matcher>>, QueryError> {
    if filter.is_empty() {
        Ok(None)
    } else {
        Ok(Some(Arc::new(Matcher::parse_ordered(filter, context)?)))
    }
}

/// MongoDB's code for what is wrong with a collation.
fn code_of(fault: Fault) -> ErrorCode {
    match fault {
        Fault::Type => ErrorCode::TypeMismatch,
        Fault::Value => ErrorCode::BadValue,
        Fault::UnknownField => ErrorCode(40415),
        Fault::NoLocale => ErrorCode(40414),
        Fault::Version => ErrorCode::IncompatibleCollationVersion,
        Fault::OptionsOfSimple => ErrorCode::FailedToParse,
        Fault::NotBuilt => ErrorCode::NotImplemented,
    }
}

/// The order of strings that a request asks for; an empty document asks for nothing, as none does: then it is that of
/// what is read.
pub fn collation_of(
    asked: Option<&RawDocument>,
    of_collection: Option<&Arc<Collation>>,
) -> Result<Option<Arc<Collation>>, QueryError> {
    match asked.filter(|collation| !collation.is_empty()) {
        None => Ok(of_collection.cloned()),
        Some(asked) => match Collation::parse(asked) {
            Ok(collation) => Ok(collation.map(Arc::new)),
            Err(error) => Err(QueryError::new(code_of(error.fault), error.message)),
        },
    }
}

/// `{a: 1, "b.c": -1}` or `{$natural: ±1}`.
pub(crate) fn parse_sort(sort: &RawDocument) -> Result<Order, QueryError> {
    let (mut fields, mut names) = (Vec::new(), SortNames::default());
    for element in sort.iter() {
        let (name, value) = element.map_err(|error| QueryError::bad_value(format!("malformed sort: {error}")))?;
        let name = name.as_str();
        match SortPart::parse(name, value)? {
            // What is never known orders nothing.
            SortPart::Metadata(field, _) if field.is_never_known() && !fields.is_empty() => {}
            SortPart::Metadata(field, _) => fields.push(SortField::of_metadata(field, name)),
            SortPart::Path(order) if name == "$natural" => {
                if !fields.is_empty() || sort.iter().count() > 1 {
                    return Err(QueryError::bad_value("Cannot include '$natural' in compound sort"));
                }
                return Ok(Order::Natural(direction(order)));
            }
            SortPart::Path(order) => {
                names.add(name)?;
                fields.push(SortField::of(name, order));
            }
        }
    }
    // With those that are no paths.
    if fields.len() > keys::key::FIELDS_MAX {
        return Err(QueryError::new(ErrorCode(13103), "too many fields in the sort"));
    }
    Ok(if fields.is_empty() {
        Order::None
    } else {
        Order::Fields(fields.into())
    })
}

fn direction(order: FieldOrder) -> Direction {
    match order {
        FieldOrder::Ascending => Direction::Forward,
        FieldOrder::Descending => Direction::Reverse,
    }
}

/// Whether a hint goes with an order as stored.
fn check_natural_order(order: &Order, hint: Option<Hint<'_>>) -> Result<(), QueryError> {
    let (Order::Natural(wanted), Some(hint)) = (order, hint) else {
        return Ok(());
    };
    let hinted = match hint {
        Hint::Key(key) if key.is_empty() => return Ok(()),
        Hint::Key(key) => natural_hint(key)?,
        Hint::Name(_) => None,
    };
    match hinted {
        None => Err(QueryError::bad_value("index hint not allowed with $natural sort order")),
        Some(direction) if direction != *wanted => Err(QueryError::bad_value(
            "$natural hint must be in the same direction as $natural sort order",
        )),
        Some(_) => Ok(()),
    }
}

/// The direction in which the records are hinted to be scanned.
fn natural_hint(key: &RawDocument) -> Result<Option<Direction>, QueryError> {
    let Ok(Some(natural)) = key.get("$natural") else {
        return Ok(None);
    };
    if key.into_iter().count() > 1 {
        return Err(QueryError::bad_value(
            "$natural cannot be hinted together with an index",
        ));
    }
    match Number::of(&Value::from_raw(natural)).map(Number::to_saturated_i64) {
        Some(1) => Ok(Some(Direction::Forward)),
        Some(-1) => Ok(Some(Direction::Reverse)),
        _ => Err(QueryError::bad_value("$natural hint must be 1 or -1")),
    }
}

/// Finds what the client hinted at among a collection's indexes.
pub(crate) fn resolve_hint(hint: Option<Hint<'_>>, collection: &storage::Collection) -> Result<Wish, QueryError> {
    let unknown = || {
        QueryError::bad_value(
            "error processing query: planner returned error :: caused by :: hint provided does not correspond to an existing index",
        )
    };
    let all = collection.access_paths().iter().enumerate();
    let mut visible = all.filter(|(_, index)| !index.hidden());
    let found = match hint {
        None => return Ok(Wish::None),
        Some(Hint::Name(name)) => visible.find(|(_, index)| index.name() == name),
        Some(Hint::Key(key)) if key.is_empty() => return Ok(Wish::None),
        Some(Hint::Key(key)) => {
            if let Some(direction) = natural_hint(key)? {
                return Ok(Wish::Natural(direction));
            }
            let mut of_key = visible.filter(|(_, index)| same_key(index.key(), key));
            let first = of_key.next();
            // One of them may be partial, and have not all that the other one has.
            if let (Some((_, first)), Some((_, second))) = (first, of_key.next()) {
                return Err(QueryError::new(
                    ErrorCode::IndexNotFound,
                    format!(
                        "error processing query: planner returned error :: caused by :: Hint matched multiple indexes, must \
                         hint by index name. Matched: {} and {}",
                        first.name(),
                        second.name()
                    ),
                ));
            }
            first
        }
    };
    let (position, _) = found.ok_or_else(unknown)?;
    Ok(Wish::Index(position))
}
