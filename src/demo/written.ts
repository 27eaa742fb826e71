/** Turns that no agent has recorded, in scripts that test a page. */
import type { AgentEvent } from "@session-ledger/runner/internal/sdk/bridge";
import { asking, called, resultOf, spoken, thought, usageOf } from "./pieces.ts";

/** A question of a person, and the run that answers it. */
export interface DemoTurn {
  readonly from: string;
  readonly text: string;
  readonly events: readonly AgentEvent[];
}

/** In Chinese. It ends with an interrupt: the agent waits for an approval. */
export function release(): DemoTurn {
  const run = { threadId: "demo-release", runId: "run-release-1" };
  const call = { toolCallId: "call-deploy", toolCallName: "deploy" };
  const plan = { messageId: "plan-release", activityType: "PLAN" };
  const titles = ["运行测试", "检查指标", "部署到生产环境"];
  const steps = titles.map((title) => ({ title, status: "pending" }));
  const done = (step: number): AgentEvent => ({
    type: "ACTIVITY_DELTA",
    ...plan,
    patch: [{ op: "replace", path: `/steps/${step}/status`, value: "done" }],
  });
  const state = { version: "2.4.1", tests: null, errorRate: null, approved: null };
  return {
    from: "林小雨",
    text: "请把 2.4.1 版本部署到生产环境。部署前先跑测试。",
    events: [
      { type: "RUN_STARTED", ...run },
      { type: "STATE_SNAPSHOT", snapshot: { release: state } },
      ...thought(
        "reason-release",
        "用户要部署 2.4.1。先运行测试，再看最近一小时的错误率。部署会影响线上用户，所以必须先得到批准。",
      ),
      { type: "ACTIVITY_SNAPSHOT", ...plan, content: { title: "发布计划", steps } },
      { type: "STEP_STARTED", stepName: "检查" },
      ...called({
        toolCallId: "call-tests",
        toolCallName: "run_tests",
        args: { ref: "v2.4.1", suite: "all" },
      }),
      ...called({
        toolCallId: "call-metrics",
        toolCallName: "read_metrics",
        args: { metric: "error_rate", range: "1h" },
      }),
      resultOf("call-metrics", '{"error_rate":0.0012,"threshold":0.01}'),
      changed("/release/errorRate", 0.0012),
      done(1),
      resultOf("call-tests", '{"passed":412,"failed":0,"seconds":48}'),
      changed("/release/tests", { passed: 412, failed: 0 }),
      done(0),
      { type: "STEP_FINISHED", stepName: "检查" },
      ...spoken(
        "answer-release",
        "检查完成：\n\n| 项目 | 结果 |\n| --- | --- |\n| 测试 | **412 通过**，0 失败 |\n| 错误率 | 0.12 %（上限 1 %） |\n\n现在可以部署 `v2.4.1`。请批准。",
      ),
      ...called({ ...call, args: { version: "2.4.1", target: "production" } }),
      asking(call.toolCallId, "把 2.4.1 部署到生产环境？", {
        ...run,
        ...usageOf("qwen3-max", 2_140, 486),
      }),
    ],
  };
}

/** In Arabic, from right to left. */
export function trip(): DemoTurn {
  const run = { threadId: "demo-trip", runId: "run-trip-1" };
  return {
    from: "سلمى",
    text: "خطط لي يومين في مراكش، أحب الحدائق والطعام.",
    events: [
      { type: "RUN_STARTED", ...run },
      ...thought(
        "reason-trip",
        "يومان فقط، لذلك أختار أماكن قريبة من بعضها، وأتحقق من الطقس أولا.",
      ),
      ...called({
        toolCallId: "call-weather",
        toolCallName: "weather",
        args: { city: "مراكش", days: 2 },
      }),
      resultOf("call-weather", '{"city":"مراكش","highs":[24,26],"rain":false}'),
      { type: "STATE_SNAPSHOT", snapshot: { city: "مراكش", days: 2, budget: "متوسط" } },
      ...spoken(
        "answer-trip",
        "الطقس جميل (24–26°)، وهذه خطة ليومين:\n\n### اليوم الأول\n\n- **الصباح:** حديقة ماجوريل\n- **الظهر:** طاجين في المدينة القديمة\n- **المساء:** ساحة جامع الفنا\n\n### اليوم الثاني\n\n1. حدائق المنارة\n2. قصر الباهية\n3. درس طبخ مغربي\n\nهل تريد أن أحجز درس الطبخ؟ الموقع: [Visit Marrakech](https://www.visitmarrakech.com).",
      ),
      { type: "RUN_FINISHED", ...run, ...usageOf("gemini-3-flash", 812, 344) },
    ],
  };
}

