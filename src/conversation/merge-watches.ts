/**
 * Merges both watches of one client. If both have rows, messages come first, because they cause the
 * events. A slow client holds at most one delivery of each.
 */
import assert from "node:assert/strict";
import type { Delivery } from "../live/watcher.ts";

export type MergedDelivery =
  | ({ readonly stream: "events" } & Delivery<"events">)
  | ({ readonly stream: "messages" } & Delivery<"messages">);

interface Watches {
  readonly events: AsyncGenerator<Delivery<"events">, void, undefined>;
  readonly messages: AsyncGenerator<Delivery<"messages">, void, undefined>;
}

interface Slot {
  /** Asks for the next delivery. */
  readonly next: () => Promise<MergedDelivery | "over">;
  delivery: MergedDelivery | "over" | undefined;
  failure: { readonly error: unknown } | undefined;
  isPending: boolean;
}

/** Ends with the first watch that ends; throws its error. The caller leaves both watches. */
export async function* mergeWatches({
  events,
  messages,
}: Watches): AsyncGenerator<MergedDelivery, void, undefined> {
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
    for (const slot of slots) void requestNext(slot, () => wake?.());
    const slot = slots.find(
      ({ delivery, failure }) => delivery !== undefined || failure !== undefined,
    );
    if (slot === undefined) {
      await new Promise<void>((resolve) => (wake = resolve));
      continue;
    }
    if (slot.failure !== undefined) throw slot.failure.error;
    if (slot.delivery === "over") return;
    yield takeDelivery(slot);
  }
}

/** No variable of a generator that waits may hold the rows (base/pull.ts). */
function takeDelivery(slot: Slot): MergedDelivery {
  const { delivery } = slot;
  assert(delivery !== undefined && delivery !== "over");
  slot.delivery = undefined;
  slot.isPending = false;
  return delivery;
}

function slotOf(next: Slot["next"]): Slot {
  return { next, delivery: undefined, failure: undefined, isPending: false };
}

/** A race of promises would keep a reaction for each delivery of the other watch. */
async function requestNext(slot: Slot, wake: () => void): Promise<void> {
  if (slot.isPending) return;
  slot.isPending = true;
  try {
    slot.delivery = await slot.next();
  } catch (error) {
    slot.failure = { error };
  }
  wake();
}
