import { EventEmitter } from "node:events";
import { CallerMemory } from "../../src/auth/caller-memory.ts";
import { ANONYMOUS, type Principal } from "../../src/auth/principal.ts";
import { FairShare } from "../../src/base/fair-share.ts";
import type { CallContext } from "../../src/contract/context.ts";

/** A call of the named caller on its own connection. A shared limit can end it. */
export function callOf(id: string): CallContext {
  const connection = new CallerMemory(new FairShare({ max: 1e9 }), { asks: true }).of(
    new EventEmitter(),
  );
  const controller = new AbortController();
  const memory = connection.call((error) => controller.abort(error));
  const principal: Principal = { ...ANONYMOUS, kind: "static", id };
  return { principal, signal: controller.signal, hasEnded: false, memory };
}
