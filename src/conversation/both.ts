/**
 * The deliveries of the two watches of one client, as they come, and messages first: what a person
 * said is the cause of the events behind it. Each watch is asked for its next delivery when the one
 * before it was taken, so a client that does not read leaves both watches where they are.
 */
import assert from "node:assert/strict";
import type { Delivery } from "../live/watcher.ts";

export type Told =
  | ({ readonly stream: "events" } & Delivery<"events">)
  | ({ readonly stream: "messages" } & Delivery<"messages">);

interface Watches {
  readonly events: AsyncGenerator<Delivery<"events">, void, undefined>;
  readonly messages: AsyncGenerator<Delivery<"messages">, void, undefined>;
}

interface Slot {
  /** Asks for the next delivery. */
  readonly ask: () => Promise<Told | "over">;
  told: Told | "over" | undefined;
  failure: { readonly error: unknown } | undefined;
  isAsked: boolean;
}

/**
 * Ends with the first watch that ends; throws its error. The caller leaves both watches: a watch
 * that waits for its next row is not awaited.
 */
export async function* bothOf({
  events,
  messages,
}: Watches): AsyncGenerator<Told, void, undefined> {
  const slots = [
    slotOf(async () => {
      const { value } = await messages.next();
      return value === undefined ? "over" : { stream: "messages", ...value };
    }),
    slotOf(async () => {
      const { value } = await events.next();
      return value === undefined ? "over" : { stream: "events", ...value };
    }),
  ];
  let wake: (() => void) | undefined;
  for (;;) {
    for (const slot of slots) void ask(slot, () => wake?.());
    const slot = slots.find(({ told, failure }) => told !== undefined || failure !== undefined);
    if (slot === undefined) {
      await new Promise<void>((resolve) => (wake = resolve));
      continue;
    }
    if (slot.failure !== undefined) throw slot.failure.error;
    if (slot.told === "over") return;
    yield taken(slot);
  }
}

/** No variable of a generator that waits may hold the rows (base/pull.ts). */
function taken(slot: Slot): Told {
  const { told } = slot;
  assert(told !== undefined && told !== "over");
  slot.told = undefined;
  slot.isAsked = false;
  return told;
}

function slotOf(next: Slot["ask"]): Slot {
  return { ask: next, told: undefined, failure: undefined, isAsked: false };
}

/** A race of promises would keep a reaction for each delivery of the other watch. */
async function ask(slot: Slot, wake: () => void): Promise<void> {
  if (slot.isAsked) return;
  slot.isAsked = true;
  try {
    slot.told = await slot.ask();
  } catch (error) {
    slot.failure = { error };
  }
  wake();
}
