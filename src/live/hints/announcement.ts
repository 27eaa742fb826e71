/**
 * The text that one instance sends to the others: sessions and their heads, as one line of ASCII.
 *
 *   1 <the sender> <session>/<messages>/<events> <session>/<messages>/<events>/d …
 *   1 <the sender> *
 *
 * The numbers are heads; 0 means "not stated". `d` is a deletion. `*` means that anything may have
 * happened. The leading 1 is the version of the format. A text that cannot be decoded (for example
 * from a later version) counts as `*`, because its sender wanted to wake watchers.
 */
import type { SessionHead } from "../../store/rows.ts";

export interface Announcement {
  /** The instance that sent it; empty when the text could not be decoded. */
  readonly from: string;
  readonly sessions: ReadonlyMap<string, SessionHead> | "any";
}

/** PostgreSQL takes a NOTIFY of fewer than 8,000 bytes. */
export const ANNOUNCEMENT_BYTES_MAX = 7_999;

const FORM = "1";
const ANY = "*";
/**
 * The characters that a session id may have in an announcement, all of one byte. The contract
 * allows fewer.
 */
const ID_FORM = /^[!-.0-~]+$/;
const ENTRY_FORM = /^([!-.0-~]+)\/(\d{1,19})\/(\d{1,19})(\/d)?$/;

export function encodeAnnouncement({ from, sessions }: Announcement): string {
  const any = `${FORM} ${from} ${ANY}`;
  if (sessions === "any") return any;
  let text = `${FORM} ${from}`;
  for (const [sessionId, { messageSeq, eventSeq, deleted }] of sessions) {
    if (!ID_FORM.test(sessionId)) return any;
    text += ` ${sessionId}/${messageSeq}/${eventSeq}${deleted ? "/d" : ""}`;
    if (text.length > ANNOUNCEMENT_BYTES_MAX) return any;
  }
  return text;
}

/** Takes any text; never throws. */
export function decodeAnnouncement(text: string): Announcement {
  if (text.length > ANNOUNCEMENT_BYTES_MAX) return UNREADABLE;
  const [form, from, ...entries] = text.split(" ");
  if (form !== FORM || from === undefined) return UNREADABLE;
  const sessions = new Map<string, SessionHead>();
  for (const entry of entries) {
    const [, sessionId, messages, events, deletion] = ENTRY_FORM.exec(entry) ?? [];
    if (sessionId === undefined || messages === undefined || events === undefined) {
      return { from, sessions: "any" };
    }
    const deleted = deletion !== undefined;
    sessions.set(sessionId, { messageSeq: BigInt(messages), eventSeq: BigInt(events), deleted });
  }
  return { from, sessions };
}

const UNREADABLE: Announcement = { from: "", sessions: "any" };
