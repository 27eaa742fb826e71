-- The functions of pushes (append.sql, append-0005.sql) for Citus, which differ from those files in this:
--
--   idle_since   Citus evaluates functions that are not immutable on the coordinator, and does not look for them in
--                a CASE; `timestamptz + interval` is one
--   only_id      the UPDATE joins an array, from which no node is found: without the id of the one session it locks
--                all shards, and waits for all nodes
--   is_sharded   rows of arrays alone would be copied to the node and committed in two phases: a commit that is
--                lost between them appears up to a minute later, below the horizon of feeds. Joined with the session
--                they are inserted by its node, and one COMMIT is the commit
--
-- The connections of a sharded engine have force_custom_plan, because a plan has the node of the session.
DO $migration$
DECLARE
  changed text;
  pair text[];
  inserted text;
  by_node text;
BEGIN
  FOREACH changed IN ARRAY ARRAY[pg_get_functiondef('ledger_append_pushes'::regproc),
    pg_get_functiondef('ledger_append_chained_pushes'::regproc)] LOOP
    FOREACH pair SLICE 1 IN ARRAY ARRAY[
      ['  recorded timestamptz;', E'  recorded timestamptz;\n  idle_since timestamptz;\n'
        || '  is_sharded boolean := current_setting(''plan_cache_mode'') = ''force_custom_plan'';'],
      [E'  recorded := clock_timestamp();\n\n', E'  recorded := clock_timestamp();\n  idle_since := recorded - interval ''10 s'';\n\n'],
      ['OR recorded >= sessions.active_at + interval ''10 s''', 'OR sessions.active_at <= idle_since'],
      ['WHERE sessions.id = r.id AND', 'WHERE sessions.id = r.id AND (only_id IS NULL OR sessions.id = only_id) AND']
    ] LOOP
      IF strpos(changed, pair[1]) = 0 THEN
        RAISE EXCEPTION 'a function of pushes is not that of this schema: % is missing', pair[1];
      END IF;
      changed := replace(changed, pair[1], pair[2]);
    END LOOP;
    FOREACH inserted IN ARRAY ARRAY[substring(changed FROM '    INSERT INTO session_messages .*?;\n'),
      substring(changed FROM '    INSERT INTO session_events .*?;\n')] LOOP
      by_node := replace(inserted, 'SELECT session_ids[r.session]', 'SELECT s.id');
      by_node := replace(by_node, 'FROM unnest(', 'FROM sessions s, unnest(');
      by_node := replace(by_node, 'WHERE verdicts IS NULL OR verdicts[r.session] IS NULL',
        'WHERE s.id = only_id AND (verdicts IS NULL OR verdicts[1] IS NULL)');
      changed := replace(changed, inserted,
        E'    IF is_sharded AND only_id IS NOT NULL THEN\n' || by_node || E'    ELSE\n' || inserted || E'    END IF;\n');
    END LOOP;
    EXECUTE changed;
  END LOOP;
END
$migration$;
--> statement-breakpoint
CREATE OR REPLACE FUNCTION ledger_fix_plans() RETURNS void
LANGUAGE sql VOLATILE
AS $$
  SELECT set_config(name, value, true) FROM (VALUES ('enable_seqscan', 'off'), ('enable_hashjoin', 'off'),
    ('enable_mergejoin', 'off'), ('enable_bitmapscan', 'off'), ('plan_cache_mode', 'force_generic_plan'),
    ('jit', 'off')) settings (name, value)
  WHERE name <> 'plan_cache_mode' OR current_setting('plan_cache_mode') <> 'force_custom_plan';
$$;
