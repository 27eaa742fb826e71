import { createContext, useContext } from "react";
import type { SessionLog } from "../model/log.ts";
import type { Cursor } from "../model/scrub.ts";
import type { LinkTarget } from "../ui/link.tsx";

export interface Rights {
  readonly maySend: boolean;
  readonly mayCancel: boolean;
  readonly mayGiveFeedback: boolean;
  readonly mayFork: boolean;
  /** The reader in `by` of feedback (docs/security.md). */
  readonly actor: string;
}

/** Other views of the app around this one; a link without its target is plain text, or left out. */
export interface AppLinks {
  readonly session?: (id: string, place?: { readonly at?: string | undefined }) => LinkTarget;
  readonly compare?: LinkTarget;
  readonly all?: LinkTarget;
}

export interface InSession {
  readonly sessionId: string;
  readonly log: SessionLog;
  readonly rights: Rights;
  readonly moveTo: (cursor: Cursor) => void;
  readonly links: AppLinks;
  /** Opens the session again, after a token has ended. */
  readonly restart: () => void;
}

const Context = createContext<InSession | undefined>(undefined);

const CursorContext = createContext<Cursor>("live");

/** Separate, because it changes many times a second while the session is played. */
export const CursorProvider = CursorContext.Provider;

export function useShownCursor(): Cursor {
  return useContext(CursorContext);
}

/** For the parts of a session's view. */
export const SessionContext = Context.Provider;

export function useInSession(): InSession {
  const session = useContext(Context);
  if (session === undefined) throw new Error("not inside of a session");
  return session;
}
