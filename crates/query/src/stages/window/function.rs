//! The functions of `output`: from BSON to what runs over each partition.

use std::sync::Arc;

use bson::{RawBsonRef, RawDocument};
use keys::Decimal;

use super::super::failure;
use super::calculus::{Covariance, Curve, Derivative, Integral};
use super::frame::{Frame, Window};
use super::partition::Partitions;
use super::position::{
    LinearFill, LinearRunner, LocfRunner, MovingAverage, MovingRunner, RankRunner, Ranking, Shift, ShiftRunner,
};
use super::sliding::{WindowState, state_of};
use super::{Runner, SortBy, parse_failure};
use crate::accumulators::{AccumulatorSpec, ArrayArgument};
use crate::error::QueryError;
use crate::expression::{Dependencies, Expression, ExpressionContext, TimeUnit};
use crate::stages::StageContext;
use crate::value::number::Number;
use crate::value::scan::Malformed;
use crate::value::{Comparer, Value};

/// One field of `output`.
#[derive(Debug)]
pub(super) struct Output {
    /// The path that is set.
    pub(super) path: String,
    function: Function,
    window: Window,
}

#[derive(Debug)]
enum Function {
    Accumulator(Arc<AccumulatorSpec>),
    Derivative(Arc<Curve>),
    Integral(Arc<Curve>),
    Covariance { pair: Arc<Expression>, sample: bool },
    Rank(Ranking),
    Shift(Arc<Shift>),
    Moving(Arc<MovingAverage>),
    Linear(Arc<LinearFill>),
    Locf(Arc<Expression>),
}

/// The accumulators that are window functions, too.
const ACCUMULATORS: &[&str] = &[
    "$addToSet",
    "$avg",
    "$bottom",
    "$bottomN",
    "$count",
    "$first",
    "$firstN",
    "$last",
    "$lastN",
    "$max",
    "$maxN",
    "$median",
    "$min",
    "$minN",
    "$percentile",
    "$push",
    "$stdDevPop",
    "$stdDevSamp",
    "$sum",
    "$top",
    "$topN",
];

/// What the functions of one stage are parsed with.
#[derive(Clone, Copy)]
pub(super) struct FunctionParser<'p> {
    pub(super) sort: Option<&'p SortBy>,
    pub(super) context: &'p ExpressionContext,
}

