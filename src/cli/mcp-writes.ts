/** The tools of the command `mcp` that store messages of a person. */
import { hash } from "node:crypto";
import type { McpServer } from "@modelcontextprotocol/server";
import { z } from "zod";
import { SessionState } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { isObject, type JsonObject, objectsIn, parseJson } from "@session-ledger/agui/json";
import { GRAPH_INTERRUPT_ID } from "@session-ledger/agui/run-end";
import { ledger } from "@session-ledger/runner/internal/client";
import type { Connection } from "./connection.ts";
import { UsageError } from "./io.ts";
import { type Answer, id, runOf, sessionId, textIn, toolAdder } from "./mcp-tools.ts";

const SEND = z.strictObject({
  session_id: sessionId,
  text: z.string().min(1).max(100_000),
  idempotency_key: id
    .optional()
    .describe("Default: made from the session and the text, so a repeated text is stored once"),
});
const ANSWER = z.strictObject({
  session_id: sessionId,
  answers: z
    .array(
      z
        .strictObject({
          interrupt_id: id,
          approved: z.boolean().optional().describe("For an approval"),
          text: z.string().max(100_000).optional().describe("For a question"),
          value: z
            .unknown()
            .optional()
            .describe("For a question with a response_schema: JSON that fits it"),
        })
        .refine(
          ({ approved, text, value }) =>
            [approved, text, value].filter((one) => one !== undefined).length === 1,
          "Expected one of approved, text and value.",
        ),
    )
    .min(1)
    .max(100)
    .describe("One answer for each question that waits in the session"),
});

export function addWrites(server: McpServer, connection: Connection): void {
  const hints = { readOnlyHint: false, destructiveHint: false, openWorldHint: false };
  toolAdder(server, connection, { ...hints, idempotentHint: true })(
    "send_message",
    "Send a user message to the agent of a session. A runner answers it later.",
    SEND,
    sendMessage,
  );
  toolAdder(server, connection, hints)(
    "answer_question",
    "Answer what an agent asks in a session: approve or refuse, or give a text. list_inbox has the questions.",
    ANSWER,
    answerQuestion,
  );
}

async function sendMessage(
  connection: Connection,
  { session_id: session, text, idempotency_key: key }: z.output<typeof SEND>,
): Promise<Answer> {
  // A payload that is a JSON object has another meaning (docs/ag-ui.md).
  const payload = /^\s*\{/.test(text) ? JSON.stringify({ text }) : text;
  const idempotencyKey = key ?? `mcp-${hash("sha256", `${session} ${text}`, "hex")}`;
  return pushed(connection, { session, payload, idempotencyKey });
}

async function pushed(
  { client, retry }: Connection,
  { session, payload, idempotencyKey }: Record<"session" | "payload" | "idempotencyKey", string>,
): Promise<Answer> {
  const row = { sessionId: session, eventType: "user", payload, idempotencyKey };
  const stored = await client.call(ledger.pushSessionMessage, row, retry);
  const json = {
    session_id: session,
    seq: String(stored.seq),
    already_stored: stored.deduplicated,
    idempotency_key: idempotencyKey,
  };
  const text = stored.deduplicated
    ? `Message ${json.seq} of session ${session} has this already; nothing was stored. Another idempotency_key stores it again.`
    : `Stored as message ${json.seq} of session ${session}.`;
  return { json, text };
}

/**
 * Stores the message that POST /agui/sessions/{id} makes of the same answers, under the same key
 * (conversation/run-input.ts): of two answers at two doors the first counts.
 */
async function answerQuestion(
  connection: Connection,
  { session_id: session, answers }: z.output<typeof ANSWER>,
): Promise<Answer> {
  const { client, retry } = connection;
  const read = await client.call(ledger.getTranscript, { sessionId: session }, retry);
  const waiting = new Map(
    objectsIn(parseJson(read.interrupts)).map((one) => [textIn(one["id"]), one]),
  );
  if (waiting.size === 0) {
    // Without an interrupt of AG-UI in its transcript, its graph asks.
    const { state } = await client.call(ledger.getSession, { id: session }, retry);
    if (state === SessionState.WAITING_FOR_PERSON) waiting.set(GRAPH_INTERRUPT_ID, {});
  }
  const named = [...new Set(answers.map((answer) => answer.interrupt_id))];
  const open = [...waiting.keys()];
  if (named.length < answers.length || open.toSorted().join() !== named.toSorted().join()) {
    const ids = open.length === 0 ? "no question waits" : `these wait: ${open.join(", ")}`;
    throw new UsageError(
      `answers: expected one answer for each question of session ${session}; ${ids}`,
    );
  }
  const resume = answers.map((answer) => {
    const payload = payloadFor(waiting.get(answer.interrupt_id) ?? {}, answer);
    return { interruptId: answer.interrupt_id, status: "resolved", payload };
  });
  const given = waiting.has(GRAPH_INTERRUPT_ID)
    ? { forwardedProps: { command: { resume: resume[0]?.payload } } }
    : { resume };
  const run = await runOf(connection, session, undefined);
  const digest = hash("sha256", `${run.firstSeq} ${answers[0]?.interrupt_id}`, "hex");
  const payload = JSON.stringify({ threadId: session, messages: [], ...given });
  return pushed(connection, { session, payload, idempotencyKey: `resume-${digest}` });
}

/** A schema of one yes or no names the member of the answer; without one it is `approved`. */
function payloadFor(
  { responseSchema }: JsonObject,
  { approved, text, value }: z.output<typeof ANSWER>["answers"][number],
): unknown {
  if (approved === undefined) return text ?? value;
  const { type, properties } = isObject(responseSchema) ? responseSchema : {};
  if (type === "boolean") return approved;
  const names = isObject(properties) ? Object.keys(properties) : [];
  return { [names.length === 1 ? String(names[0]) : "approved"]: approved };
}
