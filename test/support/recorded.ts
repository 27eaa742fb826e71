/**
 * Streams through the command line and back: pushes them, reports refusals, and computes independently
 * what AG-UI makes of an event (a second implementation, which shares no code with src/agui).
 */
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { createLedgerClient } from "@session-ledger/runner/internal/client";
import { readRows } from "@session-ledger/runner/internal/session-reader";
import { isEvent } from "@session-ledger/runner/internal/rows";
import { runHere } from "./command-line.ts";
import type { Row } from "./history.ts";
import { rowOfWire } from "./history-clients.ts";
import type { Stream, StreamEvent } from "./streams.ts";

const summarySchema = z.object({
  lines: z.number(),
  pushed: z.number(),
  deduplicated: z.number(),
  refused: z.number(),
  lastSeq: z.string(),
});

export interface PushRun {
  readonly exitCode: number;
  readonly summary: z.infer<typeof summarySchema>;
  /** The numbers of the refused lines, from 1. */
  readonly refusedLines: readonly number[];
  readonly stderr: string;
}

/** The command runs in this process: starting one would take most of the time of a stream. */
export async function pushLines(
  address: string,
  { sessionId, lines }: { readonly sessionId: string; readonly lines: readonly string[] },
): Promise<PushRun> {
  const args = ["push", "--session", sessionId, "--address", address, "--json"];
  return pushRun(await runHere(args, { input: lines.map((line) => `${line}\n`).join("") }));
}

/** The output of `push --json`. */
export function pushRun(result: {
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
}): PushRun {
  const { stdout, stderr } = result;
  if (stdout === "") throw new Error(`no summary: ${stderr}`);
  return {
    exitCode: result.exitCode ?? -1,
    summary: summarySchema.parse(JSON.parse(stdout)),
    refusedLines: [...stderr.matchAll(/line (\d+) refused/g)].map(([, line]) => Number(line)),
    stderr,
  };
}

/** All event rows of a session, as a client reads them. */
export async function eventRowsOf(address: string, sessionId: string): Promise<readonly Row[]> {
  const client = createLedgerClient({ address });
  const rows: Row[] = [];
  try {
    const request = { stream: "events", sessionId, afterSeq: 0n } as const;
    for await (const row of readRows(client, request, { retryForMs: 0 })) {
      if (isEvent(row)) rows.push(rowOfWire(row));
    }
  } finally {
    client.close();
  }
  return rows;
}

export function linesOf({ events }: Stream): readonly string[] {
  return events.map(({ payload }) => payload);
}

/**
 * Events of the recorded agents that no version of the protocol accepts: unknown types, and missing
 * fields that every version requires. (packages `@ag-ui/core` 0.0.57 to 1.0.0, `events.ts`)
 */
export function noVersionAccepts({ eventType, payload }: StreamEvent): boolean {
  const event = z.record(z.string(), z.unknown()).parse(named(JSON.parse(payload)));
  const isMissing = (...fields: readonly string[]): boolean =>
    fields.some((field) => typeof event[field] !== "string");
  switch (eventType) {
    case "USAGE_METADATA":
      return true;
    case "TOOL_CALL_RESULT":
      return isMissing("messageId", "toolCallId", "content");
    case "RUN_ERROR":
      return isMissing("message");
    default:
      return false;
  }
}

/** Fields of users and providers: their content is kept, null or not. */
const OPAQUE: ReadonlySet<string> = new Set([
  "content",
  "delta",
  "event",
  "forwardedProps",
  "metadata",
  "patch",
  "payload",
  "rawEvent",
  "snapshot",
  "state",
  "value",
]);

/** Optional fields that producers in Python send as null. */
const OPTIONAL: ReadonlySet<string> = new Set([
  "encryptedValue",
  "error",
  "name",
  "outcome",
  "parentMessageId",
  "parentRunId",
  "rawEvent",
  "result",
  "timestamp",
]);

/**
 * The text that a client has to read for an event: known fields in camelCase, no meaningless nulls,
 * whole milliseconds; and exactly the sent text if it has this form already.
 */
export function expectedOf({ payload }: StreamEvent): {
  readonly text: string | undefined;
  readonly value: unknown;
} {
  const sent: unknown = JSON.parse(payload);
  const value = spelled(named(sent));
  return { text: isDeepStrictEqual(sent, value) ? payload : undefined, value };
}

/** Some producers have their own name for a required field; a value that is no text is its JSON. */
const OWN_NAMES = new Map([
  ["TOOL_CALL_RESULT", ["result", "content"]],
  ["RUN_ERROR", ["error", "message"]],
]);

function named(sent: unknown): unknown {
  if (typeof sent !== "object" || sent === null || !("type" in sent)) return sent;
  const [from, to] = OWN_NAMES.get(String(sent.type)) ?? [];
  if (from === undefined || to === undefined || to in sent) return sent;
  const { [from]: value, ...rest }: Record<string, unknown> = { ...sent };
  if (value === undefined || value === null) return sent;
  return { ...rest, [to]: typeof value === "string" ? value : JSON.stringify(value) };
}

function spelled(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(spelled);
  if (typeof value !== "object" || value === null) return value;
  const isReasoning = "type" in value && value.type === "REASONING_MESSAGE_START";
  const fields = Object.entries(value).flatMap(([key, one]): readonly [string, unknown][] => {
    const name = key.replaceAll(/_([a-z])/g, (_, letter) => upper(letter));
    if (one === null) return OPTIONAL.has(name) ? [] : [[key, one]];
    if (OPAQUE.has(name)) return [[name, one]];
    if (name === "timestamp" && typeof one === "number") return [[name, Math.round(one)]];
    if (name === "role" && isReasoning) return [[name, "reasoning"]];
    return [[name, spelled(one)]];
  });
  return Object.fromEntries(fields);
}

function upper(letter: unknown): string {
  return String(letter).toUpperCase();
}

export interface AgentFigures {
  readonly streams: number;
  readonly accepted: number;
  /** Refusals by type. */
  readonly refused: ReadonlyMap<string, number>;
}

/** One line for each agent, for people. */
export function figuresTable(figures: ReadonlyMap<string, AgentFigures>): string {
  const rows = [...figures].map(([agent, { streams, accepted, refused }]) => [
    agent,
    String(streams),
    String(accepted),
    [...refused].map(([type, count]) => `${type} ${count}`).join(", ") || "none",
  ]);
  const all = [["agent", "streams", "accepted", "refused"], ...rows];
  const widths = [0, 1, 2].map((at) => Math.max(...all.map((row) => row[at]?.length ?? 0)));
  return all
    .map((row) => row.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join("  "))
    .join("\n");
}
