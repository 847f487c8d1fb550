//! `token_digest(tokens)`: the public digest of a list of tokens.

use std::cell::RefCell;
use std::sync::Arc;

use arrow::array::StringArray;
use arrow::datatypes::DataType;
use datafusion_common::utils::take_function_args;
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use rollbook_schema::digest::{AlikeLists, KeptList};

use super::lists::{TokenLists, result, rows, token_list_type};
use crate::argument::check_count;
use crate::function::{Function, Kind, Param};

/// `token_digest`.
pub(crate) const TOKEN_DIGEST: Function = Function {
    name: "token_digest",
    family: "tokens",
    version: 1,
    kind: Kind::Scalar(|| ScalarUDF::new_from_impl(TokenDigest::new())),
    params: &[Param::required("tokens", "integer[]", "A list of tokens.")],
    returns: "varchar",
    doc: "Returns the digest of a list of tokens, as `prompt_digest` and `output_digest` hold it.",
    definition: "\
`\"sha256:\" + hex(d_k)` with d_0 = 32 zero bytes and d_i = sha256(d_{i-1} ‖ block i), over blocks of 256 ids as int32 little-endian, the last one short. \
The empty list has the digest of 32 zero bytes.\n\
\n\
- Null where the list is null.\n\
- A null token, or one beyond int32, is an error.",
    source: None,
    slt: include_str!("token_digest.slt"),
};

/// Blocks from which on a list is worth keeping: more than outputs have, which would else take the place of prompts.
const LONG_BLOCKS: usize = 16;

thread_local! {
    /// The last long list of a batch. The next batch begins with a prompt that goes on from it; what does not is told by comparing.
    static LAST_LONG: RefCell<KeptList> = RefCell::default();
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TokenDigest {
    signature: Signature,
    documentation: Documentation,
}

impl TokenDigest {
    fn new() -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable), documentation: TOKEN_DIGEST.documentation() }
    }
}

impl ScalarUDFImpl for TokenDigest {
    fn name(&self) -> &str {
        TOKEN_DIGEST.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        check_count(&TOKEN_DIGEST, arg_types.len())?;
        let types = arg_types.iter().enumerate();
        types.map(|(position, given)| token_list_type(&TOKEN_DIGEST, position, given)).collect()
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [tokens] = take_function_args(self.name(), &args.args)?;
        let lists = TokenLists::of(tokens)?;
        let rows = 0..rows(args.number_rows, &args.args);
        let digests = LAST_LONG.with_borrow_mut(|last| {
            let mut alike = AlikeLists::after(last);
            let digests = rows.map(|row| Ok(lists.row(row)?.map(|tokens| alike.digest(tokens))));
            let digests = digests.collect::<Result<StringArray>>()?;
            let long = alike.keep(LONG_BLOCKS);
            if let Some(long) = long {
                *last = long;
            }
            Ok::<_, DataFusionError>(digests)
        })?;
        result(Arc::new(digests), &args.args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}