/** A subagent reads the sources, and one of its calls fails. */
export function report(): DemoTurn {
  const run = { threadId: "demo-report", runId: "run-report-1" };
  const sub = { subagentRunId: "run-report-1-reader" };
  const of = (event: AgentEvent): AgentEvent => ({ ...event, ...sub });
  const search = { toolCallId: "call-search", toolCallName: "web_search" };
  const fetch = { toolCallId: "call-fetch", toolCallName: "fetch_page" };
  return {
    from: "Ana",
    text: "How much tea does Kenya export? Give me one number, with its source.",
    events: [
      { type: "RUN_STARTED", ...run },
      ...thought("reason-report", "One number with a source. I send a reader to find it."),
      { type: "SUBAGENT_STARTED", ...sub, name: "Reader", description: "Finds and reads pages" },
      ...[...called({ ...search, args: { query: "Kenya tea exports 2024" } })].map(of),
      of(resultOf(search.toolCallId, '{"pages":["https://example.org/tea-2024"]}')),
      ...[...called({ ...fetch, args: { url: "https://example.org/tea-2024" } })].map(of),
      of({ ...resultOf(fetch.toolCallId, "504 Gateway Timeout"), error: "504 Gateway Timeout" }),
      ...[
        ...spoken(
          "note-report",
          "The search names 594,500 tonnes for 2024. The page did not load.",
        ),
      ].map(of),
      { type: "SUBAGENT_FINISHED", ...sub },
      ...spoken(
        "answer-report",
        "About **594,500 tonnes** in 2024, by the title of [this page](https://example.org/tea-2024). I could not open the page itself, so please check it before you quote the number.",
      ),
      { type: "RUN_FINISHED", ...run, ...usageOf("claude-sonnet-4-5", 5_310, 622) },
    ],
  };
}

/** The call that the agent of `refund` asks about. */
export const REFUND_CALL = "call-refund";

/** A person attaches a picture; the agent asks before it pays. */
export function refund(): DemoTurn {
  const run = { threadId: "demo-refund", runId: "run-refund-1" };
  const call = { toolCallId: REFUND_CALL, toolCallName: "refund_order" };
  const content = [
    { type: "text", text: "This lamp arrived broken. I want my money back." },
    { type: "image", source: { type: "data", value: LAMP, mimeType: "image/png" } },
  ];
  return {
    from: "Tomás",
    text: JSON.stringify({ messages: [{ id: "refund-asked", role: "user", content }] }),
    events: [
      { type: "RUN_STARTED", ...run },
      ...called({ toolCallId: "call-order", toolCallName: "find_order", args: { item: "lamp" } }),
      resultOf("call-order", '{"order":"A-2041","price":"39.00 EUR","delivered":"yesterday"}'),
      ...spoken(
        "answer-refund",
        "I see the broken lamp. Your order is **A-2041**, 39.00 EUR. I ask a colleague to confirm the refund.",
      ),
      ...called({ ...call, args: { order: "A-2041", amount: "39.00 EUR", reason: "broken" } }),
      asking(call.toolCallId, "Refund 39.00 EUR for order A-2041?", {
        ...run,
        ...usageOf("gpt-5.2", 1_905, 211),
      }),
    ],
  };
}

/** A picture of 8 by 8 pixels. */
const LAMP =
  "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAM0lEQVR42mP48OENVsQAoZ6t0oAjhASyKFwOIYGsAt0oCAPFDiByszECInTLcUpARJHlAEOijtmiZVBtAAAAAElFTkSuQmCC";

function changed(path: string, value: unknown): AgentEvent {
  return { type: "STATE_DELTA", delta: [{ op: "replace", path, value }] };
}
