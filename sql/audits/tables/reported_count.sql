-- What trainers say they counted of each term of the loss.
SELECT
    run_id, build_id, item['optimizer_step'] AS optimizer_step, item['micro_batch'] AS micro_batch, item['rank'] AS rank,
    item['term'] AS term,
    lower(coalesce(item['term'], 'policy')) IN (
        'policy', 'policy_loss', 'policy_gradient', 'pg', 'pg_loss', 'actor', 'actor_loss', 'rl', 'loss', 'surrogate'
    ) AS is_policy,
    coalesce(lower(item['term']) LIKE '%kl%', false) AS is_kl,
    item['loss_tokens'] AS loss_tokens, item['denominator'] AS denominator
FROM (SELECT run_id, build_id, unnest(reported) AS item FROM row_build)
