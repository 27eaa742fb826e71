/** What an agent does, in the words of no framework. A player makes a bridge of it. */
import type { PlatformBridge } from "@session-ledger/runner/internal/sdk/bridge";
import { pace } from "../../support/eventually.ts";

/** A part of what a model says. */
export type Beat =
  | { readonly text: string }
  | { readonly think: string }
  /** A call begins. */
  | { readonly call: string }
  | { readonly args: string; readonly of: string };

/** How a tool answers. */
export type Tool =
  | { readonly result: string; readonly takesMs?: number }
  /** Waits for an approval, and then answers. */
  | { readonly asks: true; readonly result: string }
  /** Answers when the run is cancelled, not earlier. */
  | { readonly hangs: true };

/** One call of the model, and the tools that it calls. */
export interface Step {
  readonly beats: readonly Beat[];
  readonly tools?: Readonly<Record<string, Tool>>;
  /** Nothing says that the arguments of the calls are whole, but their results. */
  readonly isTacit?: boolean;
  /** The model fails after the beats. */
  readonly fails?: string;
}

export interface Player {
  readonly name: string;
  /** A bridge whose model takes the next step each time it is called. */
  bridge(steps: readonly Step[], probe?: Probe): PlatformBridge | Promise<PlatformBridge>;
}

export interface Probe {
  /** A tool has been called. */
  called(callId: string): void;
}

export const TOOL = "lookup";

export interface Call {
  readonly id: string;
  readonly args: string;
}

/** The calls of a step, in their order. */
export function callsOf({ beats }: Step): readonly Call[] {
  return beats
    .flatMap((beat) => ("call" in beat ? [beat.call] : []))
    .map((id) => ({
      id,
      args: beats.map((beat) => ("of" in beat && beat.of === id ? beat.args : "")).join(""),
    }));
}

export function toolOf({ tools = {} }: Step, callId: string): Tool {
  const tool = tools[callId];
  if (tool === undefined) throw new Error(`the script has no tool for ${callId}`);
  return tool;
}

/** What the tool answers; rejects when the run is cancelled while it hangs. */
export async function answerOf(
  tool: Tool,
  callId: string,
  {
    probe,
    signal,
  }: { readonly probe: Probe | undefined; readonly signal: AbortSignal | undefined },
): Promise<string> {
  probe?.called(callId);
  if (!("result" in tool)) return await untilCancelled(signal ?? new AbortController().signal);
  if ("takesMs" in tool) await pace(tool.takesMs);
  return tool.result;
}

function untilCancelled(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const cancel = (): void => reject(new DOMException("cancelled", "AbortError"));
    if (signal.aborted) cancel();
    signal.addEventListener("abort", cancel, { once: true });
  });
}

/** Gives the steps one after the other. */
export function steps(list: readonly Step[]): () => Step {
  let taken = 0;
  return () => {
    const step = list[taken];
    taken += 1;
    if (step === undefined) throw new Error("the script has no more steps");
    return step;
  };
}
