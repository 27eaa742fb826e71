/**
 * What the conversation view shows at one moment of a session: items in the order of the
 * conversation. An item that did not change between two moments is the same object.
 */
import { senderName } from "@session-ledger/agui/canonical/user-messages";
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import type { History, RunMark } from "./history.ts";
import type { Item } from "./items.ts";
import { type CallLine, FixedLine, MessageLine, StateLine } from "./lines.ts";
import { type At, Text } from "./versions.ts";

/** The messages as the transcript has them at this moment, with feedback. */
export function messagesAt(history: History, at: At): readonly JsonObject[] {
  const messages: JsonObject[] = [];
  for (const line of history.lines) {
    if (!(line instanceof MessageLine) || !line.isAliveAt(at.seq)) continue;
    const message = line.at(at);
    const feedback = feedbackAt(history, message, at);
    messages.push(feedback.length === 0 ? message : withFeedback(message, feedback));
  }
  return messages;
}

export function itemsAt(history: History, at: At): readonly Item[] {
  const takenSeq = history.taken.at(at.seq) ?? 0;
  return history.lines.itemsAt(at, (line, into) => {
    if (line instanceof FixedLine) into.push(runItem(history, line, at));
    else if (line instanceof StateLine) into.push(stateItem(line, at));
    else if (line instanceof MessageLine && !isOnCard(history, line, at)) {
      const calls = line.callsAt(at);
      const item = messageItem(history, line, { at, takenSeq, hasCalls: calls.length > 0 });
      if (item !== undefined) into.push(item);
      const subagent = subagentOf(history, line.versionAt(at)?.fields ?? {});
      for (const call of calls)
        into.push(toolItem(line, call, { at, subagent, result: resultAt(history, call.id, at) }));
    }
  });
}

/** The card of its call shows it. */
function isOnCard(history: History, line: MessageLine, at: At): boolean {
  const { role, toolCallId } = line.versionAt(at)?.fields ?? {};
  if (role !== "tool" || resultAt(history, toolCallId, at) !== line) return false;
  const callers = history.callers.get(toolCallId) ?? [];
  return callers.some((called) => called.owner.hasAt(called, at));
}

function runItem({ answers }: History, line: FixedLine<RunMark>, at: At): Item {
  const answer = answers.get(line.key)?.at(at.seq);
  return line.made([answer], () => {
    const { key, born: seq, atMs, runId, value } = line;
    return { kind: "run", key, seq, atMs, runId, ...value, answer };
  });
}

function stateItem(line: StateLine, { seq: at }: At): Item {
  const change = line.changes.at(at);
  return line.made([change], () => {
    const { key, born: seq, atMs, runId } = line;
    const none = { change: "delta", paths: [], count: 0, lastSeq: seq } as const;
    return { kind: "state", key, seq, atMs, runId, ...(change ?? none) };
  });
}

interface Showing {
  readonly at: At;
  readonly takenSeq: number;
  readonly hasCalls: boolean;
}

/** Undefined: the message only has calls. */
function messageItem(
  history: History,
  line: MessageLine,
  { at, takenSeq, hasCalls }: Showing,
): Item | undefined {
  const version = line.versionAt(at);
  if (version === undefined) return undefined;
  const { source } = line;
  const feedback = feedbackAt(history, version.fields, at);
  const isPending = source?.by === "person" && source.seq > takenSeq;
  const isEmpty = version.content === undefined || line.contentMark(at) === 0;
  if (isEmpty && hasCalls && feedback.length === 0) return undefined;
  const branches = history.branches.get(version.fields["id"])?.seqs ?? NO_BRANCHES;
  return line.made([version, line.contentMark(at), feedback, isPending, branches], () => {
    const { key, born: seq, atMs, runId } = line;
    const subagent = subagentOf(history, version.fields);
    const base = { key, seq, atMs, runId, subagent };
    const { fields, isOpen: isStreaming } = version;
    const { role, name, activityType } = fields;
    const id = String(fields["id"]);
    const content = line.contentAt(at);
    if (role === "reasoning")
      return { kind: "thinking", ...base, id, text: textOf(content), isStreaming };
    if (role === "activity")
      return { kind: "activity", ...base, id, type: String(activityType), content };
    return {
      kind: "message",
      ...base,
      id,
      role: String(role),
      // A snapshot may repeat what a person said without the name: the row still has its sender.
      name: typeof name === "string" ? name : senderName(source?.sender),
      content,
      isStreaming,
      by: source?.by,
      messageSeq: source?.seq,
      isPending,
      sender: source?.sender,
      feedback,
      branches,
      message: { ...fields, ...(content !== undefined && { content }) },
    };
  });
}

interface Result {
  readonly at: At;
  readonly subagent: string | undefined;
  readonly result: MessageLine | undefined;
}

function toolItem(owner: MessageLine, call: CallLine, { at, subagent, result }: Result): Item {
  const version = call.versionAt(at);
  const { args, isOpen = false, settled } = version ?? {};
  const answer = result?.versionAt(at);
  const from = [version, args?.lengthAt(at), answer, result?.contentMark(at)];
  return call.made(from, () => {
    const { key, born: seq, atMs, runId } = call;
    const fields = isObject(version?.fields) ? version.fields : {};
    const called = isObject(fields["function"]) ? fields["function"] : {};
    const given = result?.at(at);
    const outcome = given === undefined ? settled : isFailure(given) ? "failed" : "done";
    return {
      kind: "tool",
      key,
      seq,
      atMs,
      runId,
      subagent,
      id: String(call.id),
      messageId: String(owner.versionAt(at)?.fields["id"]),
      name: textOf(called["name"]),
      args: args instanceof Text ? args.at(at) : textOf(called["arguments"]),
      isStreaming: isOpen,
      status: outcome ?? "pending",
      result: given,
      resultMs: result?.born === seq ? undefined : result?.atMs,
    };
  });
}

function subagentOf({ subagents }: History, { subagentRunId: id }: JsonObject): string | undefined {
  return typeof id === "string" ? (subagents.get(id) ?? id) : undefined;
}

/** The newest result of the call. */
function resultAt({ results }: History, callId: unknown, at: At): MessageLine | undefined {
  return results.get(callId)?.findLast((line) => {
    if (!line.isAliveAt(at.seq)) return false;
    const { role, toolCallId } = line.versionAt(at)?.fields ?? {};
    return role === "tool" && toolCallId === callId;
  });
}

/** A tool's message has the failure in `error`; a result in the log has metadata alone. */
function isFailure({ error, metadata }: JsonObject): boolean {
  const marked = isObject(metadata) && (metadata["error"] ?? metadata["isError"]);
  return (typeof error === "string" && error !== "") || (marked !== false && Boolean(marked));
}

const NONE: readonly JsonObject[] = [];
const NO_BRANCHES: readonly number[] = [];

function feedbackAt({ feedback }: History, { id }: JsonObject, { seq }: At): readonly JsonObject[] {
  if (feedback.size === 0 || typeof id !== "string") return NONE;
  return feedback.get(id)?.at(seq) ?? NONE;
}

function withFeedback(message: JsonObject, feedback: readonly JsonObject[]): JsonObject {
  const metadata = isObject(message["metadata"]) ? message["metadata"] : {};
  const session = isObject(metadata["session"]) ? metadata["session"] : {};
  return { ...message, metadata: { ...metadata, session: { ...session, feedback } } };
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}
