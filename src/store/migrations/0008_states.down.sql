DO $migration$
DECLARE
  of_pushes regprocedure;
  changed text;
BEGIN
  FOR of_pushes IN SELECT oid FROM pg_proc WHERE oid IN ('ledger_append_pushes'::regproc,
    'ledger_append_chained_pushes'::regproc) LOOP
    changed := pg_get_functiondef(of_pushes);
    changed := replace(changed, ' run_outcomes text[] DEFAULT NULL::text[],', '');
    changed := replace(changed, 'new_run_ids, run_outcomes,', 'new_run_ids,');
    changed := replace(changed, 'run_id, run_outcome,', 'run_id,');
    changed := regexp_replace(changed, '    run_outcome = .*?(?=    row_count = )', '');
    EXECUTE format('DROP FUNCTION %s', of_pushes);
    EXECUTE changed;
  END LOOP;
END
$migration$;
--> statement-breakpoint
DROP INDEX sessions_asking;
--> statement-breakpoint
ALTER TABLE sessions DROP COLUMN run_ended_at;
--> statement-breakpoint
ALTER TABLE sessions DROP COLUMN run_outcome;
