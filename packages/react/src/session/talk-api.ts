/** What a person does in a session: one request each, and each may be repeated. */
import { API, call, post } from "../api/client.ts";
import type { Connection } from "../api/connection.ts";
import {
  type Answer,
  answering,
  type AttachedFile,
  branchPayload,
  type Branching,
  payloadOf,
} from "../model/sending.ts";

interface InSession {
  readonly sessionId: string;
}

interface Typed extends InSession {
  readonly text: string;
  readonly files: readonly AttachedFile[];
  /** The name that readers see; empty: none. */
  readonly name: string;
  readonly key: string;
}

export async function sendMessage(
  connection: Connection,
  { sessionId, text, files, name, key }: Typed,
): Promise<void> {
  const sender = name === "" ? {} : { sender: { display_name: name } };
  const headers = { "idempotency-key": key };
  await post(
    connection,
    pathOf(sessionId, "messages"),
    { payload: payloadOf(text, files), ...sender },
    { headers },
  );
}

interface Branched extends InSession {
  readonly branch: Branching;
  readonly key: string;
}

export async function sendBranch(
  connection: Connection,
  { sessionId, branch, key }: Branched,
): Promise<void> {
  const headers = { "idempotency-key": key };
  await post(
    connection,
    pathOf(sessionId, "messages"),
    { payload: branchPayload(branch) },
    { headers },
  );
}

interface Cancelled extends InSession {
  readonly runId: string;
  readonly reason: string;
}

export async function cancelRun(
  connection: Connection,
  { sessionId, runId, reason }: Cancelled,
): Promise<void> {
  const body = reason.trim() === "" ? {} : { reason: reason.trim() };
  await post(connection, pathOf(sessionId, "runs", runId, "cancel"), body);
}

interface Answered extends InSession {
  readonly answers: readonly (readonly [interruptId: string, answer: Answer])[];
}

/** Resolves when the answers are stored; the page follows the session already. */
export async function sendAnswers(
  connection: Connection,
  { sessionId, answers }: Answered,
): Promise<void> {
  const response = await call(connection, `/agui/sessions/${encodeURIComponent(sessionId)}`, {
    headers: { "content-type": "application/json", accept: "text/event-stream" },
    init: { method: "POST", body: JSON.stringify(answering(sessionId, answers)) },
  });
  await response.body?.cancel();
}

interface Thought extends InSession {
  readonly messageId: string;
  readonly kind: "thumbs_up" | "thumbs_down";
  readonly comment: string;
}

export async function giveFeedback(
  connection: Connection,
  { sessionId, messageId, ...thought }: Thought,
): Promise<void> {
  await post(connection, pathOf(sessionId, "messages", messageId, "feedback"), thought);
}

interface Forked extends InSession {
  readonly key: string;
  readonly atSeq: number;
}

/** The id of the fork. */
export async function forkSession(
  connection: Connection,
  { sessionId, key, ...fork }: Forked,
): Promise<string> {
  const headers = { "idempotency-key": key };
  const path = pathOf(sessionId, "fork");
  const { metadata } = await post<{ metadata: { id: string } }>(connection, path, fork, {
    headers,
  });
  return metadata.id;
}

function pathOf(...parts: readonly string[]): string {
  return `${API}/sessions/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}
