import type { RpcFailure } from "../runner/failure.ts";

/** Without a key, a push whose answer was lost may be stored, and a repeat would store it twice. */
export function mayRepeat(failure: RpcFailure, { keys }: { readonly keys: boolean }): boolean {
  return failure.wasRefusedForNow || (keys && failure.wasLost);
}

/** Other lines may be accepted; a wrong session id, for example, would refuse all lines. */
export function isFaultOfLine({ code, wasRefusedForNow, violations }: RpcFailure): boolean {
  if (violations.some(({ field }) => field === "session_id")) return false;
  return (
    code === "INVALID_ARGUMENT" ||
    code === "ALREADY_EXISTS" ||
    (code === "RESOURCE_EXHAUSTED" && !wasRefusedForNow)
  );
}
