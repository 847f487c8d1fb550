//! The `DataFusion` side that the credit windows share.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, internal_err};
use datafusion_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion_expr::{
    Documentation, PartitionEvaluator, ReversedUDWF, Signature, Volatility, WindowUDF, WindowUDFImpl,
};

use super::call::{GroupWindow, evaluate_groups, is_column};
use super::groups::Groups;
use super::rule::Name;
use crate::argument::{check_count, constant_types};
use crate::constants::Constants;
use crate::function::Function;

/// A credit window by its plain name.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct CreditWindow {
    name: Name,
    signature: Signature,
    documentation: Documentation,
}

impl CreditWindow {
    pub(super) fn udwf(name: Name) -> WindowUDF {
        WindowUDF::new_from_impl(Self::new(name))
    }

    fn new(name: Name) -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        Self { name, signature, documentation: function(name).documentation() }
    }

    pub(super) fn name(&self) -> Name {
        self.name
    }
}

pub(super) fn function(name: Name) -> &'static Function {
    match name {
        Name::Grpo => &super::GRPO,
        Name::DrGrpo => &super::DR_GRPO,
        Name::Rloo => &super::RLOO,
        Name::Opo => &super::OPO,
        Name::MaxRl => &super::MAXRL,
        Name::GrpoPassK => &super::GRPO_PASSK,
        Name::ReMax => &super::REMAX,
        Name::Rae => &super::RAE,
        Name::RunningNorm => &super::RUNNING_NORM,
        Name::RolloutCount => &super::ROLLOUT_COUNT,
        Name::RolloutSum => &super::ROLLOUT_SUM,
        Name::RolloutMean => &super::ROLLOUT_MEAN,
        Name::RolloutStd => &super::ROLLOUT_STD,
        Name::RolloutRank => &super::ROLLOUT_RANK,
    }
}

impl WindowUDFImpl for CreditWindow {
    fn name(&self) -> &str {
        function(self.name).name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let function = function(self.name);
        check_count(function, arg_types.len())?;
        constant_types(function, 0, arg_types)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let function = function(self.name);
        let constants = Constants::beside_columns(function, |position| is_column(self.name, position), &args)?;
        let arguments = args.input_exprs().len();
        let columns = (0..arguments).filter(|position| is_column(self.name, *position)).collect();
        Ok(Box::new(CreditEvaluator { call: GroupWindow::new(self.name, &constants)?, columns }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), DataType::Float64, true)))
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        ReversedUDWF::Identical
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

/// Gives each row of a partition the credit of its rollout.
#[derive(Debug)]
pub(super) struct CreditEvaluator {
    call: GroupWindow,
    /// Positions of the arguments that are columns.
    columns: Vec<usize>,
}

