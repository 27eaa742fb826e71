import { isObject, type JsonObject } from "../../agui/json.ts";
import { changedBytes, setOwn } from "./weight.ts";

/**
 * The metadata of events, merged onto the message or call that the events build: the last value of
 * a key wins. The merge is in place: a message may get metadata with every fragment, and a copy
 * each time would be quadratic. Metadata from an event is copied the first time.
 *
 * Returns the number of bytes that the target has grown by.
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
