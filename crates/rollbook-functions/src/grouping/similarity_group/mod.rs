//! `similarity_group(text)`: rows whose texts are alike.

mod ratio;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, internal_err, plan_err};
use datafusion_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion_expr::{Documentation, PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl};

use crate::argument::argument_types;
use crate::constants::Constants;
use crate::function::{Function, Kind, Param};
use ratio::Text;

/// `similarity_group`.
pub(crate) const SIMILARITY_GROUP: Function = Function {
    name: "similarity_group",
    family: "grouping",
    version: 1,
    kind: Kind::Window(|| WindowUDF::new_from_impl(SimilarityGroup::new())),
    params: &[
        Param::required("text", "varchar", "What is compared, as the observation before a call."),
        Param::optional("similarity_thresh", "double", "0.95", "Least ratio of similar texts, above 0 and at most 1."),
    ],
    returns: "bigint",
    doc: "Returns the group of rows with similar texts that a row belongs to.",
    definition: "\
Rows come in the window's order. Each joins the first group whose first text is similar to its own, or begins a new one; groups count from 0 within the \
partition. Two texts are similar where Ratcliff and Obershelp's ratio, twice the characters of their matching blocks over the characters of both, is at least \
`similarity_thresh`: the ratio of Python's `difflib.SequenceMatcher(None, text, first)`, its autojunk included.\n\
\n\
- ORDER BY must be unique in the partition: which text is a group's first decides who joins it.\n\
- A null text belongs to no group and gets null; empty texts are similar to each other alone.\n\
- A threshold that is null, not above 0 or above 1 is an error.\n\
- Takes up to n^2 comparisons, each at worst the product of the texts' lengths; texts that are equal, or too unlike by length or characters, are decided at \
once. Compare digests for equality where that is enough.",
    source: Some("similarity grouping of GiGPO in verl-agent, gigpo/core_gigpo.py (build_step_group, are_similar)"),
    slt: include_str!("similarity_group.slt"),
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct SimilarityGroup {
    signature: Signature,
    documentation: Documentation,
}

impl SimilarityGroup {
    fn new() -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
            documentation: SIMILARITY_GROUP.documentation(),
        }
    }
}

impl WindowUDFImpl for SimilarityGroup {
    fn name(&self) -> &str {
        SIMILARITY_GROUP.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        argument_types(&SIMILARITY_GROUP, arg_types)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let threshold = Constants::of_call(&SIMILARITY_GROUP, 1, &args)?.number("similarity_thresh")?;
        if threshold > 0.0 && threshold <= 1.0 {
            return Ok(Box::new(Groups { threshold }));
        }
        plan_err!("similarity_group: similarity_thresh must lie above 0 and be at most 1, not {threshold}")
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), DataType::Int64, true)))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

#[derive(Debug)]
struct Groups {
    threshold: f64,
}

impl PartitionEvaluator for Groups {
    fn evaluate_all(&mut self, values: &[ArrayRef], _num_rows: usize) -> Result<ArrayRef> {
        let Some(texts) = values.first().and_then(|texts| texts.as_string_opt::<i32>()) else {
            return internal_err!("similarity_group without texts");
        };
        let mut firsts: Vec<Text> = Vec::new();
        let mut groups = Int64Array::builder(texts.len());
        for text in texts {
            let Some(text) = text.map(Text::of) else {
                groups.append_null();
                continue;
            };
            let known = firsts.iter().position(|first| first.is_similar(&text, self.threshold));
            let group = known.unwrap_or_else(|| {
                firsts.push(text);
                firsts.len() - 1
            });
            groups.append_option(i64::try_from(group).ok());
        }
        Ok(Arc::new(groups.finish()))
    }
}
