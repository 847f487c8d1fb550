//! What SQL cannot say about the lists of one row.
//!
//! | function                                              | gives                                                        |
//! |-------------------------------------------------------|--------------------------------------------------------------|
//! | `logprob_faults(output_len, sampled_mask, logprobs)`  | runs of sampled tokens whose logprob cannot be               |
//! | `span_outside(spans, total)`                          | start of the first span that lies outside `0..total`         |
//! | `trained_spans(segments, action_mask)`                | runs of a row's trained tokens that name a call's output     |
//! | `span_weights(segments, action_mask, loss_weights)`   | per rollout of a row: trained tokens, summed loss weight     |
//! | `has_odd_logprob(logprobs)`                           | whether a value can be no sampled token's logprob            |
//! | `true_spans(mask)`                                    | the runs of true of a mask                                   |
//! | `uncovered_spans(output_len, sampled, spans)`         | runs of sampled tokens that no span holds                    |
//! | `repeated_spans(uses)`                                | runs of tokens that more than one use holds                  |
//! | `row_contexts(token_ids, segments, action_mask)`      | what stands before each call's trained tokens in a row       |
//! | `output_differs(seen, output_token_ids)`              | whether tokens seen in a row are not the call's              |
//! | `token_fates(output_len, sampled_mask, trained, excused)` | how many sampled tokens train, are excused, or neither  |
//! | `shared_spans(output_len, one, other)`                | runs of tokens that a span of each list holds                |
//! | `mask_faults(segments, action_mask, loss_weights, advantages)` | where these say different things of a token's training |
//! | `tiling_faults(segments, total, cu_seqlens)`          | gaps, overlaps and torn sequences of a row's segments        |
//! | `position_faults(segments, position_ids)`             | tokens whose position is not their place in their sequence   |
//! | `border_faults(segments, position_ids, action_mask)`  | first tokens of sequences that train after another's         |
//! | `trained_advantages(segments, action_mask, advantages)` | runs of a row's trained tokens with their advantages       |
//! | `credit_faults(advantage, advantages, length, row_start, start, value, token_values, scale)` | tokens whose advantage is not their credit |
//! | `kl_sums(action_mask, trainer_logprobs, reference_logprobs)` | distance from the reference, trained and all tokens   |
//! | `logprob_digest(logprobs)`                            | equal for equal lists, nulls and NaNs included               |
//! | `logprob_sum(logprobs)`                               | sum of the finite ones, in double                            |
//! | `valued_spans(values)`                                | runs of values other than 0                                  |
//! | `misplaced_values(values, sampled_mask, action_mask)` | such runs where a mask is false                              |
//! | `trained_sum(values, sampled_mask, action_mask)`      | sum of the values where no mask is false                     |
//! | `any_true(mask)`                                      | whether an item is true                                      |
//! | `trained_count(output_len, sampled_mask, action_mask)`| tokens where no mask is false                                |
//! | `unlikely_stretches(tokens, logprobs, nats)`          | hashes of stretches that chance does not give twice          |
//! | `logprob_rounding(logprobs)`                          | the smaller format or coarser grid that the values show      |
//! | `logprob_lag(values, other, mask)`                    | the move by a token under which one list is the other        |
//! | `stray_spans(tokens, segments, action_mask)`          | runs of trained tokens that are no named call's output       |
//! | `row_links(segments, action_mask)`                    | calls that train in a row after another call's output        |
//! | `unsampled_spans(start, length, sampled, action)`     | runs of a span that a call's masks call false                |
//! | `output_uses(token_ids, segments, mask, logprobs)`    | the stretches of outputs that a row holds, by digest         |
//! | `row_mask(action_mask, convention)`                   | the mask with one item for the token at its place            |
//! | `sequence_starts(token_ids, segments)`                | where a call's prompt begins a sequence, its first two ids   |
//! | `id_faults(ids, vocab_size, named_size, from)`        | runs of ids that are negative, too large, or have no name    |
//! | `id_range(ids, from)`                                 | the lowest and the highest id                                |
//! | `version_spans(policy_version, policy_spans, sampled_mask, output_len)` | which version sampled which tokens         |
//! | `distribution_faults(values, shape, vocab_size, output_logprobs, first)` | rows of likeliest logprobs that are no distribution |
//! | `first_of(ids, wanted, sampled_mask)`                | the place of the first sampled id that is wanted, from 1     |
//! | `sequence_drifts(segments, action_mask, logprobs, trainer_logprobs)` | a row's sequences: how far the trainer's logprobs lie off |
//! | `in_order(items)`                                     | a list by its items' fields, the first field first; nulls last |
//! | `media_faults(spans, prompt, pad)`                    | media spans that their grid or their tokens contradict       |
//! | `media_changes(spans, parent_spans, shared)`          | media among shared tokens that are not the parent's          |

mod accounts;
mod context;
mod coverage;
mod credits;
mod digests;
mod distributions;
mod drift;
mod ends;
mod faults;
mod ids;
mod in_order;
mod kl;
mod lag;
mod lists;
mod logprobs;
mod masks;
mod media;
mod messages;
mod outline;
mod positions;
mod repeats;
mod rounding;
mod routing;
mod row_function;
mod rows;
mod segments;
mod strays;
mod stretches;
mod tiling;
mod uses;
mod values;
mod versions;
mod weights;

use datafusion::logical_expr::ScalarUDF;

pub(crate) use context::{CallUse, uses_of};
pub(crate) use lists::int;
pub(crate) use messages::{Text, answer_of, parse_fault};
pub(crate) use rounding::is_rounding_of;
pub(crate) use routing::{RoutingFault, routing_faults};
pub(crate) use segments::Row;

/// Every function of the checks.
pub(crate) fn all() -> Vec<ScalarUDF> {
    let mut functions = vec![
        logprobs::logprob_faults(),
        logprobs::has_odd_logprob(),
        logprobs::logprob_digest(),
        logprobs::logprob_sum(),
        values::valued_spans(),
        values::misplaced_values(),
        values::trained_sum(),
        values::any_true(),
        values::trained_count(),
        stretches::unlikely_stretches(),
        coverage::span_outside(),
        coverage::true_spans(),
        coverage::uncovered_spans(),
        segments::trained_spans(),
        weights::span_weights(),
        repeats::repeated_spans(),
        context::row_contexts(),
        context::output_differs(),
        accounts::token_fates(),
        accounts::shared_spans(),
        masks::mask_faults(),
        tiling::tiling_faults(),
        positions::position_faults(),
        positions::border_faults(),
        credits::trained_advantages(),
        credits::credit_faults(),
        kl::kl_sums(),
        digests::text_digest(),
        rounding::logprob_rounding(),
        lag::logprob_lag(),
        strays::stray_spans(),
        strays::row_links(),
        strays::unsampled_spans(),
        uses::output_uses(),
        rows::row_mask(),
        rows::sequence_starts(),
        ids::id_faults(),
        ids::id_range(),
        versions::version_spans(),
        media::media_faults(),
        media::media_changes(),
        distributions::distribution_faults(),
        drift::sequence_drifts(),
        ends::first_of(),
        in_order::in_order(),
    ];
    functions.extend(messages::all());
    functions
}
