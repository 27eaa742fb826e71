import { isObject, type JsonObject } from "../../agui/json.ts";
import { changedBytes, setOwn } from "./weight.ts";

/**
 * Metadata of events, gathered on what the events build: the last value of a key wins. It is merged
 * in place, because a message may get some with every fragment, and copying each time what was
 * gathered so far is quadratic; what came with an event is copied the first time.
 *
 * It tells by how much the target has become heavier.
 */
export class Metadata {
  readonly #own = new WeakMap<object, Record<string, unknown>>();

  gather(target: Record<string, unknown>, { metadata }: JsonObject): number {
    if (!isObject(metadata)) return 0;
    const known = target["metadata"];
    const own = isObject(known) ? this.#own.get(known) : undefined;
    if (own !== undefined) {
      let bytes = 0;
      for (const [key, value] of Object.entries(metadata)) {
        const before = Object.hasOwn(own, key) ? own[key] : undefined;
        bytes += changedBytes(key, { before, after: value });
        setOwn(own, key, value);
      }
      return bytes;
    }
    const first = { ...(isObject(known) ? known : {}), ...metadata };
    this.#own.set(first, first);
    target["metadata"] = first;
    return changedBytes("metadata", { before: known, after: first });
  }
}
