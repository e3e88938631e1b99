//! `$percentile` and `$median` over an array, or a number alone: exact, because all numbers are at hand.

use bson::RawBsonRef;

use super::operator::Computed;
use super::parse::Parser;
use super::{Evaluation, Node, Special};
use crate::accumulators::{Percentiles, parse_percentiles};
use crate::error::QueryError;

#[derive(Debug)]
struct PercentileNode {
    input: Node,
    percentiles: Percentiles,
}

impl Special for PercentileNode {
    fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Computed<'a> {
        let input = self.input.evaluate(evaluation)?;
        evaluation.context.steps(1 + input.steps())?;
        self.percentiles.of_value(&input, evaluation.context)
    }

    fn visit_children(&self, visit: &mut dyn FnMut(&Node)) {
        visit(&self.input);
    }
}

pub(super) fn parse(parser: &mut Parser<'_>, name: &str, raw: RawBsonRef<'_>) -> Result<Node, QueryError> {
    let (input, percentiles) = parse_percentiles(name, raw, parser.context)?;
    let input = parser.operand(input)?;
    Ok(Node::Special(Box::new(PercentileNode { input, percentiles })))
}
