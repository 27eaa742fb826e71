/**
 * Texts with secrets in them, cut into deltas anywhere, woven into each other and into other events, go
 * through the way from raw events to rows. In the events that come out, put together by construct, every
 * character of a secret is masked, and nothing that is not after the begin of one; every event is there,
 * in its order; and what is neither text nor secret has not changed.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { BUILT_IN, type Pattern } from "@session-ledger/agui/redaction/patterns";
import { createRedactor } from "@session-ledger/agui/redaction/redactor";
import { properties } from "../support/random.ts";
import {
  besidesDashes,
  maskedAtMost,
  maskedWhole,
  MAX_AGE_MS,
  RedactedStream,
  withMasksOf,
} from "../support/redaction-oracle.ts";

const OWN: Pattern = { kind: "o", begin: "kk", characters: "a-z", least: 6 };
const SECRETS = [...BUILT_IN, OWN];
const redactor = createRedactor({ secrets: SECRETS, keys: ["pin"] }, () => undefined);

const piece = fc.oneof(
  fc.constantFrom("sk-ant-", "ghp_", "eyJ", ".eyJ", "AKIA", "kk", "-----BEGIN PRIVATE KEY-----"),
  fc.constantFrom(
    "-----",
    " ",
    " ",
    "\n",
    '"',
    "\\",
    "é",
    "😀",
    "k",
    "a key: ",
    "SecretAccessKey =",
  ),
  fc.stringMatching(/^[A-Za-z0-9]{1,45}$/),
  fc.stringMatching(/^[a-z]{1,8}$/),
);
const text = fc.array(piece, { maxLength: 8 }).map((pieces) => `${pieces.join("")}é`);

const CONSTRUCTS = [
  {
    content: { type: "TEXT_MESSAGE_CONTENT", messageId: "m1" },
    end: { type: "TEXT_MESSAGE_END", messageId: "m1" },
  },
  {
    content: { type: "TOOL_CALL_ARGS", toolCallId: "t1", rawEvent: { pin: 1 } },
    end: { type: "TOOL_CALL_END", toolCallId: "t1" },
  },
  {
    content: { type: "REASONING_MESSAGE_CONTENT", messageId: "m3", subagentRunId: "s" },
    end: { type: "REASONING_MESSAGE_END", messageId: "m3", subagentRunId: "s" },
  },
  { content: { type: "TEXT_MESSAGE_CHUNK", messageId: "m2", timestamp: 1 }, end: undefined },
] as const;

const OTHERS = [
  { type: "CUSTOM", name: "n", value: 1 },
  { type: "RAW", event: { delta: "kkkkkkkk" } },
  { type: "TEXT_MESSAGE_CONTENT" },
];

type Step =
  | { readonly kind: "event"; readonly payload: string }
  | { readonly kind: "flush" }
  | { readonly kind: "pause"; readonly ms: number };

/** The deltas of each text in their order, those of different texts in any. */
const steps = () =>
  fc
    .record({
      texts: fc.tuple(...CONSTRUCTS.map(() => text)),
      cuts: fc.array(fc.nat(12), { minLength: 1, maxLength: 30 }),
      turns: fc.array(fc.nat(CONSTRUCTS.length + 2), { maxLength: 200 }),
    })
    .map(({ texts, cuts, turns }) => {
      const at = texts.map(() => 0);
      const drawn: Step[] = [];
      let count = 0;
      const next = (index: number, least = 0): void => {
        const construct = CONSTRUCTS[index];
        const whole = texts[index] ?? "";
        const start = at[index] ?? 0;
        if (construct === undefined || start > whole.length) return;
        const end = start + Math.max(least, cuts[count++ % cuts.length] ?? 1);
        at[index] = start === whole.length ? end + 1 : Math.min(end, whole.length);
        const delta = whole.slice(start, end);
        drawn.push(
          start === whole.length && construct.end !== undefined
            ? { kind: "event", payload: JSON.stringify(construct.end) }
            : { kind: "event", payload: JSON.stringify({ ...construct.content, delta }) },
        );
      };
      for (const turn of turns) {
        if (turn < CONSTRUCTS.length) next(turn);
        else if (turn === CONSTRUCTS.length)
          drawn.push({
            kind: "event",
            payload: JSON.stringify(OTHERS[count++ % OTHERS.length]),
          });
        else if (turn === CONSTRUCTS.length + 1) drawn.push({ kind: "flush" });
        else drawn.push({ kind: "pause", ms: (count++ % 4) * 100 });
      }
      for (let index = 0; index < CONSTRUCTS.length; index += 1)
        for (let turn = 0; turn < 500 && (at[index] ?? 0) <= (texts[index] ?? "").length; turn += 1)
          next(index, 1);
      return { texts, drawn };
    });

