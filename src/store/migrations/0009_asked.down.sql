DO $migration$
DECLARE
  of_pushes regprocedure;
  changed text;
BEGIN
  FOR of_pushes IN SELECT oid FROM pg_proc WHERE oid IN ('ledger_append_pushes'::regproc,
    'ledger_append_chained_pushes'::regproc) LOOP
    changed := pg_get_functiondef(of_pushes);
    changed := regexp_replace(changed, 'run_outcome = CASE\n.*?WHEN r.run_outcome IS NOT NULL', 'run_outcome = CASE WHEN r.run_outcome IS NOT NULL');
    changed := replace(changed, 'WHEN r.run_id IS NULL THEN sessions.run_outcome END', E'WHEN r.run_id = '''' THEN NULL\n      ELSE sessions.run_outcome END');
    changed := replace(changed, 'WHEN coalesce(r.run_outcome, ''asked'') = ''asked'' THEN sessions.run_ended_at', 'WHEN r.run_outcome IS NULL THEN sessions.run_ended_at');
    EXECUTE changed;
  END LOOP;
END
$migration$;
--> statement-breakpoint
UPDATE sessions SET run_outcome = NULL WHERE run_outcome = 'asked';
