//! The `DataFusion` side that the credit windows share.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion_common::{Result, exec_err, internal_err};
use datafusion_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion_expr::{
    Documentation, PartitionEvaluator, ReversedUDWF, Signature, Volatility, WindowUDF, WindowUDFImpl,
};

use super::kernel::{Fault, credits};
use super::members::members;
use super::rule::{Name, Rule};
use crate::argument::{check_count, constant_types, id_type, number_type};
use crate::constants::Constants;
use crate::function::Function;

/// Arguments that are columns; the others are constants.
const COLUMNS: usize = 2;

/// A credit window by its plain name.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct CreditWindow {
    name: Name,
    signature: Signature,
    documentation: Documentation,
}

impl CreditWindow {
    pub(super) fn udwf(name: Name) -> WindowUDF {
        WindowUDF::new_from_impl(Self {
            name,
            signature: Signature::user_defined(Volatility::Immutable),
            documentation: function(name).documentation(),
        })
    }
}

fn function(name: Name) -> &'static Function {
    match name {
        Name::Grpo => &super::GRPO,
        Name::DrGrpo => &super::DR_GRPO,
        Name::Rloo => &super::RLOO,
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
        let [value, rollout_id, ..] = arg_types else {
            return internal_err!("{} of {arg_types:?}", function.name);
        };
        let mut types = vec![number_type(function, 0, value)?, id_type(function, 1, rollout_id)?];
        types.extend(constant_types(function, COLUMNS, arg_types)?);
        Ok(types)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let function = function(self.name);
        let rule = Rule::of(self.name, &Constants::of_call(function, COLUMNS, &args)?)?;
        Ok(Box::new(CreditEvaluator { function: function.name, rule }))
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
    function: &'static str,
    rule: Rule,
}

impl PartitionEvaluator for CreditEvaluator {
    fn evaluate_all(&mut self, values: &[ArrayRef], num_rows: usize) -> Result<ArrayRef> {
        let [rewards, rollout_ids, ..] = values else {
            return internal_err!("{} over {} columns", self.function, values.len());
        };
        let (Some(rewards), Some(rollout_ids)) =
            (rewards.as_primitive_opt::<Float64Type>(), rollout_ids.as_string_opt::<i32>())
        else {
            return internal_err!("{} over {} and {}", self.function, rewards.data_type(), rollout_ids.data_type());
        };
        let members = members(self.function, rewards, rollout_ids, self.rule.missing, self.rule.not_a_number)?;
        let credits = match credits(&members.values, &self.rule) {
            Ok(credits) => credits,
            Err(Fault::Incomplete { members: found, group_size }) => {
                let ids = members.ids.join(", ");
                return exec_err!("{}: a group has {found} of {group_size} members: {ids}", self.function);
            }
            Err(Fault::Overflow { member }) => {
                let id = members.ids.get(member).copied().unwrap_or_default();
                return exec_err!("{}: the credit of rollout {id:?} is beyond a double", self.function);
            }
        };
        let of_row = members.of_row.iter().take(num_rows);
        let by_row: Float64Array = of_row.map(|member| member.and_then(|at| credits[at])).collect();
        Ok(Arc::new(by_row))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};
    use datafusion_common::ScalarValue;
    use proptest::prelude::*;

    use super::*;

    fn evaluate(name: Name, given: Vec<ScalarValue>, rows: &[(Option<f64>, &str)]) -> Result<Vec<Option<f64>>> {
        let rule = Rule::of(name, &Constants::new(function(name), COLUMNS, given)?)?;
        let rewards: Float64Array = rows.iter().map(|row| row.0).collect();
        let ids: StringArray = rows.iter().map(|row| Some(row.1)).collect();
        let mut evaluator = CreditEvaluator { function: function(name).name, rule };
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
        assert!(word.contains("rloo: singleton must be one of 'zero', 'value', 'null', not one"), "{word}");
        let null = vec![ScalarValue::Null];
        assert!(wrong(Name::Rloo, null).contains("singleton must be one of"));
    }

    #[test]
    fn wrong_types_are_named() {
        let udwf = CreditWindow { name: Name::Grpo, ..window() };
        let wrong = |types: &[DataType]| udwf.coerce_types(types).unwrap_err().to_string();
        assert!(wrong(&[DataType::Utf8, DataType::Utf8]).contains("grpo: value must be a number, not Utf8"));
        assert!(wrong(&[DataType::Int32, DataType::Float64]).contains("grpo: rollout_id must be a string"));
        assert!(wrong(&[DataType::Int32]).contains("grpo takes grpo(value, rollout_id, ddof => 1, eps => 1e-6"));
        let coerced = udwf.coerce_types(&[DataType::Int32, DataType::Utf8View, DataType::Int32]).unwrap();
        assert_eq!(coerced, [DataType::Float64, DataType::Utf8, DataType::Int64]);
    }

    fn window() -> CreditWindow {
        let signature = Signature::user_defined(Volatility::Immutable);
        CreditWindow { name: Name::Grpo, signature, documentation: super::super::GRPO.documentation() }
    }

    #[test]
    fn incomplete_group_names_its_members() {
        let given = ["zero", "zero", "skip", "error"].map(ScalarValue::from);
        let given = [given.as_slice(), &[ScalarValue::from(3i64), ScalarValue::from("error")]].concat();
        let error = evaluate(Name::Rloo, given, &[(Some(1.0), "a"), (Some(0.0), "b"), (None, "c")]).unwrap_err();
        assert!(error.to_string().contains("rloo: a group has 2 of 3 members: a, b"), "{error}");
    }

    proptest! {
        #[test]
        fn rows_may_come_in_any_order_and_repeat(
            rewards in proptest::collection::vec(proptest::option::of(-5.0..5.0f64), 1..10),
            repeats in proptest::collection::vec(0..10usize, 0..20),
            seed in any::<u64>(),
        ) {
            let names: Vec<String> = (0..rewards.len()).map(|at| format!("r{at}")).collect();
            let once: Vec<_> = rewards.iter().copied().zip(names.iter().map(String::as_str)).collect();
            let mut rows = once.clone();
            rows.extend(repeats.iter().map(|at| once[at % once.len()]));
            // A cheap shuffle: by a hash of the place.
            let mut places: Vec<usize> = (0..rows.len()).collect();
            places.sort_by_key(|place| (*place as u64 + 1).wrapping_mul(seed | 1).rotate_left(17));
            let shuffled: Vec<_> = places.iter().map(|place| rows[*place]).collect();
            for name in [Name::Grpo, Name::DrGrpo, Name::Rloo] {
                let plain = evaluate(name, vec![], &once).unwrap();
                let mixed = evaluate(name, vec![], &shuffled).unwrap();
                for (row, credit) in shuffled.iter().zip(mixed) {
                    let at = once.iter().position(|known| known.1 == row.1).unwrap();
                    prop_assert_eq!(credit.map(f64::to_bits), plain[at].map(f64::to_bits));
                }
            }
        }
    }

    #[test]
    fn another_type_is_our_fault() {
        let rule = Rule::of(Name::Rloo, &Constants::new(function(Name::Rloo), COLUMNS, vec![]).unwrap()).unwrap();
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let mut evaluator = CreditEvaluator { function: "rloo", rule };
        assert!(evaluator.evaluate_all(&[Arc::clone(&column), column], 1).is_err());
    }
}
