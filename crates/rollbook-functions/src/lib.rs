//! The SQL functions of Rollbook: token lists, encodings, credit windows, shaping, token credit, off-policy correction, evaluation,
//! objectives, packing, call chains and exact sums.
//!
//! A function is one folder, `src/<family>/<name>/`, with its definition, its code and its `.slt`; one line in the list of its family makes
//! it known. [`functions`] lists them all in the order of the documentation. They are ordinary `DataFusion` functions that read no table (what they need
//! of one, tokenizers and templates, is handed to them as [`Encodings`]), so
//! they work in any query and in any session they are registered in.
//!
//! Every function takes its arguments by position. Names (`eps => 1e-4`) and omitted arguments are resolved before planning, from the
//! [`Param`]s that a [`Function`] declares.

mod argument;
mod call_window;
mod constants;
mod credit;
mod double_double;
mod encodings;
mod evaluation;
mod exact;
mod function;
mod grouping;
mod lineage;
mod list_function;
mod number_lists;
mod objective;
mod off_policy;
mod packing;
mod shaping;
mod token_credit;
mod tokens;

#[cfg(test)]
mod tests;

pub use credit::{GroupWindow, Groups, evaluate_groups};
pub use encodings::Encodings;
pub use function::{Function, Kind, Param, aggregate_udfs, encoding_udfs, functions, scalar_udfs, window_udfs};
