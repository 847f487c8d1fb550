//! Imported credits that differ from token to token: discounted sums of the token rewards, and generalized advantages.
//!
//! ```text
//! return   G_t = r_t + gamma * G_next
//! GAE      A_t = r_t + gamma * V_next - V_t + gamma * lambda * A_next        (Schulman et al. 2016, V from token_signals `value`)
//! ```
//!
//! Both run over the sampled tokens of a rollout in order, from its last call to its first; tokens that were not sampled pass the
//! sum on as it is. Advantages may be whitened afterwards: then they lie on a line over those of the formula. Where no reward is
//! given token by token, the rollout's reward stands at its last sampled token.

use rollbook_query::{Result, Session};

use super::inputs::{Derivation, each_row};
use super::{Found, shown};
use crate::tables::quoted;

/// Discounts that are tried where none is on record.
pub(super) const GAMMAS: [f64; 11] = [1.0, 0.99, 0.95, 0.9, 0.999, 0.995, 0.98, 0.97, 0.8, 0.7, 0.5];
/// The same of lambda.
const LAMBDAS: [f64; 8] = [1.0, 0.95, 0.99, 0.97, 0.98, 0.9, 0.8, 0.0];
/// What float arithmetic may differ by.
const NEAR: f64 = 1e-5;
/// How near to a line whitened values lie: the unexplained share of their spread.
const STRAIGHT: f64 = 1e-8;
/// Findings of one credit that are kept.
const KEPT: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// A discounted sum that is carried across tokens that were not sampled.
    Carried,
    /// One that begins again behind them.
    Reset,
    /// A generalized advantage, with its lambda.
    Gae(f64),
}

/// Moments of pairs, by which a line shows.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    count: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Line {
    /// Welford's update.
    fn add(&mut self, x: f64, y: f64) {
        self.count += 1.0;
        let (dx, dy) = (x - self.x, y - self.y);
        self.x += dx / self.count;
        self.y += dy / self.count;
        self.xx += dx * (x - self.x);
        self.xy += dx * (y - self.y);
        self.yy += dy * (y - self.y);
    }

    fn is_rising_line(&self) -> bool {
        self.count >= 4.0 && self.xy > 0.0 && self.yy - self.xy * self.xy / self.xx <= STRAIGHT * self.yy
    }
}

/// One formula as it is followed from the last token to the first.
#[derive(Debug, Clone, Default)]
struct Trial {
    gamma: f64,
    kind: Option<Kind>,
    sum: f64,
    next_value: f64,
    judged: usize,
    wrong: usize,
    line: Line,
}

/// A call's tokens.
struct Tokens {
    rollout: String,
    call: String,
    stored: Vec<Option<f64>>,
    rewards: Vec<Option<f64>>,
    values: Option<Vec<Option<f64>>>,
    mask: Option<Vec<bool>>,
}

/// What a pass over all tokens has seen besides.
#[derive(Debug, Default)]
struct Seen {
    calls: usize,
    unrewarded: usize,
    unvalued: usize,
    is_return: bool,
}

