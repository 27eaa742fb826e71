import { HttpAgent } from "@ag-ui/client";

const asked = new URLSearchParams(location.search);
const service = asked.get("service") ?? "http://127.0.0.1:8000";
const session = asked.get("session") ?? "talk";
const agent = new HttpAgent({ url: `${service}/agui/sessions/${session}` });
const [talk, problem, form, text, stop] = document.querySelectorAll("[id]");
let runId;

agent.subscribe({
  onRunStartedEvent({ event }) {
    runId = event.runId;
    stop.disabled = false;
  },
  onMessagesChanged({ messages }) {
    talk.replaceChildren(
      ...messages.map(({ role, content }) =>
        Object.assign(document.createElement("p"), { className: role, textContent: content }),
      ),
    );
  },
  onRunErrorEvent({ event }) {
    if (event.code !== "abort") problem.textContent = event.message;
  },
});

async function follow() {
  problem.textContent = "";
  await agent.runAgent().catch((error) => (problem.textContent = error.message));
  stop.disabled = true;
}
let followed = follow(); // First what the session has, with the rest of an open run.

async function say(content) {
  agent.abortRun(); // This client follows one answer at a time.
  await followed;
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
  await follow();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  followed = say(text.value);
  form.reset();
});
stop.addEventListener("click", () => {
  const run = `${service}/api/ambient/v1/sessions/${session}/runs/${runId}`;
  void fetch(`${run}/cancel`, { method: "POST" });
});
