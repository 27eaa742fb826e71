-- The views that people query for figures. They are a stable interface (docs/analytics.md). A migration
-- includes this file; :"analytics" stands for the name of their schema (store/migrate.ts).
--
-- A view reads with the rights of its owner, so a role that may read the views needs no right on a table.
-- security_barrier: a function in a query must not see the rows of deleted sessions.
CREATE VIEW :"analytics".version WITH (security_barrier) AS SELECT 1 AS version;
--> statement-breakpoint
CREATE VIEW :"analytics".tool_calls WITH (security_barrier) AS
SELECT c.session_id, s.project_id, s.agent_id, c.run_seq, c.seq, c.name AS tool, c.started_at, c.ended_at,
  CASE WHEN c.ended_at IS NOT NULL THEN greatest(0, extract(epoch FROM c.ended_at - c.started_at) * 1000)::double precision END AS duration_ms,
  c.has_failed
FROM session_tool_calls c
JOIN sessions s ON s.id = c.session_id AND s.deleted_at IS NULL;
--> statement-breakpoint
CREATE VIEW :"analytics".runs WITH (security_barrier) AS
SELECT r.session_id, s.project_id, s.agent_id, r.run_id, r.seq AS run_seq, r.started_at, r.ended_at, r.outcome,
  CASE WHEN r.ended_at IS NOT NULL THEN greatest(0, extract(epoch FROM r.ended_at - r.started_at) * 1000)::double precision END AS duration_ms,
  CASE WHEN r.first_text_at IS NOT NULL THEN greatest(0, extract(epoch FROM r.first_text_at - r.started_at) * 1000)::double precision END
    AS time_to_first_token_ms,
  u.tokens_in, u.tokens_out, u.cached_tokens_in, u.reasoning_tokens_out, u.cost,
  COALESCE(c.calls, 0) AS tool_calls, COALESCE(c.failures, 0) AS tool_failures,
  COALESCE(u.models, s.llm_model) AS model, r.last_seq - r.seq + 1 AS events
FROM session_runs r
JOIN sessions s ON s.id = r.session_id AND s.deleted_at IS NULL
LEFT JOIN LATERAL (
  SELECT sum(e.tokens_in)::bigint AS tokens_in, sum(e.tokens_out)::bigint AS tokens_out,
    sum(e.cached_tokens_in)::bigint AS cached_tokens_in,
    sum(e.reasoning_tokens_out)::bigint AS reasoning_tokens_out, sum(e.cost) AS cost,
    string_agg(DISTINCT e.model, ', ' ORDER BY e.model) AS models
  FROM jsonb_to_recordset(r.usage) AS e(model text, tokens_in bigint, tokens_out bigint,
    cached_tokens_in bigint, reasoning_tokens_out bigint, cost double precision)
) u ON true
LEFT JOIN (
  SELECT session_id, run_seq, count(*) AS calls, count(*) FILTER (WHERE has_failed) AS failures
  FROM session_tool_calls GROUP BY session_id, run_seq
) c ON c.session_id = r.session_id AND c.run_seq = r.seq;
--> statement-breakpoint
CREATE VIEW :"analytics".sessions WITH (security_barrier) AS
SELECT s.id AS session_id, s.project_id, s.agent_id, s.llm_model AS model, s.parent_session_id,
  s.created_by_user_id, s.phase, s.created_at AS first_activity_at, s.last_activity_at,
  s.message_seq AS messages, s.event_seq AS events, s.row_count AS rows, s.payload_bytes AS bytes,
  COALESCE(r.runs, 0) AS runs, COALESCE(r.errors, 0) AS errors,
  COALESCE(c.calls, 0) AS tool_calls, COALESCE(c.failures, 0) AS tool_failures,
  r.tokens_in, r.tokens_out, r.cost