/// Judges credits token by token.
pub(super) async fn judge(session: &Session, derivation: &Derivation, found: &mut Vec<Found>) -> Result<()> {
    let declared = derivation.parameter(&["gamma", "discount", "token_discount"]);
    let lambda = derivation.parameter(&["lam", "lambda", "gae_lambda"]);
    let mut trials = trials(declared, lambda);
    let seen = pass(session, derivation, &mut trials, &mut |_, _, _, _| ()).await?;
    if seen.calls == 0 || seen.unrewarded > 0 {
        let remedy = format!(
            "give the token rewards that credit {} was made from; {} calls have none",
            derivation.name, seen.unrewarded
        );
        found.push(Found::missing(&derivation.run, derivation.id.as_deref(), "token_signals.values", remedy));
        return Ok(());
    }
    if seen.unvalued > 0 {
        trials.retain(|trial| !matches!(trial.kind, Some(Kind::Gae(_))));
    }
    let is_whitened = |trial: &Trial| matches!(trial.kind, Some(Kind::Gae(_))) && trial.line.is_rising_line();
    let is_right = |trial: &Trial| trial.kind != Some(Kind::Reset) && (trial.wrong == 0 || is_whitened(trial));
    if trials.iter().any(is_right) {
        return Ok(());
    }
    let Some((right, why)) = chosen(&trials, declared.is_some(), seen.is_return) else {
        let (missing, remedy) = unknown(derivation, &seen);
        found.push(Found::missing(&derivation.run, derivation.id.as_deref(), missing, remedy));
        return Ok(());
    };
    let mut one = vec![Trial { gamma: right.gamma, kind: right.kind, ..Trial::default() }];
    pass(session, derivation, &mut one, &mut |tokens, at, sum, wrong| {
        if found.len() < KEPT {
            let mut difference = difference(tokens, derivation, at, sum, wrong);
            difference.message = format!("{}: {why}", difference.message);
            found.push(difference);
        }
    })
    .await?;
    Ok(())
}

fn trials(gamma: Option<f64>, lambda: Option<f64>) -> Vec<Trial> {
    let gammas = gamma.map_or_else(|| GAMMAS.to_vec(), |gamma| vec![gamma]);
    let lambdas = lambda.map_or_else(|| LAMBDAS.to_vec(), |lambda| vec![lambda]);
    let kinds = [Kind::Carried, Kind::Reset].into_iter().chain(lambdas.into_iter().map(Kind::Gae));
    let trial = |kind: Kind, gamma: &f64| Trial { gamma: *gamma, kind: Some(kind), ..Trial::default() };
    kinds.flat_map(|kind| gammas.iter().map(move |gamma| trial(kind, gamma))).collect()
}

/// The formula that accuses, and why: one that most tokens follow, the declared one of a return, or the one of which the stored
/// values are known to be a distortion.
fn chosen(trials: &[Trial], is_declared: bool, is_return: bool) -> Option<(Trial, String)> {
    let carried = |gamma: f64| {
        trials.iter().find(|trial| trial.kind == Some(Kind::Carried) && trial.gamma.total_cmp(&gamma).is_eq()).cloned()
    };
    if let Some(reset) = trials.iter().find(|trial| trial.kind == Some(Kind::Reset) && trial.wrong == 0) {
        let why = format!(
            "the sum begins again after tokens that were not sampled (gamma {} gives all values so)",
            reset.gamma
        );
        return carried(reset.gamma).map(|trial| (trial, why));
    }
    let proper = trials.iter().filter(|trial| trial.kind != Some(Kind::Reset));
    let nearest = proper.min_by_key(|trial| trial.wrong)?;
    if nearest.judged >= 4 && 4 * nearest.wrong < nearest.judged {
        let why = match nearest.kind {
            Some(Kind::Gae(lambda)) => {
                format!("gamma {} and lambda {lambda} give all others", nearest.gamma)
            }
            _ => format!("gamma {} gives all others", nearest.gamma),
        };
        return Some((nearest.clone(), why));
    }
    let declared = trials.iter().find(|trial| trial.kind == Some(Kind::Carried) && is_declared && is_return)?;
    Some((declared.clone(), format!("gamma is {}", declared.gamma)))
}

fn unknown(derivation: &Derivation, seen: &Seen) -> (&'static str, String) {
    if seen.is_return {
        let remedy = format!("say the discount of credit {}; none that was tried gives its values", derivation.name);
        return ("derivations.parameters.gamma", remedy);
    }
    let values =
        if seen.unvalued > 0 { ", and its calls have no values (token_signals value) to try GAE with" } else { "" };
    let remedy = format!(
        "say how credit {} is made of token rewards, or give its recipe: no discounted sum that was tried gives its values{values}",
        derivation.name
    );
    ("derivations.recipe", remedy)
}

