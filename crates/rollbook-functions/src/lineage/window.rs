//! The `DataFusion` side that the chain functions share.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, exec_err, internal_err};
use datafusion_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion_expr::{Documentation, PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl};

use super::chains::chains;
use crate::argument::{boolean_type, check_count, id_type};
use crate::function::Function;

/// What is told of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Told {
    Root,
    Index,
}

/// A chain function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ChainWindow {
    told: Told,
    signature: Signature,
    documentation: Documentation,
}

fn function(told: Told) -> &'static Function {
    match told {
        Told::Root => &super::CHAIN_ROOT,
        Told::Index => &super::CHAIN_INDEX,
    }
}

impl ChainWindow {
    pub(super) fn udwf(told: Told) -> WindowUDF {
        WindowUDF::new_from_impl(Self {
            told,
            signature: Signature::user_defined(Volatility::Immutable),
            documentation: function(told).documentation(),
        })
    }
}

impl WindowUDFImpl for ChainWindow {
    fn name(&self) -> &str {
        function(self.told).name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let function = function(self.told);
        check_count(function, arg_types.len())?;
        let types = arg_types.iter().enumerate().map(|(position, given)| match position {
            2 => boolean_type(function, position, given),
            _ => id_type(function, position, given),
        });
        types.collect()
    }

    fn partition_evaluator(&self, _args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(ChainEvaluator { told: self.told }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let data_type = match self.told {
            Told::Root => DataType::Utf8,
            Told::Index => DataType::Int32,
        };
        Ok(Arc::new(Field::new(args.name(), data_type, false)))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

#[derive(Debug)]
struct ChainEvaluator {
    told: Told,
}

impl PartitionEvaluator for ChainEvaluator {
    fn evaluate_all(&mut self, values: &[ArrayRef], _num_rows: usize) -> Result<ArrayRef> {
        let name = function(self.told).name;
        let [call_ids, parents, extends] = values else {
            return internal_err!("{name} over {} columns", values.len());
        };
        let (Some(call_ids), Some(parents), Some(extends)) =
            (call_ids.as_string_opt::<i32>(), parents.as_string_opt::<i32>(), extends.as_boolean_opt())
        else {
            return internal_err!("{name} over columns of other types");
        };
        if call_ids.null_count() > 0 {
            return exec_err!("{name}: a call_id is null");
        }
        let links = chains(call_ids, parents, extends);
        Ok(match self.told {
            Told::Root => Arc::new(links.iter().map(|link| Some(call_ids.value(link.root))).collect::<StringArray>()),
            Told::Index => Arc::new(links.iter().map(|link| Some(link.index)).collect::<Int32Array>()),
        })
    }
}
