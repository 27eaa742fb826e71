/**
 * What one instance tells the others: which sessions have got how far, as one line of ASCII.
 *
 *   1 <who says it> <session>/<messages>/<events> <session>/<messages>/<events>/d …
 *   1 <who says it> *
 *
 * Numbers are heads, 0 where nothing is said; `d` is a deletion; `*` says that anything may have
 * happened. The 1 is the form. Whatever cannot be read, the forms of later versions among it, is a
 * `*`: it was meant to wake somebody.
 */
import type { SessionHead } from "../../store/rows.ts";

export interface Announcement {
  /** The instance it comes from; empty when it could not be read. */
  readonly from: string;
  readonly sessions: ReadonlyMap<string, SessionHead> | "any";
}

/** PostgreSQL takes a NOTIFY of fewer than 8,000 bytes. */
export const ANNOUNCEMENT_BYTES_MAX = 7_999;

const FORM = "1";
const ANY = "*";
/** What a session id may hold to be written here, all of it one byte: more than the contract allows. */
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
