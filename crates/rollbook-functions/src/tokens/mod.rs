//! Token lists: prefixes, digests, slices.
//!
//! A list argument matches by the type of its values, whatever its item is called and whether it may be null: `List` and `LargeList` of
//! int32 are read in place, other integer lists (a literal `[1, 2]` is one of int64) are cast, an id beyond int32 is an error.

mod common_prefix_len;
mod is_extension;
mod length;
mod lists;
mod prefix;
mod repeated_ngrams;
mod slice;
mod token_digest;

pub(crate) use common_prefix_len::COMMON_PREFIX_LEN;
pub(crate) use is_extension::IS_EXTENSION;
pub(crate) use length::LENGTH;
pub(crate) use lists::{TokenLists, result, rows, token_list_type};
pub(crate) use repeated_ngrams::REPEATED_NGRAMS;
pub(crate) use slice::SLICE;
pub(crate) use token_digest::TOKEN_DIGEST;