impl FunctionParser<'_> {
    /// Parses `{$function: argument, window: {…}}`.
    pub(super) fn parse(self, path: &str, raw: RawBsonRef<'_>) -> Result<Output, QueryError> {
        let RawBsonRef::Document(document) = raw else {
            return parse_failure(format!("The field '{path}' must be an object"));
        };
        let elements = document
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| Malformed)?;
        let Some((name, argument)) = elements.iter().find(|(name, _)| name.as_str().starts_with('$')) else {
            let found = elements.first().map_or("none", |(name, _)| name.as_str());
            return parse_failure(format!("Expected a $-prefixed window function, {found}"));
        };
        let name = name.as_str();
        let mut window = None;
        let mut extra = None;
        for (other, raw) in &elements {
            match other.as_str() {
                "window" => window = Some(*raw),
                other if other != name => extra = Some(other),
                _ => {}
            }
        }
        if let Some(ranking) = ranking(name) {
            return self.parse_rank(path, ranking, name, *argument, elements.len());
        }
        if !is_function(name) {
            return parse_failure(format!("Unrecognized window function, {name}"));
        }
        if let Some(extra) = extra {
            return parse_failure(format!("Window function {name} found an unknown argument: {extra}"));
        }
        if window.is_some() && matches!(name, "$shift" | "$expMovingAvg" | "$linearFill" | "$locf") {
            return parse_failure(format!("'window' field is not allowed in {name}"));
        }
        if window.is_none() && name == "$derivative" {
            return parse_failure("$derivative requires explicit window bounds");
        }
        if matches!(name, "$derivative" | "$integral") {
            self.single_sort(name)?;
        }
        let window = match window {
            Some(raw) => Window::parse(raw, self.sort, self.context)?,
            None => Window::WHOLE,
        };
        Ok(Output {
            path: path.to_owned(),
            function: self.parse_function(name, *argument)?,
            window,
        })
    }

    fn parse_rank(
        self,
        path: &str,
        ranking: Ranking,
        name: &str,
        argument: RawBsonRef<'_>,
        fields: usize,
    ) -> Result<Output, QueryError> {
        if fields != 1 {
            return failure(
                5371601,
                format!("Rank style window functions take no other arguments, got {name}"),
            );
        }
        if self.sort.and_then(SortBy::single).is_none() {
            return failure(
                5371602,
                format!("{name} must be specified with a top level sortBy expression with exactly one element"),
            );
        }
        if !matches!(argument, RawBsonRef::Document(empty) if empty.is_empty()) {
            return failure(5371603, format!("{name} must be specified with '{{}}' as the value"));
        }
        Ok(Output {
            path: path.to_owned(),
            function: Function::Rank(ranking),
            window: Window::WHOLE,
        })
    }

    fn parse_function(self, name: &str, raw: RawBsonRef<'_>) -> Result<Function, QueryError> {
        Ok(match name {
            "$derivative" => Function::Derivative(Arc::new(self.parse_curve(name, raw)?)),
            "$integral" => Function::Integral(Arc::new(self.parse_curve(name, raw)?)),
            "$covariancePop" | "$covarianceSamp" => Function::Covariance {
                pair: Arc::new(Expression::parse(raw, self.context)?),
                sample: name == "$covarianceSamp",
            },
            "$shift" => Function::Shift(Arc::new(self.parse_shift(raw)?)),
            "$expMovingAvg" => Function::Moving(Arc::new(self.parse_moving(raw)?)),
            "$linearFill" => Function::Linear(Arc::new(self.parse_linear(raw)?)),
            "$locf" => Function::Locf(Arc::new(Expression::parse(raw, self.context)?)),
            "$count" if !matches!(raw, RawBsonRef::Document(empty) if empty.is_empty()) => {
                return parse_failure("$count only accepts an empty object as input");
            }
            _ => {
                let spec = AccumulatorSpec::parse_argument(name, raw, ArrayArgument::Expression, self.context)?;
                if !spec.has_constant_n() {
                    return failure(
                        5787902,
                        format!("Value for 'n' of {name} must be a constant in a window"),
                    );
                }
                Function::Accumulator(Arc::new(spec))
            }
        })
    }

    fn single_sort(self, name: &str) -> Result<Expression, QueryError> {
        match self.sort.and_then(SortBy::expression) {
            Some(expression) => Ok(expression),
            None => parse_failure(format!("{name} requires a sortBy with a single field")),
        }
    }

    fn parse_curve(self, name: &str, raw: RawBsonRef<'_>) -> Result<Curve, QueryError> {
        let [input, unit] = fields_of(name, raw, ["input", "unit"])?;
        let unit = match unit {
            None => None,
            Some(RawBsonRef::String(text)) => {
                let unit = TimeUnit::parse(text)?;
                if unit.fixed_ms().is_none() {
                    return failure(5490710, "unit must be 'week' or smaller");
                }
                Some(unit)
            }
            Some(_) => return parse_failure(format!("{name} 'unit' must be a string")),
        };
        let Some(input) = input else {
            return parse_failure(format!("{name} requires an 'input' expression"));
        };
        Ok(Curve {
            input: Expression::parse(input, self.context)?,
            sort: self.single_sort(name)?,
            unit,
        })
    }

    fn parse_shift(self, raw: RawBsonRef<'_>) -> Result<Shift, QueryError> {
        if self.sort.is_none() {
            return parse_failure("$shift requires a sortBy");
        }
        let [output, by, default] = fields_of("$shift", raw, ["output", "by", "default"])?;
        let Some(output) = output else {
            return parse_failure("$shift requires an 'output' expression.");
        };
        let Some(by) = by else {
            return parse_failure("$shift requires 'by' as an integer value.");
        };
        let by = Value::from_raw(by);
        let Some(by) = Number::of(&by).and_then(Number::to_exact_i32) else {
            return parse_failure(format!(
                "'$shift:by' field must be an integer, but found by: {}",
                by.render()
            ));
        };
        let default = match default {
            None => Value::Null,
            Some(raw) => match Expression::parse(raw, self.context)?.as_constant() {
                Some(value) => value.clone(),
                None => return parse_failure("'$shift:default' expression must yield a constant value."),
            },
        };
        Ok(Shift {
            output: Expression::parse(output, self.context)?,
            by: i64::from(by),
            default,
        })
    }

    fn parse_moving(self, raw: RawBsonRef<'_>) -> Result<MovingAverage, QueryError> {
        let [input, n, alpha] = fields_of("$expMovingAvg", raw, ["input", "N", "alpha"])?;
        let wanted = "$expMovingAvg sub object must have exactly two fields: An 'input' field, and either an 'N' field or an 'alpha' field";
        let Some(input) = input else {
            return parse_failure(wanted);
        };
        if self.sort.is_none() {
            return parse_failure("$expMovingAvg requires an explicit 'sortBy'");
        }
        let number = |raw: RawBsonRef<'_>| Number::of(&Value::from_raw(raw));
        let alpha = match (n, alpha) {
            (Some(n), None) => match number(n).and_then(Number::to_exact_i64) {
                Some(n) if n > 0 => Number::Decimal(Decimal::from(2) / (Decimal::from(n) + Decimal::from(1))),
                _ => return parse_failure("'N' field must be an integer greater than 0"),
            },
            (None, Some(alpha)) => match number(alpha) {
                Some(alpha) if alpha.to_f64() > 0.0 && alpha.to_f64() < 1.0 => alpha,
                _ => return parse_failure("'alpha' must be between 0 and 1 (exclusive)"),
            },
            _ => return parse_failure(wanted),
        };
        Ok(MovingAverage {
            input: Expression::parse(input, self.context)?,
            alpha,
        })
    }

    fn parse_linear(self, raw: RawBsonRef<'_>) -> Result<LinearFill, QueryError> {
        let Some(sort) = self.sort.and_then(SortBy::expression) else {
            return failure(
                605001,
                "$linearFill must be specified with a top level sortBy expression with exactly one element",
            );
        };
        Ok(LinearFill {
            input: Expression::parse(raw, self.context)?,
            sort,
            comparer: self.context.comparer.clone(),
        })
    }
}

