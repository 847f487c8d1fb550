//! The design's keys and columns, copied by hand.

/// The keys of the design, and whether the table is keyed (rows repeat with a revision).
pub(crate) const KEYS: [(&str, bool, &[&str]); 10] = [
    ("runs", true, &["run_id"]),
    ("policies", true, &["run_id", "policy_id", "policy_version"]),
    ("encodings", true, &["encoding_id"]),
    ("rollouts", true, &["run_id", "rollout_id"]),
    ("calls", false, &["run_id", "call_id"]),
    ("scores", false, &["run_id", "score_id"]),
    ("environment_records", false, &["run_id", "record_id"]),
    ("rewards", false, &["derivation_id", "run_id", "rollout_id", "call_id"]),
    ("credits", false, &["derivation_id", "run_id", "rollout_id", "call_id"]),
    ("samples", false, &["build_id", "epoch", "step", "micro_batch", "rank", "row_index"]),
];

/// Columns that the design names, table by table.
pub(crate) const DESIGNED: [(&str, &str); 21] = [
    (
        "runs",
        "run_id name trainer trainer_version expected_group_size max_staleness allow_policy_mix vocab_size \
         logprobs_mode objective_unit objective_scope eos_token_ids bos_token_id pad_token_id max_context_tokens \
         max_output_tokens lora_adapter score_min score_max credit_rule metadata",
    ),
    ("policies", "run_id policy_id policy_version base_model weights_digest lora_adapter step published_at"),
    (
        "encodings",
        "encoding_id tokenizer_digest chat_template_digest template_kwargs tools_digest renderer renderer_version \
         protocol_adapter_version tool_parser reasoning_parser generation_prompt_ids vocab_size",
    ),
    ("imports", "import_id format sources source_digest importer_version counts"),
    ("rejects", "import_id file line field reason raw"),
    (
        "rollouts",
        "run_id rollout_id step group_id task_id task environment environment_version initial_state_digest harness \
         harness_version harness_config_digest purpose attempt status termination_reason drop_reason \
         policy_version_min policy_version_max call_count prompt_token_count output_digest origin_rollout_id \
         origin_call_id origin_position relation started_at finished_at metadata",
    ),
    (
        "calls",
        "run_id step group_id rollout_id call_id call_index parent_call_id turn_index continues_call_id attempt kind \
         agent_id role is_trainable request_id choice_index is_selected break_reason prompt_token_ids prompt_len \
         prompt_digest prompt_exactness prompt_sent_len output_token_ids output_len output_digest output_exactness \
         output_logprobs logprobs_source logprobs_mode sampled_mask action_mask policy_id policy_version policy_spans \
         lora_adapter cache_epoch encoding_id model engine engine_version protocol request request_digest response \
         output_text parsed parse_error response_id harness_state_record_id temperature top_p top_k sampling \
         finish_reason stop_token stop_string tokens_trimmed usage_prompt_tokens usage_cached_prompt_tokens \
         usage_output_tokens multimodal_spans started_at finished_at extra parent_prefix_len stored_index base_index \
         base_len prompt_suffix messages_base_len messages_suffix",
    ),
    ("call_payloads", "run_id step group_id rollout_id call_id name dtype shape start blob"),
    ("token_signals", "run_id step group_id rollout_id call_id name producer policy_version values"),
    (
        "environment_records",
        "run_id step group_id rollout_id record_id call_id call_index kind name tool_call_id arguments content \
         content_digest blob token_count delivered_call_id state_digest is_error error_type exit_code duration_ms \
         limit_ms",
    ),
    (
        "scores",
        "run_id step group_id rollout_id score_id call_id judge_call_ids comparison_id verifier verifier_version \
         verifier_digest value is_valid error_type metrics detail evidence_record_ids input_digest scored_at",
    ),
    ("step_metrics", "run_id step name value source"),
    (
        "derivations",
        "derivation_id kind name recipe recipe_digest parameters group_key functions snapshot engine_version \
         row_count content_digest",
    ),
    ("rewards", "run_id name rollout_id call_id group_id value exclusion_reason components score_ids"),
    (
        "credits",
        "run_id step group_id name rollout_id call_id quantity level value token_values baseline_scope baseline_key \
         baseline_count baseline_rollout_ids",
    ),
    (
        "builds",
        "build_id run_id origin derivation_id objective_unit objective_scope objective_constant advantage_scale \
         max_tokens algorithm kl_estimator reported metadata",
    ),
    (
        "samples",
        "run_id build_id step epoch optimizer_step micro_batch rank row_index rollout_id token_ids position_ids \
         action_mask logprobs advantages loss_weights trainer_logprobs reference_logprobs trained_policy_version \
         is_pad segments",
    ),
    ("exclusions", "run_id build_id rollout_id call_id position length reason"),
    ("audits", "audit_id snapshot checks counts"),
    (
        "findings",
        "audit_id check outcome severity layer run_id step group_id rollout_id call_id build_id derivation_id \
         row_index position position_in length expected observed message",
    ),
    ("quarantine", "level reason audit_id lifted_at"),
];
