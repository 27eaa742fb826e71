/** The page: CopilotKit's own client, without React. */
import { CopilotKitCore } from "@copilotkit/core";

const core = new CopilotKitCore({ runtimeUrl: `${location.origin}/copilotkit` });
const { agent } = core.registerProxiedAgent({ agentId: "page", runtimeAgentId: "default" });
agent.threadId = new URLSearchParams(location.search).get("thread") ?? "demo";
agent.subscribe({ onMessagesChanged: show });
document.forms[0]?.addEventListener("submit", (event) => {
  event.preventDefault();
  const input = document.querySelector("input");
  if (input === null) return;
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: input.value });
  input.value = "";
  void core.runAgent({ agent });
});

await core.connectAgent({ agent });
document.querySelector("button")?.removeAttribute("disabled");

function show(): void {
  const items = agent.messages.map(({ role, content }) => {
    const item = document.createElement("li");
    item.textContent = `${role}: ${typeof content === "string" ? content : JSON.stringify(content)}`;
    return item;
  });
  document.querySelector("#messages")?.replaceChildren(...items);
}