/// Follows all trials over the tokens of the credit; `report` hears of each call with a wrong value: its tokens, the first offset,
/// what should stand there, how many are wrong.
async fn pass(
    session: &Session,
    derivation: &Derivation,
    trials: &mut [Trial],
    report: &mut (dyn FnMut(&Tokens, usize, f64, usize) + Send),
) -> Result<Seen> {
    let (mut last, mut seen) = (None, Seen::default());
    each_row(session, &query(derivation), |row| {
        let (Some(rollout), Some(call)) = (row.text("rollout_id")?, row.text("call_id")?) else {
            return Ok(());
        };
        let Some(stored) = row.numbers("token_values")? else {
            return Ok(());
        };
        seen.calls += 1;
        seen.is_return |= row.text("quantity")?.as_deref() == Some("return");
        let is_last = last.as_ref() != Some(&rollout);
        if is_last {
            trials.iter_mut().for_each(|trial| (trial.sum, trial.next_value) = (0.0, 0.0));
            last = Some(rollout.clone());
        }
        let mask = row.flags("sampled_mask")?;
        let rewards = match (row.numbers("rewards")?, row.double("outcome")?) {
            (Some(rewards), _) => rewards,
            (None, Some(outcome)) => at_the_end(stored.len(), mask.as_deref(), is_last.then_some(outcome)),
            (None, None) => {
                seen.unrewarded += 1;
                return Ok(());
            }
        };
        let tokens = Tokens { rollout, call, stored, rewards, values: row.numbers("given")?, mask };
        seen.unvalued += usize::from(tokens.values.is_none());
        for trial in trials.iter_mut() {
            if let Some((at, sum, wrong)) = trial.follow(&tokens) {
                report(&tokens, at, sum, wrong);
            }
        }
        Ok(())
    })
    .await?;
    Ok(seen)
}

/// Rewards that are 0 but for the last sampled token.
fn at_the_end(length: usize, mask: Option<&[bool]>, outcome: Option<f64>) -> Vec<Option<f64>> {
    let mut rewards = vec![Some(0.0); length];
    let is_sampled = |at: &usize| mask.is_none_or(|mask| mask.get(*at).copied().unwrap_or(false));
    if let Some(slot) = (0..length).rev().find(is_sampled).and_then(|at| rewards.get_mut(at)) {
        *slot = outcome.or(*slot);
    }
    rewards
}

