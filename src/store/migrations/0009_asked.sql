-- A graph asks a person by a CUSTOM event (`on_interrupt`), and then ends its run as if it had finished. The
-- functions of pushes take two more words in run_outcomes:
--
--   asked   the run that is open after the batch, or before it, has asked: kept until that run ends
--   ended   a run that was open before the batch has finished: interrupted if it had asked, else finished
--
-- A service of an earlier version gives neither. A run that begins has no outcome.
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
      ['run_outcome = CASE WHEN r.run_outcome IS NOT NULL',
        E'run_outcome = CASE\n'
        || E'      WHEN r.run_outcome = ''ended'' THEN CASE sessions.run_outcome WHEN ''asked'' THEN ''interrupted'' ELSE ''finished'' END\n'
        || E'      WHEN r.run_outcome = ''asked'' AND r.run_id IS NULL AND sessions.open_run_id IS NULL THEN sessions.run_outcome\n'
        || '      WHEN r.run_outcome IS NOT NULL'],
      [E'WHEN r.run_id = '''' THEN NULL\n      ELSE sessions.run_outcome END', E'WHEN r.run_id IS NULL THEN sessions.run_outcome END'],
      ['WHEN r.run_outcome IS NULL THEN sessions.run_ended_at', 'WHEN coalesce(r.run_outcome, ''asked'') = ''asked'' THEN sessions.run_ended_at']
    ] LOOP
      IF strpos(changed, pair[1]) = 0 THEN
        RAISE EXCEPTION 'a function of pushes is not that of this schema: % is missing', pair[1];
      END IF;
      changed := replace(changed, pair[1], pair[2]);
    END LOOP;
    EXECUTE changed;
  END LOOP;
END
$migration$;
