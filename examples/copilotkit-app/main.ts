/**
 * A chat of CopilotKit: a page, and the runtime that runs its agent. A thread is a session, so it is there
 * again after a restart of this process.
 */
import { createServer } from "node:http";
import { AbstractAgent, type BaseEvent, type RunAgentInput } from "@ag-ui/client";
import { CopilotRuntime } from "@copilotkit/runtime/v2";
import { createCopilotNodeListener } from "@copilotkit/runtime/v2/node";
import { build } from "esbuild";
import { Observable } from "rxjs";
import { SessionLedgerRunner } from "@session-ledger/runner/copilotkit";

/** A real agent asks a model; this one says the question again. */
class Echo extends AbstractAgent {
  override run({ threadId, runId, messages }: RunAgentInput): Observable<BaseEvent> {
    const messageId = `answer-${runId}`;
    const question = messages.at(-1)?.content;
    const events = [
      { type: "RUN_STARTED", threadId, runId },
      { type: "TEXT_MESSAGE_START", messageId, role: "assistant" },
      { type: "TEXT_MESSAGE_CONTENT", messageId, delta: `You said: ${JSON.stringify(question)}` },
      { type: "TEXT_MESSAGE_END", messageId },
      { type: "RUN_FINISHED", threadId, runId },
    ];
    return new Observable((subscriber) => {
      for (const event of events) subscriber.next(JSON.parse(JSON.stringify(event)));
      subscriber.complete();
    });
  }
}

const { LEDGER_GRPC: address = "127.0.0.1:9000", PORT = "3000" } = process.env;
const runner = new SessionLedgerRunner<BaseEvent>({ address });
const runtime = new CopilotRuntime({ agents: { default: new Echo() }, runner });
const copilotKit = createCopilotNodeListener({ runtime, basePath: "/copilotkit" });

const script = await build({
  entryPoints: [`${import.meta.dirname}/page.ts`],
  bundle: true,
  format: "esm",
  write: false,
});
const page = `<!doctype html><meta charset="utf-8"><title>CopilotKit on a ledger</title>
<ul id="messages"></ul><form><input name="text" autofocus><button disabled>Send</button></form>
<script type="module">${script.outputFiles[0]?.text.replaceAll("</script", "<\\/script")}</script>`;

const server = createServer((request, response) => {
  if (request.url?.startsWith("/copilotkit") === true) return void copilotKit(request, response);
  response.setHeader("content-type", "text/html").end(page);
});
server.listen(Number(PORT), "127.0.0.1", () => {
  const { port } = Object(server.address());
  console.log(`open http://127.0.0.1:${port}/?thread=demo`);
});
process.once("SIGTERM", () => void stop());
process.once("SIGINT", () => void stop());

async function stop(): Promise<void> {
  await runner.close();
  process.exit(0);
}
