/**
 * Defects that the harness has to find, as edits of the sources: small, plausible, and each against a
 * decision of a specification. test/e2e/faults.test.ts checks that the edited code exists.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { FaultKind } from "./plan.ts";

export interface Edit {
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  /** The number of places. */
  readonly times: number;
}

export interface Defect {
  readonly name: string;
  readonly what: string;
  readonly edits: readonly Edit[];
  /** The faults that provoke it. */
  readonly kinds: readonly FaultKind[];
  /** A violation that names it. */
  readonly expected: RegExp;
}

const APPEND = "src/store/migrations/append-0005.sql";

const KEPT_KEYS = `(SELECT array_agg(e.idempotency_key) FROM session_events e
          JOIN json_to_recordset(conditions) AS k(session integer, key text)
          ON e.session_id = session_ids[k.session] AND e.idempotency_key = k.key)
        || (SELECT array_agg(m.idempotency_key) FROM session_messages m
          JOIN json_to_recordset(conditions) AS k(session integer, key text)
          ON m.session_id = session_ids[k.session] AND m.idempotency_key = k.key)`;

export const DEFECTS: readonly Defect[] = [
  {
    name: "acknowledged_before_commit",
    what: "a push is acknowledged when its rows are written, and committed afterwards",
    edits: [
      {
        file: "src/store/database.ts",
        find: "return answered((pool) => pool.client.unsafe<Fields[]>(text, [...values], how));",
        replace: `return answered(
      (pool) =>
        new Promise<readonly Fields[]>((resolve, reject) => {
          pool.client
            .begin(async (own) => resolve(await own.unsafe<Fields[]>(text, [...values], how)))
            .catch(reject);
        }),
    );`,
        times: 1,
      },
    ],
    kinds: ["kill_postgres", "slow_disk"],
    expected:
      /acknowledged, and not there|acknowledged \d+, opened|is lost|there is nothing more|row, which is not there|nobody sent|opened at|CURSOR_BEYOND_HEAD/,
  },
  {
    name: "flushed_later",
    what: "a commit does not wait for the disk",
    edits: [
      {
        file: "src/store/database.ts",
        find: 'synchronous_commit: "on",',
        replace: 'synchronous_commit: "off",',
        times: 1,
      },
      {
        file: "src/store/database.ts",
        find: 'if (commit === "off") return "synchronous_commit is off, expected on";',
        replace: "",
        times: 1,
      },
    ],
    kinds: ["kill_postgres"],
    expected: /acknowledged, and not there|is lost|there is nothing more|row, which is not there/,
  },
  {
    name: "no_poll",
    what: "watchers are woken by notifications alone, and nobody looks whether one was lost",
    edits: [
      {
        file: "src/live/hints/head-poll.ts",
        find: "if (!this.#polling) void this.#poll();",
        replace: "",
        times: 1,
      },
    ],
    kinds: ["listen_half_open", "listen_dropped"],
    expected: /is not delivered|stands at/,
  },
  {
    name: "feed_up_to_now",
    what: "a feed reads up to the clock, and does not wait for transactions that write",
    edits: [
      {
        file: "src/live/horizon.ts",
        find: "if (look.writers.length === 0) return",
        replace: "if (look.writers.length >= 0) return",
        times: 1,
      },
    ],
    kinds: ["slow_disk", "session_locked"],
    expected: /feed of \w+: has not/,
  },
  {
    name: "window_with_holes",
    what: "a row is appended to the window when its number is higher, and not only when it is the next",
    edits: [
      {
        file: "src/live/window.ts",
        find: "if (row.firstSeq !== head + 1n) continue;",
        replace: "if (row.firstSeq <= head) continue;",
        times: 1,
      },
    ],
    kinds: ["listen_dropped", "session_locked"],
    expected: /comes next|row \d+ after/,
  },
  {
    name: "locked_and_looked_up_at_once",
    what: "the statement that locks the session also looks for the key, with the snapshot from before it waited",
    edits: [
      {
        file: APPEND,
        find: "  locked_ids text[];",
        replace: "  early text[];\n  locked_ids text[];",
        times: 1,
      },
      {
        file: APPEND,
        find: "SELECT array_agg(s.id),",
        replace: `SELECT ${KEPT_KEYS}, array_agg(s.id),`,
        times: 1,
      },
      {
        file: APPEND,
        find: "SELECT ARRAY[s.id],",
        replace: `SELECT ${KEPT_KEYS}, ARRAY[s.id],`,
        times: 2,
      },
      { file: APPEND, find: "INTO locked_ids,", replace: "INTO early, locked_ids,", times: 3 },
      {
        file: APPEND,
        find: "e.idempotency_key = push.key LIMIT 1",
        replace: "e.idempotency_key = push.key AND e.idempotency_key = ANY (early) LIMIT 1",
        times: 1,
      },
      {
        file: APPEND,
        find: "m.idempotency_key = push.key LIMIT 1",
        replace: "m.idempotency_key = push.key AND m.idempotency_key = ANY (early) LIMIT 1",
        times: 1,
      },
      {
        file: APPEND,
        find: "WHERE verdicts IS NULL OR verdicts[r.session] IS NULL;",
        replace: "WHERE verdicts IS NULL OR verdicts[r.session] IS NULL ON CONFLICT DO NOTHING;",
        times: 2,
      },
    ],
    kinds: ["session_locked", "lost_answers"],
    expected: /answered as new more than once|does not connect|counter at/,
  },
  {
    name: "unknown_commit_repeated",
    what: "a push without a key is sent again when nobody knows whether it was committed",
    edits: [
      {
        file: "src/ingest/queue.ts",
        find: "return key !== undefined || range !== undefined || seen !== undefined;",
        replace: "return key !== undefined || range !== undefined || seen !== undefined || true;",
        times: 1,
      },
    ],
    kinds: ["lost_answers", "connections_reset", "slow_disk"],
    expected: /\d+ rows, and not \d+/,
  },
  {
    name: "neighbours_undone",
    what: "a session of a batch that is refused undoes the pushes of the other sessions",
    edits: [
      {
        file: APPEND,
        find: "WHERE verdicts IS NULL OR verdicts[r.session] IS NULL;",
        replace: "WHERE verdicts IS NULL;",
        times: 2,
      },
    ],
    kinds: ["session_locked", "brims_locked"],
    expected:
      /acknowledged, and not there|does not connect|counter at|there is nothing more|row, which is not there|rows, and not/,
  },
  {
    name: "row_left_out_of_chain",
    what: "the first event of a batch is stored, and not linked to the chain of its session",
    edits: [
      {
        file: APPEND,
        find: "FOR item IN 1..cardinality(event_sessions) LOOP",
        replace: "FOR item IN 2..cardinality(event_sessions) LOOP",
        times: 1,
      },
    ],
    kinds: ["session_locked"],
    expected: /verify of .* are not those of the chain/,
  },
  {
    name: "claimed_without_compare",
    what: "a claim is stored in any state of the session, and not only in the one that it was made for",
    edits: [
      {
        file: APPEND,
        find: "verdict := 'turn_moved';",
        replace: "verdict := NULL;",
        times: 1,
      },
    ],
    kinds: ["session_locked", "lost_answers"],
    expected: /begins while|had its turn before|is not the next|stands at message/,
  },
  {
    name: "cancel_only_in_memory",
    what: "a replica ends only the cancelled runs whose cancel it took itself",
    edits: [
      {
        file: "src/handlers/turns/cancel-run.ts",
        find: 'const EVENT = "cancel_requested";',
        replace: 'const EVENT = "cancel_requested";\nexport const TAKEN = new Set<string>();',
        times: 1,
      },
      {
        file: "src/handlers/turns/cancel-run.ts",
        find: "parts.onCancel();",
        replace: "TAKEN.add(runId);\n      parts.onCancel();",
        times: 1,
      },
      {
        file: "src/handlers/turns/cancels.ts",
        find: "import { cancelTextOf }",
        replace: "import { cancelTextOf, TAKEN }",
        times: 1,
      },
      {
        file: "src/handlers/turns/cancels.ts",
        find: "yield* page;",
        replace: "yield* page.filter(({ runId }) => TAKEN.has(runId));",
        times: 1,
      },
    ],
    kinds: ["kill_replica", "restart_replica"],
    expected: /was cancelled, and is open|and the run has 0 ends/,
  },
  {
    name: "erased_before_the_import",
    what: "a session is marked as erased without a look at what an import has stored meanwhile",
    edits: [
      {
        file: "src/maintenance/erase.ts",
        find: `
        and message_seq = \${String(heads["message_seq"])}::bigint
        and event_seq = \${String(heads["event_seq"])}::bigint returning id`,
        replace: " returning id",
        times: 1,
      },
    ],
    kinds: ["erased_while_imported"],
    expected: /erased, and has \d+ rows/,
  },
  {
    name: "uncharged_body",
    what: "the body of an HTTP request that is not whole is not charged to its caller",
    edits: [
      {
        file: "src/http/plumbing/json-body.ts",
        find: 'if (served.memory?.resize("request", declaredBytes) === false) {',
        replace: "if (declaredBytes < 0) {",
        times: 1,
      },
      {
        file: "src/http/plumbing/json-body.ts",
        find: 'if (served.memory?.resize("request", roomBytes) === false) return leave(serverBusy());',
        replace: "",
        times: 1,
      },
    ],
    kinds: ["bodies_held"],
    expected: /took \d+ MiB of memory/,
  },
  {
    name: "window_that_keeps_a_lost_tail",
    what: "watches go on when the database has gone back: windows keep rows that are lost",
    edits: [
      {
        file: "src/live/tail.ts",
        find: "  suspect(): void {\n    if (this.#closed) return;",
        replace: "  suspect(): void {\n    if (!this.#closed) return;",
        times: 1,
      },
      {
        file: "src/live/live.ts",
        find: "if (tail.endReason === undefined && headOf(head, tail.stream) < seen) this.#fail(sessionId);",
        replace: "",
        times: 1,
      },
    ],
    kinds: ["promote_standby"],
    expected: /another id|row, which is not there|row \d+ after|stands at/,
  },
];

/** The place of the edit; throws if the sources no longer have the text. */
export function placeOf(edit: Edit, root: string): string {
  const file = join(root, edit.file);
  const times = readFileSync(file, "utf8").split(edit.find).length - 1;
  if (times !== edit.times) {
    throw new Error(`${file} holds ${JSON.stringify(edit.find)} ${times} times, not ${edit.times}`);
  }
  return file;
}
