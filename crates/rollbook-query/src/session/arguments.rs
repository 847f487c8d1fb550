//! Named and omitted arguments put into position, for Rollbook's own functions.
//!
//! ```text
//! grpo(value, rollout_id, eps => 0)   ->   grpo(value, rollout_id, 1, 0, …)
//! ```
//!
//! Functions of other crates keep their call as it is written.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, ObjectName, TableFactor, VisitMut,
    VisitorMut,
};
use rollbook_functions::Param;

use super::literals::with_sql;
use super::parse::parse_expression;
use crate::error::{Error, Result};

/// The arguments of every function the pass knows, by its lower-case name.
pub(super) type Signatures = BTreeMap<String, &'static [Param]>;

/// The arguments of the shipped functions.
pub(super) fn shipped() -> Signatures {
    rollbook_functions::functions().iter().map(|function| (function.name.to_owned(), function.params)).collect()
}

/// Rewrites every call of a known function in a statement.
pub(super) fn complete(statement: &mut Statement, signatures: &Signatures) -> Result<()> {
    let mut visitor = Completion { signatures };
    match with_sql(statement, |sql| sql.visit(&mut visitor)) {
        Some(ControlFlow::Break(error)) => Err(error),
        _ => Ok(()),
    }
}

struct Completion<'a> {
    signatures: &'a Signatures,
}

impl VisitorMut for Completion<'_> {
    type Break = Error;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let Expr::Function(function) = expr else {
            return ControlFlow::Continue(());
        };
        let Some((name, params)) = self.known(&function.name) else {
            return ControlFlow::Continue(());
        };
        let list = match &mut function.args {
            FunctionArguments::List(list) => list,
            args @ FunctionArguments::None => {
                *args = FunctionArguments::List(FunctionArgumentList {
                    duplicate_treatment: None,
                    args: Vec::new(),
                    clauses: Vec::new(),
                });
                let FunctionArguments::List(list) = args else {
                    return ControlFlow::Continue(());
                };
                list
            }
            FunctionArguments::Subquery(_) => return ControlFlow::Continue(()),
        };
        arranged(&mut list.args, name, params)
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        let (name, args) = match factor {
            TableFactor::Table { name, args: Some(args), .. } => (&*name, &mut args.args),
            TableFactor::Function { name, args, .. } => (&*name, args),
            _ => return ControlFlow::Continue(()),
        };
        match self.known(name) {
            Some((name, params)) => arranged(args, name, params),
            None => ControlFlow::Continue(()),
        }
    }
}

impl<'a> Completion<'a> {
    fn known(&self, name: &ObjectName) -> Option<(&'a str, &'static [Param])> {
        let [part] = name.0.as_slice() else {
            return None;
        };
        let ident = part.as_ident()?;
        let (name, params) = self.signatures.get_key_value(&ident.value.to_lowercase())?;
        Some((name, params))
    }
}

fn arranged(args: &mut Vec<FunctionArg>, name: &str, params: &'static [Param]) -> ControlFlow<Error> {
    match arrange(std::mem::take(args), name, params) {
        Ok(done) => {
            *args = done;
            ControlFlow::Continue(())
        }
        Err(error) => ControlFlow::Break(error.with("function", signature(name, params))),
    }
}

