/**
 * Whether an input answers a message again, or puts another one in its place. A client that does either
 * cuts its list:
 *
 *   log     u1  a1  u2  a2
 *   input   u1  a1  u2         the last message is known, and was answered: regenerate
 *   input   u1  a1  u3         u2 is missing, and u3 is new: an edit of u2
 *
 * A list that lacks something else is that of a client that has not seen it yet: an agent's message, or
 * one that no run has taken.
 */
import { isDeepStrictEqual } from "node:util";
import { parseExact } from "@session-ledger/agui/exact-json";
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import { ServiceError } from "@session-ledger/base/errors";
import type { Snapshot } from "./snapshot.ts";
import type { ClientMessage } from "./client-messages.ts";

/** The branch of a message, in its metadata. */
export type BranchMark = { readonly regenerates: string } | { readonly edits: string };

/** The mark of a known message at the end of an input that asks for a new run. Undefined: it is joined. */
export function regenerationOf(
  { id, text }: { readonly id: unknown; readonly text: string },
  current: Snapshot,
): BranchMark | undefined {
  if (typeof id !== "string" || isOpen(current)) return undefined;
  if (current.waitingAt(id) !== undefined || current.branchedAt(id) !== undefined) return undefined;
  const message = current.messages.find((one) => one["id"] === id);
  if (message === undefined) throw notInBranch(id);
  return isSame(message, text) ? { regenerates: id } : { edits: id };
}

/** The mark of a new message of a person; undefined: it follows the conversation. */
export function editOf(
  id: unknown,
  listed: readonly ClientMessage[],
  current: Snapshot,
): BranchMark | undefined {
  if (isOpen(current)) return undefined;
  const place = listed.findIndex((one) => one.id === id);
  const before = new Set(listed.slice(0, place).map((one) => one.id));
  const log = current.messages.filter(({ role }) => SPOKEN.has(role));
  const last = log.findLastIndex((one) => before.has(String(one["id"])));
  const next = log[last + 1];
  if (last === -1 || next?.["role"] !== "user") return undefined;
  const edited = String(next["id"]);
  return current.waitingAt(edited) === undefined ? { edits: edited } : undefined;
}

const SPOKEN: ReadonlySet<unknown> = new Set(["user", "assistant", "tool"]);

function isOpen({ run }: Snapshot): boolean {
  return run?.status === "running";
}

/** Its name and metadata are those of the log. */
function isSame({ content }: JsonObject, text: string): boolean {
  const sent = parseExact(text);
  return isObject(sent) && isDeepStrictEqual(sent["content"], content);
}

export function withMark(text: string, mark: BranchMark): string {
  const message = parseExact(text);
  if (!isObject(message)) return text;
  const { metadata } = message;
  return JSON.stringify({ ...message, metadata: { ...(isObject(metadata) && metadata), ...mark } });
}

function notInBranch(id: string): ServiceError {
  const message = `the message ${id} is not in the newest branch of the conversation: connect again, or fork the session where it is`;
  return new ServiceError("failed_precondition", "MESSAGE_NOT_IN_BRANCH", message);
}
