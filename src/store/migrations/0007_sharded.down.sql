CREATE OR REPLACE FUNCTION ledger_fix_plans() RETURNS void
LANGUAGE sql VOLATILE
AS $$
  SELECT set_config(name, value, true) FROM (VALUES ('enable_seqscan', 'off'), ('enable_hashjoin', 'off'),
    ('enable_mergejoin', 'off'), ('enable_bitmapscan', 'off'), ('plan_cache_mode', 'force_generic_plan'),
    ('jit', 'off')) settings (name, value);
$$;
--> statement-breakpoint
DO $migration$
DECLARE
  changed text;
BEGIN
  FOREACH changed IN ARRAY ARRAY[pg_get_functiondef('ledger_append_pushes'::regproc),
    pg_get_functiondef('ledger_append_chained_pushes'::regproc)] LOOP
    changed := regexp_replace(changed,
      '    IF is_sharded AND only_id IS NOT NULL THEN\n.*?    ELSE\n(    INSERT INTO .*?;\n)    END IF;\n', '\1', 'g');
    changed := regexp_replace(changed, '\n  is_sharded boolean [^\n]*', '');
    changed := replace(changed, E'\n  idle_since timestamptz;', '');
    changed := replace(changed, E'\n  idle_since := recorded - interval ''10 s'';', '');
    changed := replace(changed, 'AND (only_id IS NULL OR sessions.id = only_id) AND', 'AND');
    EXECUTE replace(changed, 'OR sessions.active_at <= idle_since',
      'OR recorded >= sessions.active_at + interval ''10 s''');
  END LOOP;
END
$migration$;
