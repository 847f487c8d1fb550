//! `whiten(numbers, mask, moments, call_id)`: numbers less the mean of a batch, over its standard deviation.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion_common::{Result, exec_err, internal_err, plan_err};

use super::moments::Moments;
use super::read::{CALL_ID, MASK};
use super::token_moments::{moments_type, read_moments};
use crate::argument::{argument_types, wrong_type};
use crate::call_window::CallIds;
use crate::constants::Constants;
use crate::exact::scale;
use crate::function::{Function, Kind, Param};
use crate::list_function::{ListFunction, udf};
use crate::number_lists::{Lists, NOT_FINITE, NotFinite, Unselected, lists_of, number_list, shared_length};

/// `whiten`.
pub(crate) const WHITEN: Function = Function {
    name: "whiten",
    family: "token_credit",
    version: 1,
    kind: Kind::Scalar(|| udf(DEFINITION)),
    params: &[
        Param::required("numbers", "double[]", "A number of each token."),
        MASK,
        Param::required("moments", "struct", "What token_moments gives for the batch."),
        CALL_ID,
        Param::optional("ddof", "bigint", "1", "Subtracted from n in the variance: 1 (sample) or 0 (population)."),
        Param::optional("eps", "double", "1e-8", "Keeps the divisor from 0."),
        Param::optional(
            "eps_at",
            "varchar",
            "'variance'",
            "Where eps goes: 'variance' sqrt(var + eps), 'deviation' sqrt(var) + eps, 'floor' sqrt(max(var, eps)).",
        ),
        Param::optional("count_eps", "double", "0.0", "Added to n in the means, as verl does with 1e-8."),
        Param::optional("shift_mean", "boolean", "true", "Whether the result has mean 0; false adds the mean again."),
        Param::optional(
            "singleton",
            "varchar",
            "'zero'",
            "Where the batch has no more tokens than ddof: 'zero', 'null' or 'error'.",
        ),
        Param::optional(
            "unselected",
            "varchar",
            "'null'",
            "Result of a token that is not selected: 'null', 'zero' or 'whitened' (its value, whitened too).",
        ),
        NOT_FINITE,
    ],
    returns: "double[]",
    doc: "Returns numbers less the mean of the selected tokens of a batch, over their standard deviation.",
    definition: "\
`(x - mean) / sqrt(var + eps)` with `mean = sum / (n + count_eps)` and `var = sum((x - mean)^2) / (n + count_eps) * n / (n - ddof)` over the selected \
tokens that `moments` counted. verl's masked_whiten is `count_eps => 1e-8`; OpenRLHF's is `ddof => 0, eps_at => 'floor'`.\n\
\n\
- **Batch**: whatever `token_moments` ran over, usually the rows of a step: join it, or use it `OVER (PARTITION BY run_id, step)`.\n\
- **Null** stays null; null moments make the result null.\n\
- **Singleton**: with n <= ddof there is no variance (`singleton`; verl raises an error at one token).\n\
- **Zero variance**: 0 where the divisor is 0; numbers that differ by less than 2^-49 of their size count as equal.\n\
- **NaN or infinity** in a selected token is an error that names call and position (`not_finite`).\n\
- **Lengths**: lists that differ in length are an error that names the call.",
    source: Some("masked_whiten in verl/utils/torch_functional.py"),
    slt: include_str!("whiten.slt"),
};

const DEFINITION: ListFunction = ListFunction { function: &WHITEN, columns: 4, output: number_list, evaluate, types };

fn types(function: &'static Function, given: &[DataType]) -> Result<Vec<DataType>> {
    let mut types = argument_types(
        function,
        &[&given[..given.len().min(2)], &[DataType::Null], &given[given.len().min(3)..]].concat(),
    )?;
    match given.get(2) {
        Some(DataType::Struct(fields)) if fields.len() == 6 => types[2] = moments_type(),
        Some(DataType::Null) => types[2] = moments_type(),
        Some(other) => return wrong_type(function, 2, "what token_moments gives", other),
        None => {}
    }
    Ok(types)
}

/// Where eps goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EpsAt {
    Variance,
    Deviation,
    Floor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Singleton {
    Zero,
    Null,
    Error,
}

/// The constants of a call.
struct Rule {
    ddof: f64,
    eps: f64,
    eps_at: EpsAt,
    count_eps: f64,
    shift_mean: bool,
    singleton: Singleton,
}