const eventSchema = z.looseObject({ type: z.string(), delta: z.optional(z.string()) });

function run(drawn: readonly Step[], { merges }: { readonly merges: boolean }) {
  const stream = new RedactedStream(redactor, { merges });
  const sent: string[] = [];
  let refused = 0;
  for (const step of drawn) {
    if (step.kind === "flush") stream.close("flush");
    else if (step.kind === "pause") stream.pass(step.ms);
    else {
      stream.push(step.payload);
      if (step.payload === JSON.stringify(OTHERS[2])) refused += 1;
      else sent.push(step.payload);
    }
  }
  stream.close("end");
  expect(stream.rows.dueAtMs).toBeUndefined();
  expect(stream.numbers.next).toBe(BigInt(sent.length + refused + 1));
  const stored = stream.events();
  expect(stream.numbers.refusedEvents).toBe(refused);
  return { sent, stored };
}

/** The texts of a construct, joined; and what else its events say. */
function textOf(payloads: readonly string[], index: number): string {
  return payloads
    .map((payload) => eventSchema.parse(JSON.parse(payload)))
    .filter(({ type }) => type === CONSTRUCTS[index]?.content.type)
    .map(({ delta = "" }) => delta)
    .join("");
}

function besidesDelta(payload: string): unknown {
  const event = eventSchema.parse(JSON.parse(payload));
  return { ...event, delta: event.delta?.length };
}

describe.each([[true], [false]])("merging fragments: %s", (merges) => {
  test("every character of a secret is masked, and nothing that is not after a begin", () => {
    let masked = 0;
    fc.assert(
      fc.property(steps(), ({ texts, drawn }) => {
        const { sent, stored } = run(drawn, { merges });
        texts.forEach((whole, index) => {
          expect(textOf(sent, index)).toBe(whole);
          const out = besidesDashes(textOf(stored, index), whole);
          expect(out).toHaveLength(whole.length);
          const least = besidesDashes(maskedWhole(whole, SECRETS), whole);
          expect(out).toBe(withMasksOf(least, out));
          const most = besidesDashes(maskedAtMost(whole, SECRETS), whole);
          expect(most).toBe(withMasksOf(out, most));
          if (least !== whole) masked += 1;
        });
        expect(stored.map(besidesDelta)).toEqual(sent.map(expectedBesidesDelta));
      }),
      properties({ runs: 1_000 }),
    );
    expect(masked).toBeGreaterThan(0);
  });
});

/** The frame of a fragment is redacted too: here a member by its name, and a secret in a RAW event. */
function expectedBesidesDelta(payload: string): unknown {
  return besidesDelta(
    payload.replace('"pin":1', '"pin":"***"').replace('"delta":"kkkkkkkk"', '"delta":"kk******"'),
  );
}

