/**
 * A session of an attacker who controls every text of it. A page that runs any of it sets `window.ran`,
 * opens a dialog, asks another origin, or loses the prototype of its objects.
 */
import { called, type AguiEvent, run, spoken } from "./inspector-sessions.ts";

/** Nothing listens there, and no page may ask. */
const FOREIGN = "http://foreign.example";

const RUN = "window.ran=1;alert(1)";

/** Text in every place that has text. */
export const ATTACKS: readonly string[] = [
  `<script>${RUN}</script>`,
  `<img src=x onerror="${RUN}">`,
  `<svg onload="${RUN}"></svg>`,
  `<iframe srcdoc="<script>parent.ran=1</script>"></iframe>`,
  `<a href="javascript:${RUN}">raw link</a>`,
  `[a link](javascript:${RUN})`,
  `[spaced](java\tscript:${RUN})`,
  `[data](data:text/html,<script>${RUN}</script>)`,
  `[file](file:///etc/passwd)`,
  `![picture](${FOREIGN}/pixel.png)`,
  `![titled](${FOREIGN}/titled.png "x\\" onerror=${RUN}")`,
  `<style>@import "${FOREIGN}/style.css";</style>`,
  `<meta http-equiv="refresh" content="0;url=${FOREIGN}/">`,
  `<form action="${FOREIGN}/"><button>send</button></form>`,
  `<base href="${FOREIGN}/">`,
  `"><script>${RUN}</script>`,
  "{{constructor.constructor('window.ran=1')()}}",
];

/** U+202E turns what follows around: the name reads `invoice_exe.pdf`. */
export const TURNED = "invoice_\u202Efdp.exe";
export const OVERLONG_CHARACTERS = 5_000_000;
const LEVELS = 60;

export function hostileEvents(): readonly AguiEvent[] {
  const attack = ATTACKS.join("\n\n");
  return run("<script>window.ran=1</script>", [
    { type: "STATE_SNAPSHOT", snapshot: hostileState() },
    { type: "STEP_STARTED", stepName: ATTACKS[1] },
    ...spoken("h1", attack),
    ...thought("h2", attack),
    ...called({
      id: "c1",
      name: ATTACKS[1] ?? "",
      args: ['{"broken": "', "<b>no end"],
      result: attack,
    }),
    ...called({
      id: "c2",
      name: TURNED,
      args: [JSON.stringify({ path: TURNED })],
      result: '{"a":',
    }),
    ...called({ id: "c3", name: "deep", args: [nested(LEVELS)], result: nested(LEVELS) }),
    ...called({ id: "c4", name: "keys", args: [PROTOTYPE_KEYS], result: PROTOTYPE_KEYS }),
    ...called({
      id: "__proto__",
      name: "constructor",
      args: ["null"],
      result: "\u0000\u001b[31m\u0007",
    }),
    ...spoken("h3", `See ${TURNED} and \u2066isolated\u2069, zero\u200Bwidth, \uFEFFmark.`),
    ...spoken("h4", "long".repeat(25_000)),
    { type: "STATE_DELTA", delta: [{ op: "add", path: "/__proto__", value: { polluted: true } }] },
    { type: "CUSTOM", name: ATTACKS[0], value: { html: ATTACKS[1], url: `javascript:${RUN}` } },
    { type: "RAW", event: { html: attack }, source: ATTACKS[2] },
    {
      type: "ACTIVITY_SNAPSHOT",
      messageId: "h5",
      activityType: ATTACKS[1],
      content: { html: attack },
    },
    { type: "STEP_FINISHED", stepName: ATTACKS[1] },
  ]);
}

/** One text of five million characters, in pieces that the limit of a payload lets through. */
export function overlong(): readonly AguiEvent[] {
  const piece = "x".repeat(500_000);
  const pieces = Array.from({ length: OVERLONG_CHARACTERS / piece.length }, () => piece);
  return run("overlong", spoken("o1", ...pieces));
}

function thought(messageId: string, delta: string): readonly AguiEvent[] {
  return [
    { type: "REASONING_START", messageId },
    { type: "REASONING_MESSAGE_START", messageId, role: "reasoning" },
    { type: "REASONING_MESSAGE_CONTENT", messageId, delta },
    { type: "REASONING_MESSAGE_END", messageId },
    { type: "REASONING_END", messageId },
  ];
}

const PROTOTYPE_KEYS =
  '{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}},"toString":"no function","hasOwnProperty":1}';

function hostileState(): unknown {
  // JSON.parse makes an own property of the name __proto__; a literal would set the prototype.
  const keys: unknown = JSON.parse(PROTOTYPE_KEYS);
  return {
    keys,
    html: ATTACKS[1],
    [ATTACKS[0] ?? ""]: TURNED,
    deep: JSON.parse(nested(LEVELS - 4)),
  };
}

function nested(levels: number): string {
  return `${'{"a":'.repeat(levels)}1${"}".repeat(levels)}`;
}
