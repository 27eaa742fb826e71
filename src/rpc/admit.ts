import type { Metadata } from "@grpc/grpc-js";
import type { Authenticator } from "../auth/authenticator.ts";
import type { MethodRecords } from "./call-records.ts";
import type { RequestParts } from "./incoming/one-request.ts";
import type { OpenCalls } from "./open-calls.ts";
import type { ServedCall } from "./served-call.ts";

export type Callers = Pick<Authenticator, "asks" | "authenticate">;

/** The parts that the adapter of a method needs. */
export interface MethodDeps {
  readonly openCalls: OpenCalls;
  readonly callers: Callers;
  readonly incoming: RequestParts;
  readonly records: MethodRecords;
}

/** Continues the call when its caller is known, which is at once for most calls. */
export function admit(
  call: ServedCall,
  { callers, metadata }: { readonly callers: Callers; readonly metadata: Metadata },
  goOn: () => void,
): void {
  if (!callers.asks) return goOn();
  try {
    const principal = callers.authenticate(metadata.get("authorization").map(String));
    if (principal instanceof Promise) return void admitLater(call, principal, goOn);
    call.madeBy(principal);
  } catch (error) {
    return call.fail(error);
  }
  goOn();
}

async function admitLater(
  call: ServedCall,
  principal: ReturnType<Callers["authenticate"]>,
  goOn: () => void,
): Promise<void> {
  try {
    call.madeBy(await principal);
  } catch (error) {
    return call.fail(error);
  }
  if (!call.hasEnded) goOn();
}
