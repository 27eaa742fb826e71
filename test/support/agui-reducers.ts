/**
 * The reducers of the real AG-UI clients. Events reach them like the answer of an agent, over the HTTP
 * transport of the client with a fetch that stays in the process.
 */
import { defaultApplyEvents, HttpAgent } from "@ag-ui/client";
import { defaultApplyEvents as defaultApplyEvents0, HttpAgent as HttpAgent0 } from "agui-client-0";
import { type JsonObject, parseObject } from "@session-ledger/agui/json";

export type ClientVersion = "0.0.59" | "1.0.0";

/** The view of a client, as JSON. */
export interface Shown {
  readonly messages: string;
  readonly state: string;
}

export interface Reduced {
  /** The events that reached the reducer, in canonical form, each with the view before it. */
  readonly steps: readonly { readonly event: JsonObject; readonly before: Shown }[];
  readonly shown: Shown;
  readonly pendingInterrupts: string;
}

/** The reducer alone: nothing checks, changes or drops events before it. */
export async function reduceBy(
  version: ClientVersion,
  events: readonly JsonObject[],
): Promise<Reduced> {
  const steps: Step[] = [];
  const recorder = recorderOf(steps);
  const input = { ...IDS, state: {}, messages: [], tools: [], context: [], forwardedProps: {} };
  const latest: { messages: unknown; state: unknown } = { messages: [], state: {} };
  const take = (mutation: { messages?: unknown; state?: unknown }): void => {
    if (mutation.messages !== undefined) latest.messages = mutation.messages;
    if (mutation.state !== undefined) latest.state = mutation.state;
  };
  const options = { url: "http://agent.invalid", fetch: answering(events) };
  const agent = version === "1.0.0" ? new HttpAgent(options) : new HttpAgent0(options);
  await new Promise<void>((resolve, reject) => {
    const observer = { next: take, error: reject, complete: resolve };
    if (agent instanceof HttpAgent)
      defaultApplyEvents(input, agent.run(input), agent, [recorder]).subscribe(observer);
    else defaultApplyEvents0(input, agent.run(input), agent, [recorder]).subscribe(observer);
  });
  return { steps, shown: shownOf(latest), pendingInterrupts: jsonOf(agent.pendingInterrupts) };
}

/** The whole client, which also translates, expands and checks; a refused event ends the run. */
export async function runClient(
  version: ClientVersion,
  events: readonly JsonObject[],
): Promise<Reduced & { readonly error: unknown }> {
  const steps: Step[] = [];
  const options = { url: "http://agent.invalid", fetch: answering(events) };
  const agent = version === "1.0.0" ? new HttpAgent(options) : new HttpAgent0(options);
  const error: unknown = await agent.runAgent({ runId: IDS.runId }, recorderOf(steps)).then(
    () => undefined,
    (reason: unknown) => reason,
  );
  return {
    steps,
    shown: shownOf(agent),
    pendingInterrupts: jsonOf(agent.pendingInterrupts),
    error,
  };
}

type Step = Reduced["steps"][number];

const IDS = { threadId: "thread", runId: "run" };

function recorderOf(steps: Step[]): {
  readonly onEvent: (seen: { event: unknown; messages: unknown; state: unknown }) => void;
} {
  return {
    // The reducer later changes objects of an event, so the event is copied here.
    onEvent: ({ event, messages, state }) => {
      steps.push({
        event: parseObject(JSON.stringify(event)),
        before: shownOf({ messages, state }),
      });
    },
  };
}

function answering(events: readonly JsonObject[]): () => Promise<Response> {
  const body = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
  const headers = { "content-type": "text/event-stream" };
  return () => Promise.resolve(new Response(body, { headers }));
}

function shownOf({ messages, state }: { messages: unknown; state: unknown }): Shown {
  return { messages: jsonOf(messages), state: jsonOf(state) };
}

/** Without undefined keys, which JSON does not have. */
function jsonOf(value: unknown): string {
  return JSON.stringify(value) ?? "null";
}
