//! What is known of a function besides its code: its arguments, its definition, its example.

use std::fmt;
use std::sync::Arc;

use datafusion_common::{Result, ScalarValue, internal_err};
use datafusion_expr::{AggregateUDF, DocSection, Documentation, ScalarUDF, WindowUDF};

use crate::encodings::Encodings;
use crate::{
    credit, encodings, evaluation, exact, grouping, lineage, objective, off_policy, packing, shaping, token_credit,
    tokens,
};

/// One argument of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// Name, as in `name => value`.
    pub name: &'static str,
    /// SQL type, for people.
    pub type_name: &'static str,
    /// SQL literal that stands in when the argument is omitted; `None` where it must be given. Arguments with a default are constants,
    /// unless they say that they may be columns.
    pub default: Option<&'static str>,
    /// One sentence.
    pub doc: &'static str,
}

impl Param {
    pub(crate) const fn required(name: &'static str, type_name: &'static str, doc: &'static str) -> Self {
        Self { name, type_name, default: None, doc }
    }

    pub(crate) const fn optional(
        name: &'static str,
        type_name: &'static str,
        default: &'static str,
        doc: &'static str,
    ) -> Self {
        Self { name, type_name, default: Some(default), doc }
    }

    /// Returns the default as a value: a number, a boolean, a string or null.
    pub(crate) fn default_value(&self) -> Result<ScalarValue> {
        let Some(literal) = self.default else {
            return internal_err!("argument {} has no default", self.name);
        };
        let text = literal.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        Ok(match (text, literal) {
            (Some(text), _) => ScalarValue::from(text),
            (None, "NULL") => ScalarValue::Null,
            (None, "true") => ScalarValue::Boolean(Some(true)),
            (None, "false") => ScalarValue::Boolean(Some(false)),
            (None, number) => match (number.parse::<i64>(), number.parse::<f64>()) {
                (Ok(integer), _) => ScalarValue::Int64(Some(integer)),
                (_, Ok(float)) => ScalarValue::Float64(Some(float)),
                _ => {
                    return internal_err!("default {number} of argument {} is no literal", self.name);
                }
            },
        })
    }
}

/// How a function is called, with the constructor of its `DataFusion` form.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// One result for each row, from that row.
    Scalar(fn() -> ScalarUDF),
    /// As scalar, with a tokenizer or a chat template that the caller's [`Encodings`] finds.
    Encoding(fn(Arc<dyn Encodings>) -> ScalarUDF),
    /// One result for each row, from the rows of its partition: needs `OVER (…)`. A frame has no meaning for these functions.
    Window(fn() -> WindowUDF),
    /// One result for each group of rows; with `OVER (…)` also a window function.
    Aggregate(fn() -> AggregateUDF),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scalar(_) | Self::Encoding(_) => "scalar",
            Self::Window(_) => "window",
            Self::Aggregate(_) => "aggregate",
        })
    }
}

/// A function as the documentation, the argument pass and the registries see it.
#[derive(Debug)]
pub struct Function {
    /// Name in SQL.
    pub name: &'static str,
    /// Folder it lives in and heading it is listed under.
    pub family: &'static str,
    /// Version of the definition: raised when the same arguments may give another result.
    pub version: u32,
    /// How it is called.
    pub kind: Kind,
    /// Arguments in order.
    pub params: &'static [Param],
    /// SQL type of the result, for people.
    pub returns: &'static str,
    /// What it gives, in one sentence.
    pub doc: &'static str,
    /// The definition in full: formula and every rule, as Markdown.
    pub definition: &'static str,
    /// Where the definition comes from, if from outside.
    pub source: Option<&'static str>,
    /// The function's test file; its first record is the example.
    pub slt: &'static str,
}

impl Function {
    /// Returns how a call is written: required arguments, then the others with their defaults.
    pub fn syntax(&self) -> String {
        let arguments = self.params.iter().map(|param| match param.default {
            None => param.name.to_owned(),
            Some(default) => format!("{} => {default}", param.name),
        });
        let over = if matches!(self.kind, Kind::Window(_)) { " OVER (…)" } else { "" };
        format!("{}({}){over}", self.name, arguments.collect::<Vec<_>>().join(", "))
    }