impl PartitionEvaluator for CreditEvaluator {
    fn evaluate_all(&mut self, values: &[ArrayRef], num_rows: usize) -> Result<ArrayRef> {
        let columns: Vec<ArrayRef> = self.columns.iter().filter_map(|at| values.get(*at).map(Arc::clone)).collect();
        let results = evaluate_groups(&[(self.call, columns)], &Groups::one(num_rows)?)?;
        match results.into_iter().next() {
            Some(result) => Ok(result),
            None => internal_err!("a credit window gave no column"),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Float64Array, Int64Array, StringArray};
    use arrow::datatypes::Float64Type;
    use datafusion_common::ScalarValue;

    use super::*;

    fn evaluate(name: Name, given: Vec<ScalarValue>, rows: &[(Option<f64>, &str)]) -> Result<Vec<Option<f64>>> {
        let constants = Constants::new(function(name), 2, given)?;
        let mut evaluator = CreditEvaluator { call: GroupWindow::new(name, &constants)?, columns: vec![0, 1] };
        let rewards: Float64Array = rows.iter().map(|row| row.0).collect();
        let ids: StringArray = rows.iter().map(|row| Some(row.1)).collect();
        let credits = evaluator.evaluate_all(&[Arc::new(rewards), Arc::new(ids)], rows.len())?;
        Ok(credits.as_primitive::<Float64Type>().iter().collect())
    }

    #[test]
    fn plain_names_have_the_written_out_rules() {
        let rows = [(Some(1.0), "a"), (Some(0.0), "b"), (Some(0.0), "c"), (Some(0.0), "d"), (None, "e")];
        // 0.75 / (0.5 + 1e-6) and -0.25 / (0.5 + 1e-6), as Python computes them.
        let grpo = evaluate(Name::Grpo, vec![], &rows).unwrap();
        let (winner, loser) = (1.499_997_000_006, -0.499_999_000_002);
        for (credit, expected) in grpo.iter().flatten().zip([winner, loser, loser, loser]) {
            assert!((credit - expected).abs() < 1e-12);
        }
        assert_eq!(grpo[4], None);
        let dr_grpo = evaluate(Name::DrGrpo, vec![], &rows).unwrap();
        assert_eq!(dr_grpo, [Some(0.75), Some(-0.25), Some(-0.25), Some(-0.25), None]);
        let third = Some(-1.0 / 3.0);
        assert_eq!(evaluate(Name::Rloo, vec![], &rows).unwrap(), [Some(1.0), third, third, third, None]);
    }

    #[test]
    fn one_rollout_in_five_rows_votes_once() {
        // Rewards 1, 1, 1, 0 of four rollouts; the last one became five rows: the mean stays 0.75.
        let mut rows = vec![(Some(1.0), "a"), (Some(1.0), "b"), (Some(1.0), "c")];
        rows.extend([(Some(0.0), "d"); 5]);
        let credits = evaluate(Name::DrGrpo, vec![], &rows).unwrap();
        assert_eq!(credits, [[0.25; 3].as_slice(), &[-0.75; 5]].concat().into_iter().map(Some).collect::<Vec<_>>());
    }

    #[test]
    fn constants_replace_defaults_by_position() {
        let rows = [(Some(3.0), "a"), (Some(1.0), "b")];
        // ddof 0: std 1; eps 1: 1 / 2.
        let given = vec![ScalarValue::from(0i64), ScalarValue::from(1.0)];
        assert_eq!(evaluate(Name::Grpo, given, &rows).unwrap(), [Some(0.5), Some(-0.5)]);
        let given = vec![ScalarValue::from("value")];
        assert_eq!(evaluate(Name::Rloo, given, &rows[..1]).unwrap(), [Some(3.0)]);
    }

    #[test]
    fn wrong_constants_are_named() {
        let wrong = |name, given| evaluate(name, given, &[]).unwrap_err().to_string();
        assert!(wrong(Name::Grpo, vec![ScalarValue::from(2i64)]).contains("ddof must be 0 or 1, not 2"));
        assert!(wrong(Name::Grpo, vec![ScalarValue::from(1i64), ScalarValue::from(-1.0)]).contains("eps must be"));
        let word = wrong(Name::Rloo, vec![ScalarValue::from("one")]);
        assert!(word.contains("rloo: singleton must be one of 'zero', 'value', 'unit_std', 'null', 'error', not one"));
        let null = wrong(Name::Rloo, vec!["zero".into(), "zero".into(), ScalarValue::Null]);
        assert!(null.contains("missing must be one of"), "{null}");
    }

    #[test]
    fn wrong_types_are_named() {
        let udwf = CreditWindow::new(Name::Grpo);
        let wrong = |types: &[DataType]| udwf.coerce_types(types).unwrap_err().to_string();
        assert!(wrong(&[DataType::Utf8, DataType::Utf8]).contains("grpo: value must be a number, not Utf8"));
        assert!(wrong(&[DataType::Int32, DataType::Float64]).contains("grpo: rollout_id must be a string"));
        assert!(wrong(&[DataType::Int32]).contains("grpo takes grpo(value, rollout_id, ddof => 1, eps => 1e-6"));
        let coerced = udwf.coerce_types(&[DataType::Int32, DataType::Utf8View, DataType::Int32]).unwrap();
        assert_eq!(coerced, [DataType::Float64, DataType::Utf8, DataType::Int64]);
    }

    #[test]
    fn incomplete_group_names_its_members() {
        let given = ["zero", "zero", "skip", "error"].map(ScalarValue::from);
        let given = [given.as_slice(), &[ScalarValue::from(3i64), ScalarValue::from("error")]].concat();
        let error = evaluate(Name::Rloo, given, &[(Some(1.0), "a"), (Some(0.0), "b"), (None, "c")]).unwrap_err();
        assert!(error.to_string().contains("rloo: a group has 2 of 3 members: a, b"), "{error}");
    }

    #[test]
    fn another_type_is_our_fault() {
        let constants = Constants::new(function(Name::Rloo), 2, vec![]).unwrap();
        let call = GroupWindow::new(Name::Rloo, &constants).unwrap();
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let mut evaluator = CreditEvaluator { call, columns: vec![0, 1] };
        assert!(evaluator.evaluate_all(&[Arc::clone(&column), column], 1).is_err());
    }
}
