/** Changes to the `rawEvent`s of a merged row, of which only the first is in its payload. */
import { expand, type ExpandableRow } from "./expand.ts";
import type { FragmentIndex } from "./fragments.ts";
import { RawWriter } from "./raw-events.ts";

/**
 * The index of `payload`, the row's payload after a change of strings in its `rawEvent`; `rewrite`
 * makes the same change in each event. Undefined: the changed events have no common form.
 */
export function rewrittenIndex(
  row: Omit<ExpandableRow, "fragments"> & { readonly fragments: FragmentIndex },
  payload: string,
  rewrite: (payload: string) => string,
): FragmentIndex | undefined {
  const { timestampDeltasMs, rawEvents } = row.fragments;
  if (rawEvents === undefined) return row.fragments;
  const writer = new RawWriter(payload, 1);
  for (const event of expand(row, row.seq)) {
    const rewritten = rewrite(event.payload);
    const pieces = writer.match(rewritten);
    if (pieces === undefined) return undefined;
    writer.push(pieces, rewritten.length);
  }
  const { lengths } = rawEvents;
  return { lengths: [], timestampDeltasMs, rawEvents: { lengths, ...writer.close() } };
}
