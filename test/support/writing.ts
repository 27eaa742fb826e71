/** A session writer for tests: its records, its problems, and the rows of the service. */
import { createLedgerClient } from "@session-ledger/runner/internal/client";
import { readRows } from "@session-ledger/runner/internal/session-reader";
import { createSessionWriter } from "@session-ledger/runner/internal/writer/writer";
import type {
  SessionWriter,
  SessionWriterOptions,
  WriterProblem,
} from "@session-ledger/runner/internal/writer/types";

export interface Observed {
  readonly writer: SessionWriter;
  readonly problems: readonly WriterProblem[];
  /** Resolves with the first problem of a kind, also an earlier one. */
  readonly problem: <K extends WriterProblem["kind"]>(
    kind: K,
  ) => Promise<Extract<WriterProblem, { kind: K }>>;
}

export function observedWriter(options: SessionWriterOptions): Observed {
  const problems: WriterProblem[] = [];
  const waiting = new Set<() => void>();
  const writer = createSessionWriter({
    ...options,
    onProblem: (problem) => {
      problems.push(problem);
      for (const look of waiting) look();
    },
  });
  return {
    writer,
    problems,
    problem: (kind) => {
      const { promise, resolve } =
        Promise.withResolvers<Extract<WriterProblem, { kind: typeof kind }>>();
      const look = (): void => {
        const found = problems.find((one) => isOf(one, kind));
        if (found === undefined || !isOf(found, kind)) return;
        waiting.delete(look);
        resolve(found);
      };
      waiting.add(look);
      look();
      return promise;
    },
  };
}

function isOf<K extends WriterProblem["kind"]>(
  problem: WriterProblem,
  kind: K,
): problem is Extract<WriterProblem, { kind: K }> {
  return problem.kind === kind;
}

/** Calls a method with any value, as an untyped program does. */
export function calling(writer: SessionWriter, method: keyof SessionWriter, ...args: unknown[]) {
  const called: unknown = writer[method];
  if (typeof called !== "function") throw new Error(`${method} is no method`);
  const answer: unknown = Reflect.apply(called, writer, args);
  return answer;
}

/** One run of an agent with this number of words; no two payloads of all runs are equal. */
export function eventsOfRun(run: number, words: number): readonly string[] {
  const runId = `run-${run}`;
  const messageId = `message-${run}`;
  const events: readonly object[] = [
    { type: "RUN_STARTED", threadId: "thread", runId },
    { type: "TEXT_MESSAGE_START", messageId, role: "assistant" },
    ...Array.from({ length: words }, (_, at) => ({
      type: "TEXT_MESSAGE_CONTENT",
      messageId,
      delta: `${run}.${at} `,
    })),
    { type: "TEXT_MESSAGE_END", messageId },
    { type: "RUN_FINISHED", threadId: "thread", runId },
  ];
  return events.map((event) => JSON.stringify(event));
}

/** The messages of a run. */
export function messagesOfRun(run: number, words: number): readonly string[] {
  const text = Array.from({ length: words }, (_, at) => `${run}.${at} `).join("");
  return ['{"event":"run_started"}', text, '{"event":"run_finished"}'];
}

/** Payloads of a session as a reader gets them: every raw event, or every message. */
export async function payloadsOf(
  address: string,
  { sessionId, stream }: { readonly sessionId: string; readonly stream: "events" | "messages" },
): Promise<readonly string[]> {
  const client = createLedgerClient({ address });
  const payloads: string[] = [];
  const expand = stream === "events" ? { expand: true } : {};
  const request = { stream, sessionId, afterSeq: 0n, ...expand };
  for await (const row of readRows(client, request, { retryForMs: 10_000 })) {
    payloads.push(row.payload);
  }
  client.close();
  return payloads;
}