fn ranking(name: &str) -> Option<Ranking> {
    match name {
        "$rank" => Some(Ranking::Rank),
        "$denseRank" => Some(Ranking::Dense),
        "$documentNumber" => Some(Ranking::Number),
        _ => None,
    }
}

fn is_function(name: &str) -> bool {
    const OWN: [&str; 8] = [
        "$covariancePop",
        "$covarianceSamp",
        "$derivative",
        "$expMovingAvg",
        "$integral",
        "$linearFill",
        "$locf",
        "$shift",
    ];
    ACCUMULATORS.contains(&name) || OWN.contains(&name)
}

/// The named fields of a function's argument.
fn fields_of<'r, const N: usize>(
    name: &str,
    raw: RawBsonRef<'r>,
    names: [&str; N],
) -> Result<[Option<RawBsonRef<'r>>; N], QueryError> {
    let RawBsonRef::Document(document): RawBsonRef<'r> = raw else {
        return parse_failure(format!("Argument to {name} must be an object"));
    };
    let document: &'r RawDocument = document;
    let mut found = [None; N];
    for element in document {
        let (field, raw) = element.map_err(|_| Malformed)?;
        match names.iter().position(|known| *known == field.as_str()) {
            Some(index) => found[index] = Some(raw),
            None => return parse_failure(format!("{name} found an unknown argument: {}", field.as_str())),
        }
    }
    Ok(found)
}

