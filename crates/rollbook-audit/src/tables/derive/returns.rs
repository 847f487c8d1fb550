//! Imported credits that differ from token to token: discounted sums of the token rewards.
//!
//! `G_t = r_t + gamma * G_next`, over the sampled tokens of a rollout in order, from its last call to its first. Tokens
//! that were not sampled pass the sum on as it is.

use rollbook_query::{Result, Session};

use super::inputs::{Derivation, each_row};
use super::{Found, shown};

/// Discounts that are tried where none is on record.
const GAMMAS: [f64; 11] = [1.0, 0.99, 0.95, 0.9, 0.999, 0.995, 0.98, 0.97, 0.8, 0.7, 0.5];
/// What float arithmetic may differ by.
const NEAR: f64 = 1e-5;
/// Findings of one discount that are kept.
const KEPT: usize = 10_000;

/// What stands between two sampled tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    /// The sum is carried across.
    Carried,
    /// The sum begins again.
    Reset,
}

/// One discount as it is followed from the last token to the first.
struct Trial {
    gamma: f64,
    gap: Gap,
    sum: f64,
    wrong: usize,
    found: Vec<Found>,
}

/// A call's tokens.
struct Tokens {
    rollout: String,
    call: String,
    values: Vec<Option<f64>>,
    rewards: Vec<Option<f64>>,
    mask: Option<Vec<bool>>,
}

/// Judges returns token by token.
pub(super) async fn judge(session: &Session, derivation: &Derivation, found: &mut Vec<Found>) -> Result<()> {
    let declared = derivation.parameter(&["gamma", "discount", "token_discount"]);
    let gammas = declared.map_or_else(|| GAMMAS.to_vec(), |gamma| vec![gamma]);
    let trial = |gamma: &f64, gap| Trial { gamma: *gamma, gap, sum: 0.0, wrong: 0, found: Vec::new() };
    let mut trials: Vec<Trial> = gammas.iter().map(|gamma| trial(gamma, Gap::Carried)).collect();
    trials.extend(gammas.iter().map(|gamma| trial(gamma, Gap::Reset)));
    let (mut last, mut judged, mut unknown) = (None, 0_usize, 0_usize);
    each_row(session, &query(derivation), |row| {
        let (Some(rollout), Some(call)) = (row.text("rollout_id")?, row.text("call_id")?) else {
            return Ok(());
        };
        let (Some(values), Some(rewards)) = (row.numbers("token_values")?, row.numbers("values")?) else {
            unknown += 1;
            return Ok(());
        };
        if last.as_ref() != Some(&rollout) {
            trials.iter_mut().for_each(|trial| trial.sum = 0.0);
            last = Some(rollout.clone());
        }
        let tokens = Tokens { rollout, call, values, rewards, mask: row.flags("sampled_mask")? };
        trials.iter_mut().for_each(|trial| trial.follow(&tokens, derivation));
        judged += 1;
        Ok(())
    })
    .await?;
    if judged == 0 || unknown > 0 {
        let remedy =
            format!("give the token rewards that credit {} was made from; {unknown} calls have none", derivation.name);
        found.push(Found::missing(&derivation.run, derivation.id.as_deref(), "token_signals.values", remedy));
        return Ok(());
    }
    conclude(derivation, declared.is_some(), trials, found);
    Ok(())
}

fn conclude(derivation: &Derivation, is_declared: bool, trials: Vec<Trial>, found: &mut Vec<Found>) {
    let fits = |gap: Gap| trials.iter().find(|trial| trial.gap == gap && trial.wrong == 0);
    if fits(Gap::Carried).is_some() {
        return;
    }
    let reset = fits(Gap::Reset).map(|trial| trial.gamma);
    let Some(gamma) = reset.or_else(|| is_declared.then(|| trials.first().map(|trial| trial.gamma)).flatten()) else {
        let remedy = format!("say the discount of credit {}; none that was tried gives its values", derivation.name);
        found.push(Found::missing(&derivation.run, derivation.id.as_deref(), "derivations.parameters.gamma", remedy));
        return;
    };
    let why = match reset {
        Some(gamma) => {
            format!("the sum begins again after tokens that were not sampled (gamma {gamma} gives all values so)")
        }
        None => format!("gamma is {gamma}"),
    };
    let right = trials.into_iter().find(|trial| trial.gap == Gap::Carried && trial.gamma.total_cmp(&gamma).is_eq());
    found.extend(right.into_iter().flat_map(|trial| trial.found).map(|mut one| {
        one.message = format!("{}: {why}", one.message);
        one
    }));
}

fn query(derivation: &Derivation) -> String {
    format!(
        "SELECT credit.rollout_id, credit.call_id, credit.token_values, call.sampled_mask, signal.values
         FROM (SELECT * FROM credits_history WHERE {} AND token_values IS NOT NULL) AS credit
         JOIN calls AS call ON call.run_id = credit.run_id AND call.call_id = credit.call_id
         LEFT JOIN (SELECT run_id, call_id, \"values\" FROM token_signals WHERE name LIKE '%reward%') AS signal
             ON signal.run_id = credit.run_id AND signal.call_id = credit.call_id
         ORDER BY credit.rollout_id, call.call_index DESC, credit.call_id DESC",
        derivation.condition()
    )
}

impl Trial {
    /// Follows a call from its last token to its first.
    fn follow(&mut self, tokens: &Tokens, derivation: &Derivation) {
        let mut first_wrong: Option<(usize, f64, usize)> = None;
        for at in (0..tokens.values.len()).rev() {
            let is_sampled = tokens.mask.as_ref().is_none_or(|mask| mask.get(at).copied().unwrap_or(false));
            if !is_sampled {
                if self.gap == Gap::Reset {
                    self.sum = 0.0;
                }
                continue;
            }
            let reward = tokens.rewards.get(at).copied().flatten().unwrap_or(0.0);
            self.sum = reward + self.gamma * self.sum;
            let stored = tokens.values.get(at).copied().flatten();
            let is_right = stored.is_some_and(|stored| (stored - self.sum).abs() <= NEAR * self.sum.abs().max(1.0));
            if !is_right {
                let wrong = first_wrong.map_or(1, |(_, _, wrong)| wrong + 1);
                first_wrong = Some((at, self.sum, wrong));
            }
        }
        if let Some((at, sum, wrong)) = first_wrong {
            self.wrong += wrong;
            if self.found.len() < KEPT {
                self.found.push(difference(tokens, derivation, at, sum, wrong));
            }
        }
    }
}

fn difference(tokens: &Tokens, derivation: &Derivation, at: usize, sum: f64, wrong: usize) -> Found {
    let observed = shown(tokens.values.get(at).copied().flatten());
    let expected = shown(Some(sum));
    Found {
        run: derivation.run.clone(),
        rollout: Some(tokens.rollout.clone()),
        call: Some(tokens.call.clone()),
        derivation: derivation.id.clone(),
        position: i32::try_from(at).ok(),
        length: Some(1),
        message: format!(
            "credit {} gives token {at} of call {} {observed}, and its return is {expected} ({wrong} tokens of the call differ)",
            derivation.name, tokens.call
        ),
        expected: Some(expected),
        observed: Some(observed),
        ..Found::default()
    }
}
