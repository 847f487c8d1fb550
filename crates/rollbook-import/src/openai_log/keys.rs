//! Which members of `metadata` go where, and the identity of calls and rollouts in little memory.

use sha2::{Digest, Sha256};

/// Members of `metadata` that are columns of `calls`.
pub(super) const CALLS: [&str; 30] = [
    "run_id",
    "step",
    "group_id",
    "rollout_id",
    "call_index",
    "turn_index",
    "continues_call_id",
    "attempt",
    "kind",
    "agent_id",
    "role",
    "is_trainable",
    "request_id",
    "choice_index",
    "is_selected",
    "break_reason",
    "prompt_sent_len",
    "logprobs_mode",
    "sampled_mask",
    "action_mask",
    "policy_id",
    "policy_version",
    "policy_spans",
    "lora_adapter",
    "cache_epoch",
    "encoding_id",
    "engine",
    "engine_version",
    "harness_state_record_id",
    "tokens_trimmed",
];

/// Members of `metadata` that are columns of `rollouts`; the first four stand in both tables.
pub(super) const ROLLOUTS: [&str; 20] = [
    "run_id",
    "step",
    "group_id",
    "rollout_id",
    "task_id",
    "task",
    "environment",
    "environment_version",
    "initial_state_digest",
    "harness",
    "harness_version",
    "harness_config_digest",
    "purpose",
    "status",
    "termination_reason",
    "drop_reason",
    "origin_rollout_id",
    "origin_call_id",
    "origin_position",
    "relation",
];

/// Members that the mapping reads itself.
pub(super) const OWN: [&str; 3] = ["call_id", "parent_call_id", "selected_index"];

/// Returns a short stand-in for a key, so that a set of millions stays small.
pub(super) fn stand_in(run_id: Option<&str>, id: &str) -> u128 {
    let mut digest = Sha256::new();
    digest.update(run_id.unwrap_or_default());
    digest.update([0xff]);
    digest.update(id);
    let whole: [u8; 32] = digest.finalize().into();
    let mut half = [0; 16];
    half.copy_from_slice(&whole[..16]);
    u128::from_le_bytes(half)
}

/// Returns the id of a call that has none: a function of its line.
pub(super) fn line_id(text: &str) -> String {
    let whole: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    format!("line-{}", crate::source::hex(&whole[..16]))
}