impl Rule {
    fn of(constants: &Constants) -> Result<Self> {
        let ddof = match constants.integer("ddof")? {
            Some(0) => 0.0,
            Some(1) => 1.0,
            _ => return plan_err!("ddof must be 0 or 1"),
        };
        let (eps, count_eps) = (constants.number("eps")?, constants.number("count_eps")?);
        if !(eps >= 0.0 && eps.is_finite() && count_eps >= 0.0 && count_eps.is_finite()) {
            return plan_err!("eps and count_eps must be numbers of at least 0");
        }
        Ok(Self {
            ddof,
            eps,
            eps_at: constants.choice(
                "eps_at",
                &[("variance", EpsAt::Variance), ("deviation", EpsAt::Deviation), ("floor", EpsAt::Floor)],
            )?,
            count_eps,
            shift_mean: constants.boolean("shift_mean")?,
            singleton: constants.choice(
                "singleton",
                &[("zero", Singleton::Zero), ("null", Singleton::Null), ("error", Singleton::Error)],
            )?,
        })
    }

    fn divisor(&self, variance: f64, eps: f64) -> f64 {
        match self.eps_at {
            EpsAt::Variance => (variance + eps).sqrt(),
            EpsAt::Deviation => variance.sqrt() + eps,
            EpsAt::Floor => variance.max(eps).sqrt(),
        }
    }

    /// Returns what whitens the tokens of a batch; `None` where it has too few.
    fn whitening(&self, moments: &Moments) -> Option<Whitening> {
        let count = moments.count_as_double();
        if count <= self.ddof {
            return None;
        }
        let mut mean = moments.sum.over(count + self.count_eps);
        let differences = moments.squared_differences(mean);
        let mut variance = differences / (count + self.count_eps) * (count / (count - self.ddof));
        let mut exponent = moments.exponent;
        if exponent < 0 && self.eps > 0.0 {
            // Beside eps tiny numbers need no scaling, and eps scaled like them would be infinite.
            (mean, variance) = (scale(mean, exponent), scale(variance, 2 * exponent));
            exponent = 0;
        }
        let power = if self.eps_at == EpsAt::Deviation { exponent } else { 2 * exponent };
        let divisor = self.divisor(variance, scale(self.eps, -power));
        Some(Whitening { mean, divisor, exponent, shift: if self.shift_mean { 0.0 } else { scale(mean, exponent) } })
    }
}

struct Whitening {
    mean: f64,
    divisor: f64,
    exponent: i32,
    shift: f64,
}

impl Whitening {
    fn of(&self, value: f64) -> f64 {
        let difference = scale(value, -self.exponent) - self.mean;
        let whitened = if self.divisor == 0.0 { difference * 0.0 } else { difference / self.divisor };
        whitened + self.shift
    }
}

pub(super) fn evaluate(columns: &[ArrayRef], rows: usize, constants: &Constants) -> Result<ArrayRef> {
    let name = WHITEN.name;
    let [values, mask, moments, call_ids] = columns else {
        return internal_err!("{name} of {} columns", columns.len());
    };
    let rule = Rule::of(constants)?;
    let unselected = constants.choice(
        "unselected",
        &[("null", Unselected::Null), ("zero", Unselected::Zero), ("whitened", Unselected::Carry)],
    )?;
    let not_finite = NotFinite::of(constants)?;
    let ids = CallIds::of(call_ids)?;
    let moments = read_moments(moments)?;
    let (values, mask) = (Lists::of("numbers", values)?, Lists::of("mask", mask)?);
    let mut lengths = Vec::with_capacity(rows);
    let (mut items, mut selected, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    for (row, moments) in moments.iter().enumerate() {
        let Some(length) = shared_length(name, &ids.show(row), row, &[&mask, &values])? else {
            lengths.push(None);
            continue;
        };
        let Some(moments) = moments else {
            lengths.push(None);
            continue;
        };
        lengths.push(Some(length));
        selected.clear();
        numbers.clear();
        mask.select(row, length, &mut selected);
        let read = values.numbers(row, &selected, not_finite, &mut numbers);
        read.or_else(|fault| fault.error(name, &ids.show(row)))?;
        let whitening = rule.whitening(moments);
        if whitening.is_none() && rule.singleton == Singleton::Error {
            return exec_err!("{name}: the batch of call {} has {} tokens", ids.show(row), moments.count);
        }
        let whitened = |value: f64| match (&whitening, rule.singleton) {
            (Some(whitening), _) => whitening.of(value),
            (None, Singleton::Zero) => value * 0.0,
            (None, _) => f64::NAN,
        };
        items.extend(numbers.iter().zip(&selected).map(|(value, is_selected)| {
            if *is_selected || unselected == Unselected::Carry { whitened(*value) } else { unselected.value(0.0) }
        }));
    }
    lists_of(&lengths, items)
}
