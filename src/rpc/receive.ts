import type { Metadata, ServerInterceptingCallInterface } from "@grpc/grpc-js";
import type { Authenticator } from "../auth/authenticator.ts";
import { invalidArgument, ServiceError } from "@session-ledger/base/errors";
import { type MethodRecords, ServedCall } from "./call.ts";
import type { OpenCalls } from "./open-calls.ts";
import { type IncomingCall, OneRequest, type RequestParts } from "./requests.ts";

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
  proceed: () => void,
): void {
  if (!callers.asks) return proceed();
  try {
    const principal = callers.authenticate(metadata.get("authorization").map(String));
    if (principal instanceof Promise) return void admitLater(call, principal, proceed);
    call.setPrincipal(principal);
  } catch (error) {
    return call.fail(error);
  }
  proceed();
}

async function admitLater(
  call: ServedCall,
  principal: ReturnType<Callers["authenticate"]>,
  proceed: () => void,
): Promise<void> {
  try {
    call.setPrincipal(await principal);
  } catch (error) {
    return call.fail(error);
  }
  if (!call.hasEnded) proceed();
}

const INCOMPLETE = { field: "", description: "the call ended before a whole request had come" };

/**
 * Starts a call with a single request, and passes on its bytes when the caller is known and the
 * request is complete. Its memory is freed when `handle` is done.
 */
export function receiveOne(
  { records, callers, incoming }: Pick<MethodDeps, "records" | "callers" | "incoming">,
  {
    wire,
    arrived,
  }: { readonly wire: ServerInterceptingCallInterface; readonly arrived: IncomingCall },
  handle: (call: ServedCall, request: OneRequest, bytes: Buffer) => Promise<void>,
): void {
  const call = new ServedCall(wire, arrived.stream, records);
  const request = new OneRequest(incoming, arrived, call);
  let message: Buffer | undefined;
  const deliver = (bytes: Buffer): void => void handle(call, request, bytes);
  wire.start({
    onReceiveMetadata: (metadata) => {
      call.startSpan(metadata);
      admit(call, { callers, metadata }, () => {
        if (request.hasRoom()) wire.startRead();
      });
    },
    onReceiveMessage: (bytes: Buffer) => {
      if (message !== undefined) {
        const why = "the method takes one request, and a second one came";
        return call.fail(new ServiceError("unimplemented", "NOT_IMPLEMENTED", why));
      }
      message = bytes;
      wire.startRead(); // Needed to learn the end of the requests.
    },
    onReceiveHalfClose: () => {
      if (message !== undefined) return request.decompressed(message, deliver);
      // So looks a frame that is shorter than stated, and, for a moment, a caller who left.
      setImmediate(() => call.fail(invalidArgument([INCOMPLETE])));
    },
    onCancel: () => {
      call.onCancel();
      request.close();
    },
  });
}