    /// Returns the SQL of the example, the first record of the test file.
    pub fn example_sql(&self) -> &'static str {
        self.example().0
    }

    /// Returns what the example gives, one row a line.
    pub fn example_result(&self) -> &'static str {
        self.example().1
    }

    fn example(&self) -> (&'static str, &'static str) {
        let record = self.slt.split("\n\n").find(|record| record.starts_with("query")).unwrap_or_default();
        let body = record.split_once('\n').map_or("", |(_, body)| body);
        let (sql, result) = body.split_once("\n----").unwrap_or((body, ""));
        (sql.trim(), result.trim())
    }

    /// Returns the page in `DataFusion`'s form.
    pub(crate) fn documentation(&self) -> Documentation {
        let section = DocSection { include: true, label: self.family, description: None };
        let mut page = Documentation::builder(section, self.doc, self.syntax()).with_sql_example(self.example_sql());
        for param in self.params {
            page = page.with_argument(param.name, param.doc);
        }
        page.build()
    }
}

/// Every function in the order of the documentation.
const FUNCTIONS: &[&Function] = &[
    &tokens::IS_EXTENSION,
    &tokens::COMMON_PREFIX_LEN,
    &tokens::TOKEN_DIGEST,
    &tokens::LENGTH,
    &tokens::SLICE,
    &tokens::REPEATED_NGRAMS,
    &encodings::ENCODE,
    &encodings::DECODE,
    &encodings::RENDER_CHAT,
    &credit::GRPO,
    &credit::DR_GRPO,
    &credit::RLOO,
    &credit::OPO,
    &credit::MAXRL,
    &credit::GRPO_PASSK,
    &credit::REMAX,
    &credit::RAE,
    &credit::RUNNING_NORM,
    &credit::ROLLOUT_COUNT,
    &credit::ROLLOUT_SUM,
    &credit::ROLLOUT_MEAN,
    &credit::ROLLOUT_STD,
    &credit::ROLLOUT_RANK,
    &shaping::CLIP,
    &shaping::BALANCE,
    &grouping::SIMILARITY_GROUP,
    &token_credit::TOKEN_MASK,
    &token_credit::PLACE_REWARD,
    &token_credit::TOKEN_RETURNS,
    &token_credit::GAE,
    &token_credit::BI_LEVEL_GAE,
    &token_credit::TURN_RETURNS,
    &token_credit::TURN_GAE,
    &token_credit::OPTIMAL_TOKEN_BASELINE,
    &token_credit::TOKEN_FILL,
    &token_credit::TOKEN_SUM,
    &token_credit::TOKEN_STEPS,
    &token_credit::TOKEN_MOMENTS,
    &token_credit::WHITEN,
    &off_policy::TOKEN_KL,
    &off_policy::IMPORTANCE_WEIGHTS,
    &off_policy::REJECTION_MASK,
    &off_policy::ROLLOUT_CORRECTION_METRICS,
    &evaluation::PASS_AT_K,
    &evaluation::PASS_AT_K_INTERVAL,
    &evaluation::PASS_HAT_K,
    &evaluation::PASS_HAT_K_INTERVAL,
    &evaluation::MEAN_INTERVAL,
    &objective::AGG_LOSS,
    &packing::PACK,
    &packing::KARMARKAR_KARP,
    &lineage::CHAIN_ROOT,
    &lineage::CHAIN_INDEX,
    &lineage::TRAJECTORY_ID,
    &exact::EXACT_SUM,
    &exact::EXACT_AVG,
];

/// Returns every function in the order of the documentation.
pub fn functions() -> &'static [&'static Function] {
    FUNCTIONS
}

/// Returns the scalar functions, ready to register.
pub fn scalar_udfs() -> Vec<Arc<ScalarUDF>> {
    let kinds = FUNCTIONS.iter().map(|function| function.kind);
    kinds.filter_map(|kind| if let Kind::Scalar(udf) = kind { Some(Arc::new(udf())) } else { None }).collect()
}

/// Returns the functions that need tokenizers or chat templates, ready to register.
pub fn encoding_udfs(encodings: &Arc<dyn Encodings>) -> Vec<Arc<ScalarUDF>> {
    let kinds = FUNCTIONS.iter().map(|function| function.kind);
    kinds
        .filter_map(
            |kind| if let Kind::Encoding(udf) = kind { Some(Arc::new(udf(Arc::clone(encodings)))) } else { None },
        )
        .collect()
}

/// Returns the window functions, ready to register.
pub fn window_udfs() -> Vec<Arc<WindowUDF>> {
    let kinds = FUNCTIONS.iter().map(|function| function.kind);
    kinds.filter_map(|kind| if let Kind::Window(udf) = kind { Some(Arc::new(udf())) } else { None }).collect()
}

/// Returns the aggregate functions, ready to register.
pub fn aggregate_udfs() -> Vec<Arc<AggregateUDF>> {
    let kinds = FUNCTIONS.iter().map(|function| function.kind);
    kinds.filter_map(|kind| if let Kind::Aggregate(udf) = kind { Some(Arc::new(udf())) } else { None }).collect()
}
