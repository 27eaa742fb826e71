/**
 * A value patched where it stands is what fast-json-patch makes of copies, as the AG-UI clients call
 * it: after every patch, those that fail in the middle included.
 *
 * Method: values are drawn from few keys, so that pointers meet; each operation's pointer is one that
 * the value has, or that with a step more or another last step. The original is given copies and asked
 * for the result; a patch it refuses leaves the value as it was. Two things it lets pass must fail here:
 * a value moved into itself, and an entry of a text or a number, where it changes nothing. What a value
 * inherits is not copied or moved: a unit test has that.
 */
import jsonpatch from "fast-json-patch";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { Allowance, Patched } from "@session-ledger/agui/transcript/patched";
import { weightOf } from "@session-ledger/agui/transcript/weight";
import { properties } from "../../../test/support/random.ts";

const KEYS = ["a", "b", "", "0", "c/d", "m~n"] as const;
const STEPS = [
  ...KEYS,
  "-",
  "1",
  "01",
  "7",
  "__proto__",
  "toString",
  "constructor",
  "length",
] as const;
/** The original takes such a thing from a prototype, or writes to it: never what is asked of it here. */
const INHERITED = /(toString|constructor|length)$/;

const { anyValue } = fc.letrec((tie) => ({
  anyValue: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    fc.constantFrom(null, true, 0, 1, "", "text"),
    fc.array(tie("anyValue"), { maxLength: 4 }),
    fc.dictionary(fc.constantFrom(...KEYS), tie("anyValue"), { maxKeys: 4 }),
  ),
}));

const anyPointer = fc.record({
  which: fc.nat({ max: 999 }),
  change: fc.constantFrom("none", "none", "none", "further", "aside", "free"),
  step: fc.constantFrom(...STEPS),
});
const anyOperation = fc.record({
  op: fc.constantFrom("add", "add", "replace", "remove", "move", "copy", "test"),
  path: anyPointer,
  from: anyPointer,
  value: anyValue,
  isTestTrue: fc.boolean(),
});
type Drawn = typeof anyOperation extends fc.Arbitrary<infer T> ? T : never;

const LIMITS = { bytesMax: 1e9, allowance: new Allowance(1e12) };

test("a patched value equals the result of fast-json-patch, patch after patch", () => {
  fc.assert(
    fc.property(
      anyValue,
      fc.array(fc.array(anyOperation, { maxLength: 4 }), { maxLength: 6 }),
      (first, drawn) => {
        const given = JSON.stringify(first);
        const patched = new Patched(first, LIMITS);
        let model: unknown = JSON.parse(given);
        for (const operations of drawn) {
          const patch = operations.map((one) => patchOf(one, model));
          const sent = JSON.stringify(patch);
          const expected = applied(model, patch);
          const outcome = patched.apply(patch);
          expect({ outcome, value: patched.value, patch: sent }).toEqual({
            outcome: expected === undefined ? "failed" : "applied",
            value: expected === undefined ? model : expected.value,
            patch: sent,
          });
          // Neither the first value nor what a patch brought is touched by what comes later.
          expect(JSON.stringify(patch)).toBe(sent);
          if (expected !== undefined) model = expected.value;
        }
        expect(JSON.stringify(first)).toBe(given);
      },
    ),
    properties({ runs: 3_000 }),
  );
});

test("the weight of a value is known after any patches", () => {
  fc.assert(
    fc.property(
      anyValue,
      fc.array(anyOperation, { minLength: 1, maxLength: 12 }),
      (first, drawn) => {
        const patched = new Patched(first, LIMITS);
        for (const one of drawn) patched.apply([patchOf(one, patched.value)]);
        expect(patched.bytes).toBe(weightOf(patched.value).bytes);
      },
    ),
    properties({ runs: 1_000 }),
  );
});

/** Undefined: the patch fails. Operation by operation, to see what each applies to. */
function applied(
  model: unknown,
  patch: readonly Record<string, unknown>[],
): { readonly value: unknown } | undefined {
  let document: unknown = structuredClone(model);
  for (const operation of patch) {
    const { op, from, path } = operation;
    const isOfText = [path, from].some((one) => isEntryOfText(document, one));
    if (isOfText || (op === "move" && from === "" && path !== "")) return undefined;
    try {
      const copy: jsonpatch.Operation[] = JSON.parse(JSON.stringify([operation]));
      ({ newDocument: document } = jsonpatch.applyPatch(document, copy, true, false));
    } catch {
      return undefined;
    }
    if (document === undefined) return undefined;
  }
  return { value: JSON.parse(JSON.stringify(document)) };
}

function isEntryOfText(document: unknown, pointer: unknown): boolean {
  if (typeof pointer !== "string" || pointer === "") return false;
  const holder = valueAt(document, pointer.slice(0, pointer.lastIndexOf("/")));
  return holder !== undefined && typeof holder !== "object";
}

function patchOf(
  { op, path, from, value, isTestTrue }: Drawn,
  model: unknown,
): Record<string, unknown> {
  const at = pointerOf(path, model);
  switch (op) {
    case "add":
    case "replace":
      return { op, path: at, value };
    case "test":
      return { op, path: at, value: isTestTrue ? (valueAt(model, at) ?? value) : value };
    case "move":
    case "copy": {
      const drawn = pointerOf(from, model);
      const source = INHERITED.test(drawn) ? "/a" : drawn;
      return { op, path: at, from: source };
    }
    case "remove":
      return { op, path: at };
  }
}

function valueAt(model: unknown, at: string): unknown {
  return [...pointersOf(model)].find(([known]) => known === at)?.[1];
}

function pointerOf({ which, change, step }: Drawn["path"], model: unknown): string {
  const known = [...pointersOf(model)].map(([one]) => one);
  const chosen = known[which % known.length] ?? "";
  const last = `/${step.replaceAll("~", "~0").replaceAll("/", "~1")}`;
  switch (change) {
    case "none":
      return chosen;
    case "further":
      return chosen + last;
    case "aside":
      return chosen.slice(0, Math.max(0, chosen.lastIndexOf("/"))) + last;
    case "free":
      return `/a${last}`;
  }
}

function* pointersOf(value: unknown, at = ""): Generator<readonly [string, unknown]> {
  yield [at, value];
  if (typeof value !== "object" || value === null) return;
  for (const [key, item] of Object.entries(value))
    yield* pointersOf(item, `${at}/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`);
}