impl Output {
    /// What runs over one partition.
    pub(super) fn start(&self, sort: Option<&Arc<SortBy>>, comparer: &Comparer) -> Box<dyn Runner> {
        let slides = self.window.slides();
        let over = |state: Box<dyn WindowState>| -> Box<dyn Runner> {
            Box::new(WindowRunner {
                frame: Frame::new(self.window.clone(), sort.map(Arc::as_ref), comparer),
                state,
                slides,
                entered: 0,
                left: 0,
                result: None,
            })
        };
        match &self.function {
            Function::Accumulator(spec) => over(state_of(spec, slides)),
            Function::Derivative(curve) => over(Box::new(Derivative::new(curve.clone()))),
            Function::Integral(curve) => over(Box::new(Integral::new(curve.clone()))),
            Function::Covariance { pair, sample } => over(Box::new(Covariance::new(pair.clone(), *sample))),
            Function::Rank(ranking) => Box::new(RankRunner {
                ranking: *ranking,
                sort: sort.cloned().unwrap_or_default(),
                last_key: Vec::new(),
                rank: 0,
            }),
            Function::Shift(shift) => Box::new(ShiftRunner(shift.clone())),
            Function::Moving(spec) => Box::new(MovingRunner {
                spec: spec.clone(),
                last: None,
            }),
            Function::Linear(spec) => Box::new(LinearRunner::new(spec.clone())),
            Function::Locf(input) => Box::new(LocfRunner {
                input: input.clone(),
                last: Value::Null,
            }),
        }
    }

    /// Adds the fields that it reads, but those sorted by.
    pub(super) fn add_dependencies(&self, dependencies: &mut Dependencies) {
        match &self.function {
            Function::Accumulator(spec) => spec.add_dependencies(dependencies),
            Function::Derivative(curve) | Function::Integral(curve) => curve.input.add_dependencies(dependencies),
            Function::Covariance { pair, .. } => pair.add_dependencies(dependencies),
            Function::Rank(_) => {}
            Function::Shift(shift) => shift.output.add_dependencies(dependencies),
            Function::Moving(spec) => spec.input.add_dependencies(dependencies),
            Function::Linear(spec) => spec.input.add_dependencies(dependencies),
            Function::Locf(input) => input.add_dependencies(dependencies),
        }
    }
}

/// A function over a window. The invariant: documents from `left` to `entered`, the latter not included, are in the
/// state.
struct WindowRunner {
    frame: Frame,
    state: Box<dyn WindowState>,
    slides: bool,
    entered: usize,
    left: usize,
    /// The result, for as long as the window stays the same.
    result: Option<Value<'static>>,
}

impl WindowRunner {
    /// The documents before `end` leave.
    fn leave(&mut self, end: usize, context: &StageContext<'_>) -> Result<(), QueryError> {
        while self.slides && self.left < end {
            context.evaluation.step()?;
            self.state.remove();
            self.left += 1;
            self.result = None;
        }
        Ok(())
    }
}

impl Runner for WindowRunner {
    fn next(
        &mut self,
        partitions: &mut Partitions,
        current: usize,
        context: &mut StageContext<'_>,
    ) -> Result<Value<'static>, QueryError> {
        let (low, high) = self.frame.advance(partitions, current, context)?;
        debug_assert!(
            low >= self.left && high >= self.entered.min(high),
            "a window has moved back"
        );
        if self.entered < low {
            self.leave(self.entered, context)?;
            // These have left before they came.
            (self.entered, self.left) = (low, low);
        }
        while self.entered < high {
            context.evaluation.step()?;
            let Some(document) = partitions.document(self.entered, context)? else {
                break;
            };
            context.evaluation.on(document.metadata());
            self.state.add(&document, context.evaluation)?;
            self.entered += 1;
            self.result = None;
        }
        // After the others have entered, as in MongoDB: the last digit of sums depends on it.
        self.leave(low.min(self.entered), context)?;
        if let Some(result) = &self.result {
            return Ok(result.clone());
        }
        let value = match self.state.value()? {
            Value::Missing => Value::Null,
            value => value,
        };
        context.evaluation.steps(value.steps())?;
        self.result = Some(value.clone());
        Ok(value)
    }

    fn needed_from(&self, _next: usize) -> usize {
        self.entered.min(self.frame.needed_from())
    }

    fn bytes(&self) -> usize {
        self.state.bytes() + self.frame.bytes()
    }
}
