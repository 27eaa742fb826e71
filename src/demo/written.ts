/** Turns that no agent has recorded, in scripts that test a page. */
import type { AgentEvent } from "@session-ledger/runner/internal/sdk/bridge";
import { asking, called, resultOf, spoken, thought } from "./pieces.ts";

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
      { ...asking(call.toolCallId, "把 2.4.1 部署到生产环境？"), ...run },
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
      { type: "RUN_FINISHED", ...run },
    ],
  };
}

function changed(path: string, value: unknown): AgentEvent {
  return { type: "STATE_DELTA", delta: [{ op: "replace", path, value }] };
}
