/** The capabilities of an agent, as other programs read them. */
import type { FrameworkCapabilities } from "./bridge.ts";

/** In the Ambient platform's spelling. */
export function wireCapabilities(own: FrameworkCapabilities): Readonly<Record<string, unknown>> {
  return {
    framework: own.framework,
    agent_features: own.agentFeatures,
    file_system: own.fileSystem,
    mcp: own.mcp,
    session_persistence: own.sessionPersistence,
    streaming: own.streaming,
    thinking: own.thinking,
    tool_use: own.toolUse,
    tracing: own.tracing,
  };
}

/** AG-UI's AgentCapabilities; other fields are in `custom.ambient`. */
export function agentCapabilities(own: FrameworkCapabilities): Readonly<Record<string, unknown>> {
  const { streaming, thinking, tool_use: toolUse, ...ambient } = wireCapabilities(own);
  const hasInterrupts = own.agentFeatures.includes("interrupt");
  return {
    identity: { type: own.framework },
    // A client of the ledger can join at any time, again and again.
    transport: { streaming, resumable: true },
    tools: { supported: toolUse },
    reasoning: { supported: thinking },
    state: { persistentState: own.sessionPersistence },
    multiAgent: { supported: own.agentFeatures.includes("subagents") },
    humanInTheLoop: { supported: hasInterrupts, interrupts: hasInterrupts },
    custom: { ambient },
  };
}
