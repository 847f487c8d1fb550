//! `karmarkar_karp(seqlen, k_partitions)`: partitions of nearly equal sums.

mod kernel;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion_common::{Result, exec_err, internal_err, plan_err};
use datafusion_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion_expr::{Documentation, PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl};

use crate::argument::argument_types;
use crate::constants::Constants;
use crate::function::{Function, Kind, Param};

/// `karmarkar_karp`.
pub(crate) const KARMARKAR_KARP: Function = Function {
    name: "karmarkar_karp",
    family: "packing",
    version: 1,
    kind: Kind::Window(|| WindowUDF::new_from_impl(KarmarkarKarp::new())),
    params: &[
        Param::required("seqlen", "bigint", "Tokens of the row, or the work they cost."),
        Param::required("k_partitions", "bigint", "Number of partitions, a constant."),
        Param::optional("equal_size", "boolean", "false", "Whether all partitions get the same number of rows."),
    ],
    returns: "bigint",
    doc: "Returns the partition that balances a row with the others, by the largest differencing method.",
    definition: "\
Each row begins as a state of `k_partitions` sets, itself in one of them; with `equal_size` each `k_partitions` rows of neighboring lengths do, one in each. \
The two states with the largest spread (largest sum less smallest) become one, the largest set of the one with the smallest of the other and so on, until one \
state is left. Its sets are the partitions, from 0 by falling sum.\n\
\n\
Of equal spreads the state whose largest set is larger comes first; sets compare by sum, then number of rows, then by the place of their first row in the \
window's ORDER BY. verl's `get_seqlen_balanced_partitions` gives the same sets in the same order. The work that verl balances across ranks is \
`24576 * seqlen + seqlen * seqlen` (calculate_workload).\n\
\n\
- ORDER BY must be unique in the window's partition: without it ties have no defined order.\n\
- Fewer rows than partitions, with `equal_size` a number of rows that they do not divide, a negative and a null length are errors.\n\
- Takes O(n k log(n k)); the lengths of the window's partition are held in memory.",
    source: Some(
        "verl/utils/seqlen_balancing.py, karmarkar_karp; N. Karmarkar, R. Karp, The differencing method of set partitioning, 1982",
    ),
    slt: include_str!("karmarkar_karp.slt"),
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct KarmarkarKarp {
    signature: Signature,
    documentation: Documentation,
}

impl KarmarkarKarp {
    fn new() -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
            documentation: KARMARKAR_KARP.documentation(),
        }
    }
}

impl WindowUDFImpl for KarmarkarKarp {
    fn name(&self) -> &str {
        KARMARKAR_KARP.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        argument_types(&KARMARKAR_KARP, arg_types)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let constants = Constants::of_call(&KARMARKAR_KARP, 1, &args)?;
        let partitions = match constants.integer("k_partitions")?.map(usize::try_from) {
            Some(Ok(partitions)) if partitions > 0 => partitions,
            _ => return plan_err!("karmarkar_karp: k_partitions must be at least 1"),
        };
        Ok(Box::new(Balance { partitions, equal_size: constants.boolean("equal_size")? }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), DataType::Int64, false)))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

#[derive(Debug)]
struct Balance {
    partitions: usize,
    equal_size: bool,
}

impl PartitionEvaluator for Balance {
    fn evaluate_all(&mut self, values: &[ArrayRef], _num_rows: usize) -> Result<ArrayRef> {
        let Some(lengths) = values.first().and_then(|lengths| lengths.as_primitive_opt::<Int64Type>()) else {
            return internal_err!("karmarkar_karp without lengths");
        };
        let Self { partitions, equal_size } = *self;
        if lengths.null_count() > 0 {
            return exec_err!("karmarkar_karp: a length is null");
        }
        // The least is named, so that the message does not depend on the order of rows.
        if let Some(least) = lengths.values().iter().min().filter(|least| **least < 0) {
            return exec_err!("karmarkar_karp: length {least} is negative");
        }
        if lengths.len() < partitions {
            return exec_err!("karmarkar_karp: {} rows do not fill {partitions} partitions", lengths.len());
        }
        if equal_size && !lengths.len().is_multiple_of(partitions) {
            return exec_err!(
                "karmarkar_karp: {} rows do not make {partitions} partitions of equal size",
                lengths.len()
            );
        }
        Ok(Arc::new(Int64Array::from(kernel::largest_differencing(lengths.values(), partitions, equal_size))))
    }
}
