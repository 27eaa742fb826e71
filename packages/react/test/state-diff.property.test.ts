/**
 * The changes of a state are exactly the difference: applied to the state before, they give the state
 * after, and each of them is needed.
 *
 * Method: two random JSON values, often one with a few parts of the other. The changes are applied as
 * a JSON Patch is. What was removed is applied last and from the end, as its paths are places in the
 * state before.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { type Change, type Path, stateDiff } from "../src/model/state-diff.ts";
import { properties } from "../../../test/support/random.ts";

const key = fc.constantFrom("a", "b", "/", "~", "", "__proto__", "constructor");
const { value } = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: "small" },
    fc.constantFrom(null, true, 0, 1, "", "x", "y"),
    fc.array(tie("value"), { maxLength: 5 }),
    fc
      .array(fc.tuple(key, tie("value")), { maxLength: 4 })
      // As JSON.parse makes it: `__proto__` is a key like any other.
      .map((members) => JSON.parse(`{${members.map(memberText).join(",")}}`) as unknown),
  ),
}));

function memberText([name, member]: readonly [string, unknown]): string {
  return `${JSON.stringify(name)}:${JSON.stringify(member)}`;
}

/** The state that the changes make of another; what is on the way is copied. */
function applied(before: unknown, changes: readonly Change[]): unknown {
  const removed = changes.filter(({ kind }) => kind === "removed").toReversed();
  const others = changes.filter(({ kind }) => kind !== "removed");
  return [...others, ...removed].reduce(
    (state, change) => changed(state, change.path, change),
    before,
  );
}

function changed(state: unknown, [part, ...rest]: Path, change: Change): unknown {
  if (part === undefined) return change.kind === "removed" ? undefined : change.after;
  const isInside = rest.length > 0;
  if (Array.isArray(state)) {
    const at = Number(part);
    const isKept = isInside || change.kind === "changed";
    const items = change.kind === "removed" && !isInside ? [] : [changed(state[at], rest, change)];
    return state.toSpliced(at, isKept || change.kind === "removed" ? 1 : 0, ...items);
  }
  const members = new Map(Object.entries(objectOf(state)));
  if (change.kind === "removed" && !isInside) members.delete(String(part));
  else members.set(String(part), changed(members.get(String(part)), rest, change));
  return Object.fromEntries(members);
}

function objectOf(state: unknown): object {
  if (typeof state !== "object" || state === null) throw new TypeError("the path is not there");
  return state;
}

test("gives exactly the changes between two states", () => {
  fc.assert(
    fc.property(value, value, (before, after) => {
      const changes = stateDiff(before, after);
      expect(JSON.stringify(sorted(applied(before, changes)))).toBe(JSON.stringify(sorted(after)));
      for (const change of changes) {
        const others = changes.filter((other) => other !== change);
        expect(sorted(applied(before, others))).not.toEqual(sorted(after));
      }
    }),
    properties({ runs: 2_000 }),
  );
});

function sorted(one: unknown): unknown {
  if (Array.isArray(one)) return one.map(sorted);
  if (typeof one !== "object" || one === null) return one;
  const members = Object.entries(one).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return { members: members.map(([name, member]) => [name, sorted(member)]) };
}

test("an item in front of a list is one change", () => {
  const items = [{ id: 1 }, { id: 2 }, { id: 3 }];
  const changes = stateDiff({ items }, { items: [{ id: 0 }, ...items] });
  expect(changes).toEqual([{ kind: "added", path: ["items", 0], after: { id: 0 } }]);
});
