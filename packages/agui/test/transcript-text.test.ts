/** Readable transcripts, in which no content can pass for a heading or another message. */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { JsonObject } from "@session-ledger/agui/json";
import { transcriptMarkdown, transcriptText } from "@session-ledger/agui/transcript/readable";
import { properties } from "../../../test/support/random.ts";

const CONVERSATION: readonly JsonObject[] = [
  {
    id: "u",
    role: "user",
    name: "Ada",
    content: [
      { type: "text", text: "What is this?" },
      { type: "image", source: { type: "url", value: "https://example.com/a.png" } },
      { type: "image", source: { type: "data", value: "AAAA", mimeType: "image/png" } },
    ],
  },
  { id: "r", role: "reasoning", content: "A picture.\nI should look." },
  {
    id: "a",
    role: "assistant",
    content: "Let me look.",
    toolCalls: [{ id: "c", type: "function", function: { name: "look", arguments: '{"at":1}' } }],
  },
  { id: "t", role: "tool", toolCallId: "c", content: "A cat.\n" },
  { id: "p", role: "activity", activityType: "PLAN", content: { steps: [] } },
  { id: "e", role: "reasoning", content: "", encryptedValue: "xyz" },
  { id: "b", role: "assistant", content: "# A cat\n\nIt is `a` *cat*." },
];

test("a transcript is shown as plain text", () => {
  expect(transcriptText(CONVERSATION)).toBe(`User (Ada):
    What is this?

    (not text: image, https://example.com/a.png)

    (not text: image, image/png)

Reasoning:
    A picture.
    I should look.

Assistant:
    Let me look.

    calls look:
        {"at":1}

Tool result (look):
    A cat.

Activity (PLAN):
    (not text)

Reasoning:
    (encrypted)

Assistant:
    # A cat

    It is \`a\` *cat*.
`);
});

test("a transcript is shown as Markdown", () => {
  expect(transcriptMarkdown(CONVERSATION)).toBe(`## User (\`Ada\`)

> What is this?

*not text:* \`image, https://example.com/a.png\`

*not text:* \`image, image/png\`

## Reasoning

> A picture.
> I should look.

## Assistant

> Let me look.

Calls \`look\`:

\`\`\`
{"at":1}
\`\`\`

## Tool result (\`look\`)

\`\`\`
A cat.
\`\`\`

## Activity (\`PLAN\`)

*not text*

## Reasoning

*encrypted*

## Assistant

> # A cat
>
> It is \`a\` *cat*.
`);
});

test("an empty transcript is an empty text", () => {
  expect(transcriptText([])).toBe("");
  expect(transcriptMarkdown([])).toBe("");
});

test("a name with backticks becomes one code span", () => {
  const heading = (name: string): string =>
    transcriptMarkdown([{ role: "user", name, content: "x" }]);
  expect(heading("a`b``c\n## d")).toContain("## User (``` a`b``c ## d ```)\n");
  expect(heading("`")).toContain("## User (`` ` ``)\n");
  expect(heading("x".repeat(300))).toContain(`(\`${"x".repeat(200)}…\`)`);
});

describe("content cannot pass for another message", () => {
  const evil = fc
    .array(
      fc.oneof(
        fc.string({ unit: "grapheme", maxLength: 4 }),
        fc.constantFrom("\n", "\r", "\u2028", "\v", "\u0085", "\u001b[2J", "\0", "\t", "\ud800"),
        fc.constantFrom("## User", "User:", "> ", "```", "````", "~~~", "<!--", "<b", "    ", "\\"),
      ),
      { maxLength: 12 },
    )
    .map((pieces) => pieces.join(""));
  const messages = fc.array(
    fc.record({
      role: fc.oneof(fc.constantFrom("user", "assistant", "tool", "activity"), evil),
      name: evil,
      activityType: evil,
      toolCallId: fc.constant("c"),
      content: fc.oneof(
        evil,
        fc.tuple(evil, evil).map(([text, url]) => [{ text }, { type: url, url }]),
      ),
      toolCalls: fc
        .tuple(evil, evil)
        .map(([name, given]) => [{ id: "c", function: { name, arguments: given } }]),
    }),
    { maxLength: 4 },
  );

  test("in plain text, where lines are indented or begin with a role", () => {
    fc.assert(
      fc.property(messages, (all) => {
        const text = transcriptText(all);
        const headings = text.split("\n").filter((line) => line !== "" && !line.startsWith("    "));
        expect(headings).toHaveLength(all.length);
        expect(text).not.toMatch(/(?![\n\t])[\p{Cc}\u2028\u2029]/u);
        expect(text.isWellFormed()).toBe(true);
      }),
      properties({ runs: 1_000 }),
    );
  });

  test("in Markdown, where content is quoted, fenced or in a code span", () => {
    fc.assert(
      fc.property(messages, (all) => {
        const markdown = transcriptMarkdown(all);
        const ours = outsideOf(markdown);
        expect(ours.filter((line) => line.startsWith("## "))).toHaveLength(all.length);
        const shapes =
          /^(## (User|Assistant|Tool result|Activity|Message)( \((`.*`|\*unnamed\*)\))?|Calls (`.*`|\*unnamed\*):|\*(not text|empty)(:\* (`.*`|\*unnamed\*)|\*)|)$/;
        for (const line of ours) expect(line).toMatch(shapes);
        expect(markdown).not.toMatch(/(?![\n\t])[\p{Cc}\u2028\u2029]/u);
      }),
      properties({ runs: 1_000 }),
    );
  });

  test("in HTML, which is escaped in a quote and left alone in quoted code", () => {
    const say = (content: string): string => transcriptMarkdown([{ role: "user", content }]);
    expect(say("a < b <b> \\<!-- x")).toBe("## User\n\n> a < b &lt;b> \\&lt;!-- x\n");
    expect(say("```html\n<b>\n```\n<b>")).toBe("## User\n\n> ```html\n> <b>\n> ```\n> &lt;b>\n");
    // The same lines end a fence as in CommonMark, and similar ones do not.
    expect(say("- a\n  ```\n<b>")).toContain("> &lt;b>");
    expect(say("``` a`b\n<b>")).toContain("> &lt;b>");
    expect(say("````\n```\n<b>\n`````\n<b>")).toContain("> ```\n> <b>\n> `````\n> &lt;b>");
  });
});

/** The lines outside of quotes and fences, by the rules of CommonMark. */
function outsideOf(markdown: string): readonly string[] {
  let fence: string | undefined;
  return markdown.split("\n").filter((line) => {
    const run = /^`{3,}$/.exec(line)?.[0];
    if (fence !== undefined) {
      if (run !== undefined && run.length >= fence.length) fence = undefined;
      return false;
    }
    fence = run;
    return run === undefined && !line.startsWith(">");
  });
}
