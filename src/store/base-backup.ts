/**
 * Copies PostgreSQL's files while it runs, between pg_backup_start and pg_backup_stop.
 * https://www.postgresql.org/docs/current/continuous-archiving.html#BACKUP-LOWLEVEL-BASE-BACKUP
 */
import { type Database, sql } from "./database.ts";

export interface BackupEnd {
  /** The content of the file `backup_label`. */
  readonly label: string;
  /** The names of the first and last segment of the write-ahead log that the copy needs. */
  readonly firstSegment: string;
  readonly lastSegment: string;
}

interface Copies {
  /** Copies the files of the data. They may change meanwhile: the log mends the copy. */
  readonly data: () => Promise<void>;
  /** Copies the log. A slot keeps its segments until then. */
  readonly log: (end: BackupEnd) => Promise<void>;
}

export async function copyWhileRunning(database: Database, copies: Copies): Promise<void> {
  await database.transaction(async (transaction) => {
    await transaction.execute(sql`set local idle_in_transaction_session_timeout = 0`);
    // It is temporary: it ends with this connection, in any case.
    await transaction.execute(sql`
      select pg_create_physical_replication_slot('session_ledger_' || pg_backend_pid(), true, true)`);
    const [began] = await transaction.execute(sql`
      select pg_walfile_name(pg_backup_start('session-ledger', fast => true)) as segment`);
    await copies.data();
    const [ended] = await transaction.execute(sql`
      select labelfile as label, pg_walfile_name(lsn) as segment
      from pg_backup_stop(wait_for_archive => false)`);
    await copies.log({
      label: String(ended?.["label"]),
      firstSegment: String(began?.["segment"]),
      lastSegment: String(ended?.["segment"]),
    });
  });
}