FROM sessions s
LEFT JOIN (
  SELECT session_id, count(*) AS runs, count(*) FILTER (WHERE outcome = 'error') AS errors,
    sum(u.tokens_in)::bigint AS tokens_in, sum(u.tokens_out)::bigint AS tokens_out, sum(u.cost) AS cost
  FROM session_runs
  LEFT JOIN LATERAL (
    SELECT sum(e.tokens_in) AS tokens_in, sum(e.tokens_out) AS tokens_out, sum(e.cost) AS cost
    FROM jsonb_to_recordset(usage) AS e(tokens_in bigint, tokens_out bigint, cost double precision)
  ) u ON true
  GROUP BY session_id
) r ON r.session_id = s.id
LEFT JOIN (
  SELECT session_id, count(*) AS calls, count(*) FILTER (WHERE has_failed) AS failures
  FROM session_tool_calls GROUP BY session_id
) c ON c.session_id = s.id
WHERE s.deleted_at IS NULL;
--> statement-breakpoint
-- A function, because percentiles of a time cannot be made from other percentiles.
CREATE FUNCTION :"analytics".tools_since(since timestamptz)
RETURNS TABLE (project_id text, tool text, calls bigint, answered bigint, failures bigint,
  p50_ms double precision, p95_ms double precision)
LANGUAGE sql STABLE
AS $$
  SELECT c.project_id, c.tool, count(*), count(c.ended_at), count(*) FILTER (WHERE c.has_failed),
    percentile_cont(0.5) WITHIN GROUP (ORDER BY c.duration_ms),
    percentile_cont(0.95) WITHIN GROUP (ORDER BY c.duration_ms)
  FROM :"analytics".tool_calls c WHERE c.started_at >= since GROUP BY c.project_id, c.tool
$$;
--> statement-breakpoint
CREATE VIEW :"analytics".tools WITH (security_barrier) AS
SELECT * FROM :"analytics".tools_since('-infinity');
--> statement-breakpoint
CREATE VIEW :"analytics".daily_usage WITH (security_barrier) AS
SELECT (r.started_at AT TIME ZONE 'UTC')::date AS day, s.project_id, s.agent_id,
  COALESCE(e.model, s.llm_model) AS model, count(DISTINCT (r.session_id, r.seq)) AS runs,
  count(DISTINCT (r.session_id, r.seq)) FILTER (WHERE r.outcome = 'error') AS errors,
  count(DISTINCT r.session_id) AS sessions,
  sum(e.tokens_in)::bigint AS tokens_in, sum(e.tokens_out)::bigint AS tokens_out,
  sum(e.cached_tokens_in)::bigint AS cached_tokens_in,
  sum(e.reasoning_tokens_out)::bigint AS reasoning_tokens_out, sum(e.cost) AS cost
FROM session_runs r
JOIN sessions s ON s.id = r.session_id AND s.deleted_at IS NULL
LEFT JOIN LATERAL jsonb_to_recordset(r.usage) AS e(model text, tokens_in bigint, tokens_out bigint,
  cached_tokens_in bigint, reasoning_tokens_out bigint, cost double precision) ON true
GROUP BY 1, 2, 3, 4;
--> statement-breakpoint
COMMENT ON VIEW :"analytics".version IS 'The version of these views. A higher number means that a column or a view was removed, or means something else.';
--> statement-breakpoint
COMMENT ON VIEW :"analytics".sessions IS 'Each session that is not deleted. messages and events count the numbers that were given, also of erased rows; rows and bytes are stored. errors are runs that ended with RUN_ERROR.';
--> statement-breakpoint
COMMENT ON VIEW :"analytics".runs IS 'Each run by its RUN_STARTED: (session_id, run_seq) is its key. outcome: running, stalled (another run began before its end), finished, interrupted, cancelled, error. Times are those of the producer, tokens and cost what the end of the run reports.';
--> statement-breakpoint
COMMENT ON VIEW :"analytics".tool_calls IS 'Each tool call inside a run. duration_ms is the time from its first event to its first result in the same run.';
--> statement-breakpoint
COMMENT ON VIEW :"analytics".tools IS 'Calls, answered calls, failures and durations of each tool of a project. analytics.tools_since(time) has the same of the calls since a time.';
--> statement-breakpoint
COMMENT ON VIEW :"analytics".daily_usage IS 'Runs and tokens by the day (UTC) on which the run began, project, agent and model. A run with several models counts in the row of each.';
--> statement-breakpoint
COMMENT ON FUNCTION :"analytics".tools_since(timestamptz) IS 'The view tools, of the calls that began at or after a time.';
