/** The context of a run for tests of middleware. */
import { capabilitiesOf, PlatformBridge } from "../../src/sdk/bridge.ts";
import type { RunContext } from "../../src/sdk/middleware/middleware.ts";

class Silent extends PlatformBridge {
  createAdapter() {
    return { run: silent };
  }

  capabilities() {
    return capabilitiesOf({ framework: "none" });
  }
}

async function* silent(): AsyncGenerator<never> {
  // It says nothing.
}

export function runContext(given: Partial<RunContext> = {}): RunContext {
  const input = { state: {}, messages: [], tools: [], context: [], forwardedProps: {} };
  return {
    sessionId: "s",
    runId: "r",
    input: { threadId: "s", runId: "r", ...input },
    bridge: new Silent(),
    signal: new AbortController().signal,
    ...given,
  };
}