fn query(derivation: &Derivation) -> String {
    let run = quoted(&derivation.run);
    let upstream: Vec<String> = derivation.upstream_ids.iter().map(|id| quoted(id)).collect();
    let reward = if upstream.is_empty() {
        format!(
            "SELECT rollout_id, min(value) AS value FROM rewards WHERE run_id = {run} AND call_id IS NULL GROUP BY rollout_id
             HAVING count(*) = 1"
        )
    } else {
        format!(
            "SELECT rollout_id, min(value) AS value FROM rewards_history
             WHERE run_id = {run} AND call_id IS NULL AND derivation_id IN ({}) GROUP BY rollout_id",
            upstream.join(", ")
        )
    };
    format!(
        "SELECT credit.rollout_id, credit.call_id, credit.quantity, credit.token_values, call.sampled_mask,
             signal.values AS rewards, critic.values AS given, CASE WHEN has.signals = 0 THEN reward.value END AS outcome
         FROM (SELECT * FROM credits_history WHERE {} AND token_values IS NOT NULL) AS credit
         CROSS JOIN (SELECT count(*) AS signals FROM token_signals WHERE run_id = {run} AND name LIKE '%reward%') AS has
         JOIN calls AS call ON call.run_id = credit.run_id AND call.call_id = credit.call_id
         LEFT JOIN (SELECT run_id, call_id, \"values\" FROM token_signals WHERE name LIKE '%reward%') AS signal
             ON signal.run_id = credit.run_id AND signal.call_id = credit.call_id
         LEFT JOIN (SELECT run_id, call_id, \"values\" FROM token_signals WHERE name = 'value') AS critic
             ON critic.run_id = credit.run_id AND critic.call_id = credit.call_id
         LEFT JOIN ({reward}) AS reward ON reward.rollout_id = credit.rollout_id
         ORDER BY credit.rollout_id, call.call_index DESC, credit.call_id DESC",
        derivation.condition()
    )
}

impl Trial {
    /// Follows a call from its last token to its first; gives the first wrong offset, what should stand there, and how many are wrong.
    fn follow(&mut self, tokens: &Tokens) -> Option<(usize, f64, usize)> {
        let mut first_wrong: Option<(usize, f64, usize)> = None;
        for at in (0..tokens.stored.len()).rev() {
            let is_sampled = tokens.mask.as_ref().is_none_or(|mask| mask.get(at).copied().unwrap_or(false));
            if !is_sampled {
                if self.kind == Some(Kind::Reset) {
                    self.sum = 0.0;
                }
                continue;
            }
            let reward = tokens.rewards.get(at).copied().flatten().unwrap_or(0.0);
            let value = tokens.values.as_ref().and_then(|values| values.get(at).copied().flatten()).unwrap_or(0.0);
            self.sum = match self.kind {
                Some(Kind::Gae(lambda)) => {
                    reward + self.gamma * self.next_value - value + self.gamma * lambda * self.sum
                }
                _ => reward + self.gamma * self.sum,
            };
            self.next_value = value;
            let stored = tokens.stored.get(at).copied().flatten();
            self.judged += 1;
            self.line.add(self.sum, stored.unwrap_or(f64::NAN));
            let is_right = stored.is_some_and(|stored| (stored - self.sum).abs() <= NEAR * self.sum.abs().max(1.0));
            if !is_right {
                let wrong = first_wrong.map_or(1, |(_, _, wrong)| wrong + 1);
                first_wrong = Some((at, self.sum, wrong));
            }
        }
        self.wrong += first_wrong.map_or(0, |(_, _, wrong)| wrong);
        first_wrong
    }
}

fn difference(tokens: &Tokens, derivation: &Derivation, at: usize, sum: f64, wrong: usize) -> Found {
    let observed = shown(tokens.stored.get(at).copied().flatten());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(kind: Kind, gamma: f64, tokens: &Tokens) -> Trial {
        let mut trial = Trial { gamma, kind: Some(kind), ..Trial::default() };
        trial.follow(tokens);
        trial
    }

    fn tokens(stored: &[f64], rewards: &[f64], values: &[f64]) -> Tokens {
        let some = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        Tokens {
            rollout: "r".to_owned(),
            call: "c".to_owned(),
            stored: some(stored),
            rewards: some(rewards),
            values: Some(some(values)),
            mask: None,
        }
    }

    /// By hand, gamma 1 and lambda 0.5: deltas 0.1, 0.2 and 0.5 from the front; A = 0.5, 0.45, 0.325 from the back.
    #[test]
    fn a_generalized_advantage_is_known() {
        let given = tokens(&[0.325, 0.45, 0.5], &[0.0, 0.0, 1.0], &[0.2, 0.3, 0.5]);
        assert_eq!(followed(Kind::Gae(0.5), 1.0, &given).wrong, 0);
        assert_eq!(followed(Kind::Gae(0.9), 1.0, &given).wrong, 2);
        assert_eq!(followed(Kind::Carried, 1.0, &given).wrong, 3);
    }

    #[test]
    fn whitened_advantages_lie_on_a_line() {
        let plain = [0.325, 0.45, 0.5, 0.7];
        let whitened: Vec<f64> = plain.iter().map(|value| (value - 0.4) / 0.07).collect();
        let mut line = Line::default();
        plain.iter().zip(&whitened).for_each(|(x, y)| line.add(*x, *y));
        assert!(line.is_rising_line());
        line.add(0.1, 0.9);
        assert!(!line.is_rising_line());
    }

    #[test]
    fn a_reward_without_tokens_stands_at_the_last_sampled_one() {
        assert_eq!(at_the_end(3, Some(&[true, true, false]), Some(1.0)), [Some(0.0), Some(1.0), Some(0.0)]);
        assert_eq!(at_the_end(2, None, None), [Some(0.0), Some(0.0)]);
    }
}
