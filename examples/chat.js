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
  const error = await agent.runAgent().then(() => undefined, Object);
  if (error !== undefined) problem.textContent = detailOf(error);
  stop.disabled = true;
  return error;
}

function detailOf({ message, payload }) {
  try {
    return JSON.parse(payload).detail;
  } catch {
    return message;
  }
}
let followed = follow(); // First what the session has, with the rest of an open run.

async function say(content) {
  agent.abortRun(); // This client follows one answer at a time.
  await followed;
  const id = crypto.randomUUID();
  agent.addMessage({ id, role: "user", content });
  const { status } = (await follow()) ?? {};
  if (!(status >= 400 && status < 500)) return;
  // Refused and not stored: it would be refused again with each later message.
  agent.setMessages(agent.messages.filter((message) => message.id !== id));
  text.value ||= content;
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
