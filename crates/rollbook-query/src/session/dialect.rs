//! The SQL dialect: `DuckDB`'s, with `->` as the JSON operator and `=>` as the only named-argument sign.
//!
//! | text                | `DuckDB`         | here            |
//! |---------------------|------------------|-----------------|
//! | `request -> 'a'`    | lambda or JSON   | JSON            |
//! | `f(x = 1)`          | named argument   | a comparison    |
//! | `f(x := 1)`         | named argument   | an error        |
//! | `f(x => 1)`         | named argument   | named argument  |
//! | `$name`             | parameter        | parameter       |
//!
//! `a IS NOT DISTINCT FROM b AND c` ends at `b`, as everywhere; the parser by itself would read on to `c`.

use std::any::TypeId;

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::{Dialect, DuckDbDialect};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

/// The dialect of every statement, recipe and view.
#[derive(Debug, Default, Clone, Copy)]
pub struct RollbookDialect;

/// What it takes over from `DuckDB`; kept as a constant so that a change there reaches us.
const DUCKDB: DuckDbDialect = DuckDbDialect;

impl Dialect for RollbookDialect {
    /// Passes for `DuckDB` where the parser asks by type instead of by feature.
    fn dialect(&self) -> TypeId {
        TypeId::of::<DuckDbDialect>()
    }
    fn is_identifier_start(&self, ch: char) -> bool {
        DUCKDB.is_identifier_start(ch)
    }
    fn is_identifier_part(&self, ch: char) -> bool {
        DUCKDB.is_identifier_part(ch)
    }
    fn supports_trailing_commas(&self) -> bool {
        DUCKDB.supports_trailing_commas()
    }
    fn supports_filter_during_aggregation(&self) -> bool {
        DUCKDB.supports_filter_during_aggregation()
    }
    fn supports_group_by_expr(&self) -> bool {
        DUCKDB.supports_group_by_expr()
    }
    fn supports_bitwise_shift_operators(&self) -> bool {
        DUCKDB.supports_bitwise_shift_operators()
    }
    fn supports_dictionary_syntax(&self) -> bool {
        DUCKDB.supports_dictionary_syntax()
    }
    fn support_map_literal_syntax(&self) -> bool {
        DUCKDB.support_map_literal_syntax()
    }
    fn allow_extract_single_quotes(&self) -> bool {
        DUCKDB.allow_extract_single_quotes()
    }
    fn supports_array_typedef_with_brackets(&self) -> bool {
        DUCKDB.supports_array_typedef_with_brackets()
    }
    fn supports_from_first_select(&self) -> bool {
        DUCKDB.supports_from_first_select()
    }
    fn supports_order_by_all(&self) -> bool {
        DUCKDB.supports_order_by_all()
    }
    fn supports_select_wildcard_exclude(&self) -> bool {
        DUCKDB.supports_select_wildcard_exclude()
    }
    fn supports_select_wildcard_replace(&self) -> bool {
        DUCKDB.supports_select_wildcard_replace()
    }
    fn supports_notnull_operator(&self) -> bool {
        DUCKDB.supports_notnull_operator()
    }
    fn supports_comma_separated_trim(&self) -> bool {
        DUCKDB.supports_comma_separated_trim()
    }
    fn parse_infix(&self, parser: &mut Parser, left: &Expr, precedence: u8) -> Option<Result<Expr, ParserError>> {
        let build: fn(Box<Expr>, Box<Expr>) -> Expr =
            if parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]) {
                Expr::IsDistinctFrom
            } else if parser.parse_keywords(&[Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM]) {
                Expr::IsNotDistinctFrom
            } else {
                return None;
            };
        let right = parser.parse_subexpr(precedence);
        Some(right.map(|right| build(Box::new(left.clone()), Box::new(right))))
    }
    /// `$name` is a parameter, never the start of a dollar-quoted string.
    fn supports_dollar_placeholder(&self) -> bool {
        true
    }
}
