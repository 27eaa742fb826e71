/** The states of a session, in the words of the store, of HTTP and of commands, and as the contract has them. */
import { SessionState } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type SessionState as StateName, STATE_NAMES } from "../store/sessions.ts";

export { STATE_NAMES };

export const STATES = {
  running: SessionState.RUNNING,
  waiting_for_runner: SessionState.WAITING_FOR_RUNNER,
  waiting_for_person: SessionState.WAITING_FOR_PERSON,
  failed: SessionState.FAILED,
  cancelled: SessionState.CANCELLED,
  idle: SessionState.IDLE,
} as const satisfies Record<StateName, SessionState>;

/** Undefined: any. */
export function stateNameOf(state: SessionState): StateName | undefined {
  return STATE_NAMES.find((name) => STATES[name] === state);
}
