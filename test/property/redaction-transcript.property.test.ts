/**
 * What a reader puts together of the events that came out of redaction holds no secret: the transcript of
 * any events of a few ids, said by anybody, as CONTENT or CHUNK, of one kind or two, with STARTs, ENDs and
 * runs between their pieces, is masked wherever the transcript of the same events without redaction has
 * a secret. The transcript is the real one, so whatever it joins is found, and nothing is said twice.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { z } from "zod";
import { Canonical } from "@session-ledger/agui/canonical/canonical";
import { Transcript } from "@session-ledger/agui/transcript/transcript";
import { BUILT_IN, type Pattern } from "@session-ledger/agui/redaction/patterns";
import { createRedactor } from "@session-ledger/agui/redaction/redactor";
import { properties } from "../support/random.ts";
import {
  besidesDashes,
  maskedWhole,
  RedactedStream,
  withMasksOf,
} from "../support/redaction-oracle.ts";

const OWN: readonly Pattern[] = [
  { kind: "o", begin: "kk", characters: "a-j", least: 4 },
  { kind: "w", begin: "(?<![A-Za-z0-9])kw", characters: "a-j", least: 4 },
];
const SECRETS = [...BUILT_IN, ...OWN];
const redactor = createRedactor({ secrets: SECRETS, keys: [] }, () => undefined);

const delta = fc.oneof(
  fc.constantFrom("k", "kk", "kw", "w", "a kk", "ghp_", " ", "é", "\\"),
  fc.stringMatching(/^[a-j]{1,5}$/),
  fc.stringMatching(/^[a-z0-9]{18,36}$/),
);
/** One of each most of the time: pieces of one text shall meet. */
const messageId = fc.constantFrom("m", "m", "m", "n");
const toolCallId = fc.constantFrom("t", "t", "u");
const subagentRunId = fc.constantFrom(undefined, undefined, "s", "q");
const kind = fc.constantFrom("TEXT_MESSAGE", "TEXT_MESSAGE", "REASONING_MESSAGE");
const often = (arbitrary: fc.Arbitrary<object>) => ({ arbitrary, weight: 4 });
const seldom = (arbitrary: fc.Arbitrary<object>) => ({ arbitrary, weight: 1 });
const absent = (arbitrary: fc.Arbitrary<string>) => fc.option(arbitrary, { nil: undefined });

const event = fc.oneof(
  often(
    fc
      .record({ kind, messageId, subagentRunId, delta })
      .map(({ kind: of, ...said }) => ({ type: `${of}_CONTENT`, ...said })),
  ),
  often(
    fc
      .record({ kind, messageId: absent(messageId), subagentRunId, delta: absent(delta) })
      .map(({ kind: of, ...said }) => ({ type: `${of}_CHUNK`, ...said })),
  ),
  often(
    fc
      .record({ toolCallId, subagentRunId, delta })
      .map((said) => ({ type: "TOOL_CALL_ARGS", ...said })),
  ),
  seldom(
    fc
      .record({ toolCallId: absent(toolCallId), subagentRunId, delta: absent(delta) })
      .map((said) => ({ type: "TOOL_CALL_CHUNK", toolCallName: "n", ...said })),
  ),
  seldom(delta.map((said) => ({ type: "THINKING_TEXT_MESSAGE_CONTENT", delta: said }))),
  seldom(
    fc.record({ kind, messageId, subagentRunId }).map(({ kind: of, ...said }) => {
      const role = of === "TEXT_MESSAGE" ? "assistant" : "reasoning";
      return { type: `${of}_START`, role, ...said };
    }),
  ),
  seldom(
    fc
      .record({ kind, messageId, subagentRunId })
      .map(({ kind: of, ...said }) => ({ type: `${of}_END`, ...said })),
  ),
  seldom(
    fc.record({ toolCallId, subagentRunId }).chain((said) =>
      fc.constantFrom(
        { type: "TOOL_CALL_START", toolCallName: "n", ...said },
        {
          type: "TOOL_CALL_END",
          ...said,
        },
      ),
    ),
  ),
  seldom(
    fc.constantFrom(
      { type: "RUN_STARTED", threadId: "t", runId: "r" },
      { type: "RUN_FINISHED", threadId: "t", runId: "r" },
      { type: "RUN_ERROR", message: "x" },
      { type: "THINKING_TEXT_MESSAGE_START" },
      { type: "THINKING_TEXT_MESSAGE_END" },
      { type: "CUSTOM", name: "n", value: 1 },
      { type: "STATE_SNAPSHOT", snapshot: {}, subagentRunId: "s" },
    ),
  ),
  seldom(fc.constantFrom({ does: "flush" }, { does: "pause" })),
);

const messagesSchema = z.array(
  z.looseObject({
    id: z.string(),
    content: z.optional(z.string()),
    toolCalls: z.optional(
      z.array(z.looseObject({ function: z.looseObject({ arguments: z.string() }) })),
    ),
  }),
);

/** Every text of the transcript, by where it stands. */
function textsOf(payloads: readonly string[]): readonly (readonly [string, string])[] {
  const canonical = new Canonical("s");
  const transcript = new Transcript();
  for (const [at, payload] of payloads.entries()) {
    const { type: eventType } = z.looseObject({ type: z.string() }).parse(JSON.parse(payload));
    const logged = { seq: BigInt(at + 1), eventType, payload, conformant: true };
    for (const { value } of canonical.next(logged)) transcript.apply(value);
  }
  return messagesSchema
    .parse(transcript.messages())
    .flatMap(({ id, content, toolCalls }, at) => [
      [`${at} ${id}`, content ?? ""] as const,
      ...(toolCalls ?? []).map(
        (call, of) => [`${at} ${id} ${of}`, call.function.arguments] as const,
      ),
    ]);
}

test.each([[true], [false]])(
  "texts that the transcript joins are masked (merging: %s)",
  (merges) => {
    let masked = 0;
    fc.assert(
      fc.property(fc.array(event, { maxLength: 40 }), (drawn) => {
        const stream = new RedactedStream(redactor, { merges });
        const sent: string[] = [];
        for (const one of [{ type: "RUN_STARTED", threadId: "t", runId: "r" }, ...drawn]) {
          if (!("does" in one)) {
            sent.push(JSON.stringify(one));
            stream.push(JSON.stringify(one));
          } else if (one.does === "flush") stream.close("flush");
          else stream.pass(1_000);
        }
        stream.close("end");
        expect(stream.numbers.refusedEvents).toBe(0);
        const out = new Map(textsOf(stream.events()));
        for (const [where, whole] of textsOf(sent)) {
          const expected = besidesDashes(maskedWhole(whole, SECRETS), whole);
          const text = besidesDashes(out.get(where) ?? "", whole);
          expect(text).toHaveLength(whole.length);
          expect(text).toBe(withMasksOf(expected, text));
          if (expected !== whole) masked += 1;
        }
      }),
      properties({ runs: 1_000 }),
    );
    expect(masked).toBeGreaterThan(0);
  },
);
