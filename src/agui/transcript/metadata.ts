import { isObject, type JsonObject } from "../json.ts";
import { setOwn } from "./weight.ts";

/**
 * Metadata of events, gathered on what the events build: the last value of a key wins. It is merged
 * in place, because a message may get some with every fragment, and copying each time what was
 * gathered so far is quadratic; what came with an event is copied the first time.
 */
export class Metadata {
  readonly #own = new WeakMap<object, Record<string, unknown>>();

  gather(target: Record<string, unknown>, { metadata }: JsonObject): void {
    if (!isObject(metadata)) return;
    const known = target["metadata"];
    const own = isObject(known) ? this.#own.get(known) : undefined;
    if (own !== undefined) {
      for (const [key, value] of Object.entries(metadata)) setOwn(own, key, value);
      return;
    }
    const first = { ...(isObject(known) ? known : {}), ...metadata };
    this.#own.set(first, first);
    target["metadata"] = first;
  }
}
