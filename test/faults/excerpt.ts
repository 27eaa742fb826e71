/** The smallest part of a history that explains a violation. */
import { type History, lastSeqOf, markOf, type PushRecord, type Row } from "../support/history.ts";
import type { Witness } from "../support/history-check.ts";

const AROUND_ROWS = 2;
const PAYLOAD_CHARS = 80;

/** The push and the rows around the number that the sentence names, as lines. */
export function excerptOf(problem: string, history: History, witness: Witness): readonly string[] {
  const mark = /mark-\d+\./.exec(problem)?.[0];
  const push = history.pushes.find(({ sent }) => sent.mark === mark);
  const marked = witness.rows.find((one) => mark !== undefined && markOf(one) === mark);
  const row = marked ?? (mark === undefined ? rowNamedIn(problem, witness) : undefined);
  const pushes = push === undefined ? [] : [push];
  const around = row === undefined ? [] : neighboursOf(row, witness);
  const of = around.flatMap(
    (one) => history.pushes.find(({ sent }) => sent.mark === markOf(one)) ?? [],
  );
  return [
    ...around.map(
      (one) => `row   ${one.sessionId} ${one.stream} ${numbersOf(one)} ${shortened(one.payload)}`,
    ),
    ...new Set([...pushes, ...of].flatMap(attemptsOf)),
  ];
}

/** `SESSION STREAM … NUMBER`, as all checks write it. */
function rowNamedIn(problem: string, { rows }: Witness): Row | undefined {
  const named = /\b([a-z]+-\d+) (messages|events)\b\D*(\d+)/.exec(problem);
  if (named === null) return undefined;
  const [, sessionId, stream, number = "0"] = named;
  const seq = BigInt(number);
  const own = rows.filter((row) => row.sessionId === sessionId && row.stream === stream);
  return own.find((row) => row.seq <= seq && seq <= lastSeqOf(row)) ?? own.at(-1);
}

function neighboursOf(row: Row, { rows }: Witness): readonly Row[] {
  const own = rows.filter((one) => one.sessionId === row.sessionId && one.stream === row.stream);
  const at = own.indexOf(row);
  return own.slice(Math.max(0, at - AROUND_ROWS), at + AROUND_ROWS + 1);
}

function attemptsOf({ sent, attempts }: PushRecord): readonly string[] {
  return attempts.map(({ began, ended, answer }) => {
    const said =
      answer.kind === "acknowledged"
        ? `seq ${answer.row.seq}${answer.deduplicated ? ", deduplicated" : ""}`
        : answer.reason;
    const key = sent.key === undefined ? "no key" : "keyed";
    return `push  ${sent.mark} (${key}) ticks ${began} to ${ended}: ${answer.kind} ${said}`;
  });
}

function numbersOf(row: Row): string {
  const last = lastSeqOf(row);
  return last === row.seq ? `${row.seq}` : `${row.seq} to ${last}`;
}

function shortened(payload: string): string {
  return payload.length > PAYLOAD_CHARS ? `${payload.slice(0, PAYLOAD_CHARS)}…` : payload;
}
