import type { Metadata } from "@grpc/grpc-js";
import type { Authenticator } from "../auth/authenticator.ts";
import type { CallRecords } from "./call-records.ts";
import type { RequestParts } from "./incoming/one-request.ts";
import type { OpenCalls } from "./open-calls.ts";
import type { ServedCall } from "./served-call.ts";

export type Callers = Pick<Authenticator, "asks" | "authenticate">;

/** What is needed to answer the calls of one method. */
export interface MethodDeps {
  readonly openCalls: OpenCalls;
  readonly callers: Callers;
  readonly incoming: RequestParts;
  readonly records: CallRecords;
}

/** Goes on with the call when it is known who makes it, which for most calls is at once. */
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
