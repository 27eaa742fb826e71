-- Before the tables: Citus runs no function command after a statement of all nodes.
-- The functions of pushes (append.sql, append-0005.sql, as 0007_sharded.sql has changed them) take one more array:
--
--   run_outcomes   how the last run that the batch ends did so; null where none ends. A service of an earlier
--                  version does not give it, so the outcome of a run that it ends is not known: null
DO $migration$
DECLARE
  of_pushes regprocedure;
  changed text;
  pair text[];
BEGIN
  FOR of_pushes IN SELECT oid FROM pg_proc WHERE oid IN ('ledger_append_pushes'::regproc,
    'ledger_append_chained_pushes'::regproc) LOOP
    changed := pg_get_functiondef(of_pushes);
    FOREACH pair SLICE 1 IN ARRAY ARRAY[
      ['cancels boolean[], OUT', 'cancels boolean[], run_outcomes text[] DEFAULT NULL, OUT'],
      ['new_run_ids, arrivals,', 'new_run_ids, run_outcomes, arrivals,'],
      ['run_id, arrivals,', 'run_id, run_outcome, arrivals,'],
      [E'    row_count = ', E'    run_outcome = CASE WHEN r.run_outcome IS NOT NULL THEN r.run_outcome WHEN r.run_id = '''' THEN NULL\n'
        || E'      ELSE sessions.run_outcome END,\n'
        || E'    run_ended_at = CASE WHEN r.run_outcome IS NULL THEN sessions.run_ended_at ELSE recorded END,\n    row_count = ']
    ] LOOP
      IF strpos(changed, pair[1]) = 0 THEN
        RAISE EXCEPTION 'a function of pushes is not that of this schema: % is missing', pair[1];
      END IF;
      changed := replace(changed, pair[1], pair[2]);
    END LOOP;
    EXECUTE format('DROP FUNCTION %s', of_pushes);
    EXECUTE changed;
  END LOOP;
END
$migration$;
--> statement-breakpoint
ALTER TABLE "sessions" ADD COLUMN "run_outcome" text;
--> statement-breakpoint
ALTER TABLE "sessions" ADD COLUMN "run_ended_at" timestamp(6) with time zone;
--> statement-breakpoint
CREATE INDEX "sessions_asking" ON "sessions" USING btree ("run_ended_at","id") WHERE deleted_at is null and open_run_id is null and waiting_since is null and run_outcome = 'interrupted';
--> statement-breakpoint
-- Pushes wait for this. The runs of analytics have the outcome of what ended before.
UPDATE sessions SET run_outcome = r.outcome, run_ended_at = r.ended_at
FROM (SELECT DISTINCT ON (session_id) session_id, outcome, ended_at FROM session_runs ORDER BY session_id, seq DESC) r
WHERE sessions.id = r.session_id AND sessions.open_run_id IS NULL AND r.outcome IN ('interrupted', 'cancelled', 'error');