/// Puts arguments into the order of the parameters and fills those left out.
fn arrange(args: Vec<FunctionArg>, name: &str, params: &'static [Param]) -> Result<Vec<FunctionArg>> {
    let mut places: Vec<Option<FunctionArg>> = vec![None; params.len()];
    let mut named = false;
    for (position, arg) in args.into_iter().enumerate() {
        let (place, value) = match arg {
            FunctionArg::Unnamed(value) if !named => (position, value),
            FunctionArg::Unnamed(_) => {
                return Err(Error::invalid(format!("{name}: a positional argument cannot follow a named one")));
            }
            FunctionArg::Named { name: ident, arg, .. } => {
                named = true;
                (find(params, &ident.value, name)?, arg)
            }
            FunctionArg::ExprNamed { name: expr, arg, .. } => {
                named = true;
                (find(params, &expr.to_string(), name)?, arg)
            }
        };
        let Some(slot) = places.get_mut(place) else {
            return Err(Error::invalid(format!("{name} takes at most {} arguments", params.len())));
        };
        if slot.replace(FunctionArg::Unnamed(value)).is_some() {
            return Err(Error::invalid(format!(
                "{name}: argument {} is given twice",
                params.get(place).map_or("", |param| param.name)
            )));
        }
    }
    let mut done = Vec::with_capacity(params.len());
    for (slot, param) in places.into_iter().zip(params) {
        done.push(match (slot, param.default) {
            (Some(arg), _) => arg,
            (None, Some(default)) => FunctionArg::Unnamed(FunctionArgExpr::Expr(parse_expression(default)?)),
            (None, None) => {
                return Err(Error::invalid(format!("{name}: argument {} is missing", param.name)));
            }
        });
    }
    Ok(done)
}

fn find(params: &[Param], wanted: &str, function: &str) -> Result<usize> {
    params.iter().position(|param| param.name.eq_ignore_ascii_case(wanted)).ok_or_else(|| {
        let names: Vec<&str> = params.iter().map(|param| param.name).collect();
        Error::invalid(format!("{function} has no argument {wanted}")).with("arguments", names.join(", "))
    })
}

fn signature(name: &str, params: &[Param]) -> String {
    let params = params.iter().map(|param| match param.default {
        Some(default) => format!("{} => {default}", param.name),
        None => param.name.to_owned(),
    });
    format!("{name}({})", params.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::parse::parse;

    const PARAMS: &[Param] = &[
        Param { name: "value", type_name: "double", default: None, doc: "" },
        Param { name: "eps", type_name: "double", default: Some("1e-6"), doc: "" },
        Param { name: "singleton", type_name: "double", default: Some("NULL"), doc: "" },
    ];

    fn run(sql: &str) -> Result<String> {
        let mut statement = parse(sql)?;
        let signatures = Signatures::from([("f".to_owned(), PARAMS)]);
        complete(&mut statement, &signatures)?;
        Ok(statement.to_string())
    }

    #[test]
    fn omitted_arguments_get_their_defaults() {
        assert_eq!(run("SELECT f(x) FROM t").unwrap(), "SELECT f(x, 1e-6, NULL) FROM t");
    }

    #[test]
    fn named_arguments_take_their_place_in_any_order() {
        let sql = run("SELECT f(singleton => 0, value => f(y)) OVER (PARTITION BY g) FROM t").unwrap();
        assert_eq!(sql, "SELECT f(f(y, 1e-6, NULL), 1e-6, 0) OVER (PARTITION BY g) FROM t");
    }

    #[test]
    fn other_functions_are_left_alone() {
        assert_eq!(run("SELECT g(a => 1, 2) FROM t").unwrap(), "SELECT g(a => 1, 2) FROM t");
    }

    #[test]
    fn an_equals_sign_is_a_comparison() {
        assert_eq!(run("SELECT f(value = 1) FROM t").unwrap(), "SELECT f(value = 1, 1e-6, NULL) FROM t");
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = run("SELECT f(x, epsilon => 1) FROM t").unwrap_err().to_string();
        assert!(error.contains("no argument epsilon") && error.contains("value, eps, singleton"), "{error}");
    }

    #[test]
    fn double_missing_and_misplaced_arguments_are_errors() {
        assert!(run("SELECT f(x, value => 1) FROM t").unwrap_err().to_string().contains("twice"));
        assert!(run("SELECT f(eps => 1) FROM t").unwrap_err().to_string().contains("missing"));
        assert!(run("SELECT f(value => 1, 2) FROM t").unwrap_err().to_string().contains("cannot follow"));
        assert!(run("SELECT f(1, 2, 3, 4) FROM t").unwrap_err().to_string().contains("at most 3"));
    }
}