test("a row that ends in what may be a secret is masked, and so is the rest of it", () => {
  const stream = new RedactedStream(redactor);
  const content = { type: "TEXT_MESSAGE_CONTENT", messageId: "m" };
  const custom = JSON.stringify({ type: "CUSTOM", name: "n", value: 1 });
  stream.push(JSON.stringify({ ...content, delta: "see ghp_" }));
  stream.push(JSON.stringify({ ...content, delta: "abcd" }));
  stream.pass(MAX_AGE_MS);
  stream.push(custom);
  stream.push(JSON.stringify({ ...content, delta: `${"e".repeat(32)} is it` }));
  stream.close("end");
  expect(stream.events()).toEqual([
    JSON.stringify({ ...content, delta: "see ghp_" }),
    JSON.stringify({ ...content, delta: "****" }),
    custom,
    JSON.stringify({ ...content, delta: `${"*".repeat(32)} is it` }),
  ]);
});

test("a secret that is longer than the searched tail is masked to its end", () => {
  const stream = new RedactedStream(redactor, { merges: false });
  const lines = Array.from({ length: 40 }, (_, at) => `${"aB3d".repeat(16)}${at}\n`);
  const deltas = [
    "-----BEGIN PRIVATE KEY-----\n",
    ...lines,
    "-----END",
    " PRIVATE KEY-----\nIt is.",
  ];
  for (const delta of deltas)
    stream.push(JSON.stringify({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta }));
  stream.close("end");
  const stored = stream.events().map((payload) => eventSchema.parse(JSON.parse(payload)).delta);
  expect(stored.join("")).toMatch(
    /^-----BEGIN PRIVATE KEY-----\*+-----END PRIVATE KEY-----\nIt is\.$/,
  );
});

test("the begin or end of a text or run ends no secret", () => {
  for (const event of [
    { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" },
    { type: "TEXT_MESSAGE_END", messageId: "m" },
    { type: "RUN_STARTED", threadId: "t", runId: "r" },
    { type: "RUN_FINISHED", threadId: "t", runId: "r" },
    { type: "RUN_ERROR", message: "x" },
  ]) {
    const stream = new RedactedStream(redactor);
    const fragment = { type: "TEXT_MESSAGE_CONTENT", messageId: "m" };
    stream.push(JSON.stringify({ ...fragment, delta: "ghp_abcd" }));
    stream.push(JSON.stringify(event));
    stream.push(JSON.stringify({ ...fragment, delta: `${"e".repeat(32)} is it` }));
    stream.close("end");
    expect(stream.events()).toEqual([
      JSON.stringify({ ...fragment, delta: "ghp_****" }),
      JSON.stringify(event),
      JSON.stringify({ ...fragment, delta: `${"*".repeat(32)} is it` }),
    ]);
  }
});

test("a CHUNK without a message id continues the text of the last message", () => {
  const stream = new RedactedStream(redactor);
  const chunk = (delta: string, messageId?: string): void =>
    stream.push(JSON.stringify({ type: "TEXT_MESSAGE_CHUNK", messageId, delta }));
  chunk("ghp_", "m");
  chunk("a".repeat(20));
  chunk("b".repeat(20));
  stream.close("end");
  expect(stream.events().join()).not.toMatch(/aa|bb/);
});

test("a CHUNK is also read as a new message if clients may read it that way", () => {
  const stream = new RedactedStream(redactor);
  const push = (event: object): void => stream.push(JSON.stringify(event));
  const custom = { type: "CUSTOM", name: "n", value: 1 };
  push({ type: "TEXT_MESSAGE_CHUNK", messageId: "m", delta: "a gh" });
  for (const delta of ["p_", "a".repeat(18), `${"b".repeat(18)}g`, `AKIA${"C".repeat(16)} it is`]) {
    push(custom);
    push({ type: "TEXT_MESSAGE_CHUNK", delta });
  }
  stream.close("end");
  expect(stream.events().join()).not.toMatch(/aa|bb|CC/);
  expect(stream.events().join()).toContain("p_");
});

test("a `delta` that is not a fragment's is masked with its event, valid or not", () => {
  const stream = new RedactedStream(redactor);
  for (const delta of ["kkaaaaaa", ["kkaaaaaa"]])
    stream.push(JSON.stringify({ type: "CUSTOM", name: "n", value: 1, delta }));
  expect(stream.events().join()).not.toContain("aa");
});
